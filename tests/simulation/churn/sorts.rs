//! The sorts of objects that are created and deleted under new names.

use serde_json::{Value as Json, json};

use coxswain_machinery::api::Kind;

use super::ROUNDS;
use crate::run::EPOCH;
use apiserver_model::{Model, Place};

/// Creates objects under a name that was not used before.
type Make = fn(&mut Work<'_>, &str);

/// A sort of objects.
pub(super) struct Sort {
    pub(super) name: &'static str,
    pub(super) make: Make,
    /// One name of this many is used: 1 or [`ROUNDS`]. The deletion of a namespace costs as much as that of fifty other objects.
    pub(super) every: usize,
    /// Whether a custom kind with this name is defined before the objects are created and removed after their deletion.
    pub(super) is_kind: bool,
}

const fn sort(name: &'static str, make: Make) -> Sort {
    Sort { name, make, every: 1, is_kind: false }
}

/// The objects of a wave so far.
pub(super) struct Work<'a> {
    pub(super) model: &'a mut Model,
    pub(super) made: &'a mut Vec<Place>,
    pub(super) kind: Option<&'static Kind>,
}

impl Work<'_> {
    fn add(&mut self, resource: &'static str, object: Json) -> String {
        self.add_to(resource, "default", object)
    }

    /// Creates an object and returns its UID.
    fn add_to(&mut self, resource: &'static str, namespace: &str, object: Json) -> String {
        let made = self.model.create("user", resource, namespace, object);
        let made = made.unwrap_or_else(|refusal| panic!("{resource}: {refusal:?}"));
        self.made.push(made.place.clone());
        made.json["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    /// Creates an object that another one owns.
    fn add_owned(&mut self, resource: &'static str, name: &str, owner: &Json) {
        self.add(resource, json!({ "metadata": { "name": name, "ownerReferences": [owner] } }));
    }
}

pub(super) static SORTS: &[Sort] = &[
    sort("configmap", |work, name| _ = work.add("configmaps", named(name))),
    sort("secret", |work, name| _ = work.add("secrets", named(name))),
    sort("serviceaccount", |work, name| _ = work.add("serviceaccounts", named(name))),
    sort("token", |work, name| {
        let metadata = json!({ "name": name, "annotations": { "kubernetes.io/service-account.name": name } });
        work.add("secrets", json!({ "metadata": metadata, "type": "kubernetes.io/service-account-token" }));
    }),
    sort("owner that never exists", |work, name| {
        work.add_owned(
            "configmaps",
            name,
            &owner("v1", "ConfigMap", &format!("{name}-absent"), &format!("uid-{name}")),
        );
    }),
    sort("owner of a kind that never exists", |work, name| {
        let owner = owner("example.com/v1", &format!("Kind{name}"), name, &format!("uid-{name}"));
        work.add_owned("configmaps", name, &owner);
    }),
    sort("owner that is deleted", |work, name| {
        let uid = work.add("configmaps", named(&format!("{name}-owner")));
        work.add_owned("secrets", name, &owner("v1", "ConfigMap", &format!("{name}-owner"), &uid));
    }),
    Sort {
        every: ROUNDS,
        is_kind: true,
        ..sort("custom kind", |work, name| {
            let Some(kind) = work.kind else { return };
            let namespace = if kind.namespaced { "default" } else { "" };
            // This object is deleted with its kind, after all watches of the kind have ended.
            let made = work.model.create("user", kind.resource, namespace, named(name)).expect("an object");
            let uid = made.json["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let owner = owner("example.com/v1", kind.kind, name, &uid);
            work.add_owned("secrets", name, &owner);
            for suffix in ["owned", "hidden"] {
                let metadata = json!({ "name": format!("{name}-{suffix}"), "ownerReferences": [owner] });
                let made =
                    work.model.create("user", kind.resource, namespace, json!({ "metadata": metadata }));
                let made = made.expect("an object");
                work.made.extend((suffix == "owned").then(|| made.place.clone()));
            }
        })
    },
    sort("pod", |work, name| {
        work.add(
            "pods",
            json!({ "metadata": { "name": name, "labels": { "app": name } }, "spec": containers() }),
        );
    }),
    sort("pod of a node that never exists", |work, name| {
        let mut spec = containers();
        spec["nodeName"] = json!(name);
        work.add("pods", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("pod that tolerates a taint for decades", |work, name| {
        let taint = json!({ "key": "example.com/broken", "effect": "NoExecute" });
        work.add_to("nodes", "", json!({ "metadata": { "name": name }, "spec": { "taints": [taint] } }));
        let mut spec = containers();
        spec["nodeName"] = json!(name);
        spec["tolerations"] = json!([{ "operator": "Exists", "tolerationSeconds": 1_000_000_000 }]);
        work.add("pods", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("bootstrap token", |work, name| {
        // The year 9999.
        let data = json!({ "expiration": "OTk5OS0wMS0wMVQwMDowMDowMFo=" });
        let secret =
            json!({ "metadata": { "name": name }, "type": "bootstrap.kubernetes.io/token", "data": data });
        work.add_to("secrets", "kube-system", secret);
    }),
    sort("node", |work, name| {
        let zone = json!({ "topology.kubernetes.io/zone": "zone-a" });
        let uid = work.add_to("nodes", "", json!({ "metadata": { "name": name, "labels": zone } }));
        let metadata = json!({ "name": name, "ownerReferences": [owner("v1", "Node", name, &uid)] });
        work.add_to(
            "leases",
            "kube-node-lease",
            json!({ "metadata": metadata, "spec": { "holderIdentity": name } }),
        );
        let mut spec = containers();
        spec["nodeName"] = json!(name);
        work.add("pods", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("service", |work, name| {
        let spec = json!({ "selector": { "app": name }, "clusterIP": "None", "ports": [{ "port": 80 }] });
        work.add("services", json!({ "metadata": { "name": name }, "spec": spec }));
        work.add(
            "pods",
            json!({ "metadata": { "name": name, "labels": { "app": name } }, "spec": containers() }),
        );
    }),
    sort("endpoints", |work, name| {
        let addresses = json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }]);
        work.add("services", json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }));
        work.add("endpoints", json!({ "metadata": { "name": name }, "subsets": addresses }));
    }),
    sort("endpointslice", |work, name| {
        let labels = json!({ "kubernetes.io/service-name": name });
        let endpoints = json!([{ "addresses": ["10.1.2.3"] }]);
        let metadata = json!({ "name": name, "labels": labels });
        work.add(
            "endpointslices",
            json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints }),
        );
    }),
    sort("replicaset", |work, name| _ = work.add("replicasets", workload(name, &json!({ "replicas": 1 })))),
    sort("replicationcontroller", |work, name| {
        let mut workload = workload(name, &json!({ "replicas": 1 }));
        workload["spec"]["selector"] = json!({ "app": name });
        work.add("replicationcontrollers", workload);
    }),
    sort("statefulset", |work, name| {
        work.add("statefulsets", workload(name, &json!({ "replicas": 1, "serviceName": name })));
    }),
    sort("daemonset", |work, name| _ = work.add("daemonsets", workload(name, &json!({})))),
    sort("deployment", |work, name| _ = work.add("deployments", workload(name, &json!({ "replicas": 1 })))),
    sort("job", |work, name| {
        // The deadline of the Job is in 63 years.
        let mut spec = json!({ "parallelism": 1, "completions": 1, "template": { "spec": containers() } });
        spec["activeDeadlineSeconds"] = json!(2_000_000_000);
        work.add("jobs", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("job with a time to live of decades", |work, name| {
        let spec = json!({ "ttlSecondsAfterFinished": i32::MAX, "template": { "spec": containers() } });
        work.add("jobs", json!({ "metadata": { "name": name }, "spec": spec }));
        let at = jiff::Timestamp::from_second(EPOCH).expect("a time").to_string();
        let condition = |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
        let ended = work.model.change("user", &Place::new("jobs", "default", name), "status", |job| {
            job["status"] = json!({ "conditions": [condition("FailureTarget"), condition("Failed")] });
        });
        ended.expect("the status is valid");
    }),
    sort("job of another controller", |work, name| {
        let managed_by = format!("example.com/{name}");
        let spec = json!({ "managedBy": managed_by, "parallelism": 1, "template": { "spec": containers() } });
        work.add("jobs", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("cronjob", |work, name| {
        let job = json!({ "spec": { "template": { "spec": containers() } } });
        let spec = json!({ "schedule": "* * * * *", "jobTemplate": job });
        work.add("cronjobs", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("cronjob of leap days", |work, name| {
        let job = json!({ "spec": { "template": { "spec": containers() } } });
        let spec = json!({ "schedule": "0 0 29 2 *", "jobTemplate": job });
        work.add("cronjobs", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("horizontalpodautoscaler", |work, name| {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
        let spec = json!({ "scaleTargetRef": target, "maxReplicas": 2 });
        work.add("horizontalpodautoscalers", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("poddisruptionbudget", |work, name| {
        let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": name } } });
        work.add("poddisruptionbudgets", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("resourcequota", |work, name| {
        let spec = json!({ "hard": { "count/jobs.batch": "900000" } });
        work.add("resourcequotas", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("persistentvolumeclaim", |work, name| _ = work.add("persistentvolumeclaims", claim(name))),
    sort("pod with a claim", |work, name| {
        work.add("persistentvolumeclaims", claim(name));
        let mut spec = containers();
        spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
        work.add("pods", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("persistentvolume", |work, name| {
        let spec = json!({
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": name,
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": format!("{name}.example.com"), "volumeHandle": name },
        });
        work.add_to("persistentvolumes", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("storageclass", |work, name| {
        work.add_to(
            "storageclasses",
            "",
            json!({ "metadata": { "name": name }, "provisioner": format!("{name}.example.com") }),
        );
    }),
    sort("resourceclaim", |work, name| {
        let devices = json!({ "requests": [{ "name": "gpu", "exactly": { "deviceClassName": name } }] });
        work.add("resourceclaims", json!({ "metadata": { "name": name }, "spec": { "devices": devices } }));
    }),
    sort("certificatesigningrequest", |work, name| {
        let spec =
            json!({ "request": "", "signerName": format!("example.com/{name}"), "usages": ["client auth"] });
        work.add_to("certificatesigningrequests", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("clusterrole", |work, name| {
        let selector = json!({ "matchLabels": { "aggregate": name } });
        let rule = json!({ "clusterRoleSelectors": [selector] });
        work.add_to("clusterroles", "", json!({ "metadata": { "name": name }, "aggregationRule": rule }));
    }),
    sort("podcertificaterequest", |work, name| {
        let spec = json!({ "signerName": format!("example.com/{name}"), "podName": name, "nodeName": name });
        work.add("podcertificaterequests", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("leasecandidate", |work, name| {
        let spec =
            json!({ "leaseName": name, "binaryVersion": "1.37.0", "strategy": "OldestEmulationVersion" });
        work.add("leasecandidates", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("ipaddress", |work, name| {
        let number: u32 = name.trim_start_matches("name-").parse().unwrap_or_default();
        let address = std::net::Ipv4Addr::from_bits((10 << 24) + number).to_string();
        work.add_to("ipaddresses", "", json!({ "metadata": { "name": address } }));
    }),
    sort("servicecidr", |work, name| {
        let spec = json!({ "cidrs": ["192.168.0.0/24"] });
        work.add_to("servicecidrs", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("deviceclass", |work, name| _ = work.add_to("deviceclasses", "", named(name))),
    sort("resourceslice", |work, name| {
        let pool = json!({ "name": name, "generation": 1, "resourceSliceCount": 1 });
        let spec = json!({ "driver": format!("{name}.example.com"), "nodeName": name, "pool": pool, "devices": [{ "name": name }] });
        work.add_to("resourceslices", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("devicetaintrule", |work, name| {
        let taint = json!({ "key": format!("example.com/{name}"), "effect": "NoExecute" });
        let selector = json!({ "driver": format!("{name}.example.com") });
        let spec = json!({ "deviceSelector": selector, "taint": taint });
        work.add_to("devicetaintrules", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("resourceclaimtemplate", |work, name| _ = work.add("resourceclaimtemplates", named(name))),
    sort("resourcepoolstatusrequest", |work, name| {
        let spec = json!({ "driver": format!("{name}.example.com"), "poolName": name });
        work.add_to("resourcepoolstatusrequests", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("podgroup", |work, name| {
        let reference = json!({ "workload": { "workloadName": name, "podGroupTemplateName": name } });
        let spec = json!({ "podGroupTemplateRef": reference, "schedulingPolicy": { "basic": {} } });
        work.add("podgroups", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("workload", |work, name| {
        let template = json!({ "name": name, "schedulingPolicy": { "basic": {} } });
        let spec = json!({ "podGroupTemplates": [template] });
        work.add("workloads", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("csidriver", |work, name| _ = work.add_to("csidrivers", "", named(name))),
    sort("csinode", |work, name| _ = work.add_to("csinodes", "", named(name))),
    sort("volumeattachment", |work, name| {
        let source = json!({ "persistentVolumeName": name });
        let spec = json!({ "attacher": format!("{name}.example.com"), "nodeName": name, "source": source });
        work.add_to("volumeattachments", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("volumeattributesclass", |work, name| {
        let class = json!({ "metadata": { "name": name }, "driverName": format!("{name}.example.com") });
        work.add_to("volumeattributesclasses", "", class);
    }),
    sort("customresourcedefinition", |work, name| {
        let names = json!({ "plural": name, "kind": name });
        let spec = json!({ "group": "example.com", "scope": "Namespaced", "names": names });
        work.add_to("customresourcedefinitions", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("storageversionmigration", |work, name| {
        let spec = json!({ "resource": { "group": "example.com", "resource": name } });
        work.add_to("storageversionmigrations", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("storageversion", |work, name| {
        let version = json!({ "apiServerID": name, "encodingVersion": "v1", "decodableVersions": ["v1"] });
        let status = json!({ "storageVersions": [version] });
        work.add_to("storageversions", "", json!({ "metadata": { "name": name }, "status": status }));
    }),
    sort("validatingadmissionpolicy", |work, name| {
        let rule = json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": [name], "operations": ["CREATE"] });
        let validation = json!({ "expression": format!("object.metadata.name != '{name}'") });
        let spec = json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [validation] });
        work.add_to("validatingadmissionpolicies", "", json!({ "metadata": { "name": name }, "spec": spec }));
    }),
    sort("event", |work, name| {
        let about = json!({ "kind": "Pod", "namespace": "default", "name": name });
        work.add("events", json!({ "metadata": { "name": name }, "involvedObject": about, "reason": "Any" }));
    }),
    Sort {
        every: ROUNDS,
        ..sort("namespace", |work, name| {
            work.add_to("namespaces", "", named(name));
            work.add_to("configmaps", name, named(name));
            work.add_to("deployments", name, workload(name, &json!({ "replicas": 1 })));
        })
    },
];

fn named(name: &str) -> Json {
    json!({ "metadata": { "name": name } })
}

fn containers() -> Json {
    json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "main" }] })
}

fn workload(name: &str, spec: &Json) -> Json {
    let labels = json!({ "app": name });
    let mut spec = spec.clone();
    spec["selector"] = json!({ "matchLabels": labels });
    let mut pod = containers();
    pod["restartPolicy"] = json!("Always");
    spec["template"] = json!({ "metadata": { "labels": labels }, "spec": pod });
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn claim(name: &str) -> Json {
    let spec = json!({
        "storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    });
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Json {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;

    use super::*;
    use crate::churn::{custom_kind, used_of, wave_of};
    use coxswain_machinery::api::kinds;

    /// Kinds whose objects controllers create for objects of other kinds.
    const MADE_BY_CONTROLLERS: &[&str] = &["clustertrustbundles", "controllerrevisions"];

    #[test]
    fn every_kind_has_a_sort_of_objects() {
        let mut model = Model::new(Timestamp::from_second(EPOCH).expect("a time"), 1);
        let mut made = Vec::new();
        for (number, sort) in SORTS.iter().enumerate() {
            let name = format!("name-{number:08}");
            let kind = sort.is_kind.then(|| custom_kind(&name, true));
            (sort.make)(&mut Work { model: &mut model, made: &mut made, kind }, &name);
        }
        assert!(model.everything().all(|held| !held.encoded(false).is_empty()), "each can be sent");
        let made: BTreeSet<&str> = model.everything().map(|held| held.place.resource).collect();
        let stored = kinds::ALL.iter().filter(|row| apiserver_model::message(row).is_some());
        let stored: BTreeSet<&str> = stored.map(|row| row.resource).collect();
        let missing: Vec<_> =
            stored.difference(&made).filter(|kind| !MADE_BY_CONTROLLERS.contains(kind)).collect();
        assert_eq!(missing, [&""; 0]);
    }

    #[test]
    fn each_wave_has_the_same_number_of_each_sort() {
        let all: Vec<&Sort> = SORTS.iter().collect();
        for sorts in [&all[..], &all[..1], &all[..7]] {
            let wave = wave_of(sorts);
            assert!(wave.is_multiple_of(sorts.len() * ROUNDS), "{wave} names for {} sorts", sorts.len());
            let rounds = 0..wave / sorts.len();
            let used =
                rounds.map(|round| sorts.iter().filter(|sort| round.is_multiple_of(sort.every)).count());
            assert_eq!(used.sum::<usize>(), used_of(sorts, wave));
        }
        assert!(SORTS.iter().all(|sort| [1, ROUNDS].contains(&sort.every)));
    }
}
