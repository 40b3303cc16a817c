//! What the API server adds to objects by their kind, and which part of them a write may change.

use serde_json::{Value as Json, json};

use super::write::text;

/// Kinds whose generation counts the versions of their spec.
const WITH_GENERATION: &[&str] = &[
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "replicationcontrollers",
    "jobs",
    "cronjobs",
    "poddisruptionbudgets",
];
/// Other kinds of which only the subresource writes the status.
const WITH_STATUS_ALONE: &[&str] = &[
    "namespaces",
    "nodes",
    "services",
    "resourcequotas",
    "persistentvolumes",
    "persistentvolumeclaims",
    "certificatesigningrequests",
    "horizontalpodautoscalers",
    "volumeattachments",
];
/// What the API server says of an object; nobody else can.
const OWN_METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "selfLink",
];

/// Gives a member what it has not.
fn default(object: &mut Json, name: &str, value: Json) {
    if object[name].is_null() {
        object[name] = value;
    }
}

/// Whether only the subresource writes the status.
fn has_status(resource: &str) -> bool {
    WITH_GENERATION.contains(&resource) || WITH_STATUS_ALONE.contains(&resource)
}

/// A new object.
pub(super) fn on_create(resource: &str, object: &mut Json) {
    if WITH_GENERATION.contains(&resource) {
        object["metadata"]["generation"] = Json::from(1);
    }
    if has_status(resource) && resource != "nodes" {
        object["status"] = json!({});
    }
    match resource {
        "namespaces" => {
            let name = object["metadata"]["name"].clone();
            default(&mut object["metadata"], "labels", json!({}));
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        "pods" => {
            let tolerate = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
            object["status"] = json!({ "phase": "Pending", "qosClass": "BestEffort" });
            let held = super::write::items(object, "/spec/tolerations");
            let has = |key: &str| {
                held.iter().any(|held| text(held, "/key") == key || text(held, "/key").is_empty())
            };
            let missing: Vec<Json> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
                .into_iter()
                .filter(|key| !has(key))
                .map(tolerate)
                .collect();
            let all = [held, &missing].concat();
            object["spec"]["tolerations"] = Json::Array(all);
        }
        "jobs" => own_selector(object),
        "daemonsets" => count_template(object, 1),
        "secrets" => default(object, "type", json!("Opaque")),
        // Nothing is to be scheduled to it before it has said that it is ready.
        "nodes" => {
            let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
            let mut taints = super::write::items(object, "/spec/taints").to_vec();
            taints.push(taint);
            default(object, "spec", json!({}));
            object["spec"]["taints"] = Json::Array(taints);
        }
        // What is used is protected from the beginning.
        "persistentvolumes" => {
            protect(object, "kubernetes.io/pv-protection");
            object["status"] = json!({ "phase": "Pending" });
        }
        "persistentvolumeclaims" => {
            protect(object, "kubernetes.io/pvc-protection");
            object["status"] = json!({ "phase": "Pending" });
        }
        _ => {}
    }
    of_spec(resource, object);
}

/// An old field of DaemonSets, which stands in an annotation: so many templates it has had.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn count_template(object: &mut Json, number: i64) {
    default(&mut object["metadata"], "annotations", json!({}));
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(number.to_string());
}

/// Adds a finalizer to those that are there.
fn protect(object: &mut Json, finalizer: &str) {
    let mut finalizers = super::write::items(object, "/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(json!(finalizer));
    }
    object["metadata"]["finalizers"] = Json::Array(finalizers);
}

/// Pods of a Job are told by its UID.
fn own_selector(job: &mut Json) {
    let uid = job["metadata"]["uid"].clone();
    let name = job["metadata"]["name"].clone();
    job["spec"]["selector"] = json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } });
    let metadata = &mut job["spec"]["template"]["metadata"];
    if !metadata["labels"].is_object() {
        *metadata = json!({ "labels": {} });
    }
    for (key, value) in [("controller-uid", &uid), ("job-name", &name)] {
        metadata["labels"][key] = value.clone();
        metadata["labels"][format!("batch.kubernetes.io/{key}")] = value.clone();
    }
}

/// A version that replaces another: what is not for this writer is as it was.
pub(super) fn on_update(resource: &str, subresource: &str, old: &Json, new: &mut Json) {
    if !new["metadata"].is_object() {
        new["metadata"] = json!({});
    }
    match subresource {
        // Who decides says so in the conditions, and cannot change what was issued.
        "approval" => {
            let conditions = new["status"]["conditions"].take();
            *new = old.clone();
            set(&mut new["status"], "conditions", &conditions);
        }
        "status" => {
            let (status, annotations) = (new["status"].take(), new["metadata"]["annotations"].take());
            *new = old.clone();
            new["status"] = status;
            if resource != "pods" {
                set(&mut new["metadata"], "annotations", &annotations);
            }
        }
        "finalize" => {
            let finalizers = new["spec"]["finalizers"].take();
            *new = old.clone();
            set(&mut new["spec"], "finalizers", &finalizers);
        }
        _ if has_status(resource) => set(new, "status", &old["status"]),
        _ => {}
    }
    if resource == "certificatesigningrequests" {
        set(new, "spec", &old["spec"]);
    }
    for name in OWN_METADATA {
        set(&mut new["metadata"], name, &old["metadata"][*name]);
    }
    if resource == "namespaces" && subresource != "finalize" {
        set(&mut new["spec"], "finalizers", &old["spec"]["finalizers"]);
    }
    of_spec(resource, new);
    if resource == "daemonsets" && subresource.is_empty() {
        let held = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        let held = held.and_then(|number| number.parse().ok()).unwrap_or(1);
        count_template(new, held + i64::from(old["spec"]["template"] != new["spec"]["template"]));
    }
    // Those of Deployments count their annotations, too.
    let annotated = resource == "deployments"
        && subresource.is_empty()
        && old["metadata"]["annotations"] != new["metadata"]["annotations"];
    if WITH_GENERATION.contains(&resource) && (old["spec"] != new["spec"] || annotated) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        new["metadata"]["generation"] = Json::from(generation + 1);
    }
}

fn set(object: &mut Json, name: &str, value: &Json) {
    let Some(members) = object.as_object_mut() else { return };
    if value.is_null() {
        members.shift_remove(name);
    } else {
        members.insert(name.to_owned(), value.clone());
    }
}

/// Defaults of the spec, as far as controllers read them.
fn of_spec(resource: &str, object: &mut Json) {
    let spec = &mut object["spec"];
    match resource {
        "deployments" => {
            default(spec, "replicas", json!(1));
            default(spec, "revisionHistoryLimit", json!(10));
            default(spec, "progressDeadlineSeconds", json!(600));
            default(spec, "strategy", json!({}));
            default(&mut spec["strategy"], "type", json!("RollingUpdate"));
            if spec["strategy"]["type"] == "RollingUpdate" {
                default(&mut spec["strategy"], "rollingUpdate", json!({}));
                default(&mut spec["strategy"]["rollingUpdate"], "maxSurge", json!("25%"));
                default(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", json!("25%"));
            }
        }
        "replicasets" | "replicationcontrollers" => default(spec, "replicas", json!(1)),
        "statefulsets" => {
            default(spec, "replicas", json!(1));
            default(spec, "revisionHistoryLimit", json!(10));
            default(spec, "podManagementPolicy", json!("OrderedReady"));
            let retention = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
            default(spec, "persistentVolumeClaimRetentionPolicy", retention);
            default(spec, "updateStrategy", json!({ "type": "RollingUpdate" }));
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                default(&mut spec["updateStrategy"], "rollingUpdate", json!({ "partition": 0 }));
            }
        }
        "daemonsets" => {
            default(spec, "revisionHistoryLimit", json!(10));
            default(spec, "updateStrategy", json!({ "type": "RollingUpdate" }));
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                let rolling = json!({ "maxUnavailable": 1, "maxSurge": 0 });
                default(&mut spec["updateStrategy"], "rollingUpdate", rolling);
            }
        }
        "jobs" => {
            default(spec, "parallelism", json!(1));
            default(spec, "backoffLimit", json!(6));
            default(spec, "completionMode", json!("NonIndexed"));
            default(spec, "suspend", json!(false));
            let failure = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
            default(spec, "podReplacementPolicy", json!(failure));
        }
        "cronjobs" => {
            default(spec, "concurrencyPolicy", json!("Allow"));
            default(spec, "suspend", json!(false));
            default(spec, "successfulJobsHistoryLimit", json!(3));
            default(spec, "failedJobsHistoryLimit", json!(1));
        }
        "persistentvolumes" => {
            default(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            default(spec, "volumeMode", json!("Filesystem"));
        }
        "persistentvolumeclaims" => default(spec, "volumeMode", json!("Filesystem")),
        "horizontalpodautoscalers" => of_autoscaler(spec),
        "pods" => of_pod(spec),
        _ => {}
    }
    if spec["template"].is_object() {
        default(&mut spec["template"], "spec", json!({}));
        of_pod(&mut spec["template"]["spec"]);
    }
}

/// What is said of how fast an autoscaler may go is complete, or nothing is said of it.
fn of_autoscaler(spec: &mut Json) {
    default(spec, "minReplicas", json!(1));
    if !spec["behavior"].is_object() {
        return;
    }
    let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
    let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
    for (way, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        default(&mut spec["behavior"], way, json!({}));
        let rules = &mut spec["behavior"][way];
        default(rules, "selectPolicy", json!("Max"));
        default(rules, "policies", policies);
        if way == "scaleUp" {
            default(rules, "stabilizationWindowSeconds", json!(0));
        }
    }
}

fn of_pod(spec: &mut Json) {
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "securityContext", json!({}));
}
