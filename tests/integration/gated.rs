//! The control plane for controllers that are off by default: it serves their APIs, and Coxswain runs there with the same
//! gates.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use crate::harness::{Caller, ControlPlane, until};

const LIMIT: Duration = Duration::from_mins(1);

/// What controllers that are off by default read and write, by group and version.
const SERVED: &[(&str, &[&str])] = &[
    ("admissionregistration.k8s.io/v1", &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"]),
    (
        "certificates.k8s.io/v1beta1",
        &["clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status"],
    ),
    ("coordination.k8s.io/v1beta1", &["leasecandidates"]),
    ("internal.apiserver.k8s.io/v1alpha1", &["storageversions", "storageversions/status"]),
    (
        "resource.k8s.io/v1",
        &[
            "deviceclasses",
            "resourceclaims",
            "resourceclaims/status",
            "resourceclaimtemplates",
            "resourceslices",
        ],
    ),
    ("resource.k8s.io/v1alpha3", &["resourcepoolstatusrequests", "resourcepoolstatusrequests/status"]),
    ("resource.k8s.io/v1beta2", &["devicetaintrules", "devicetaintrules/status"]),
    ("scheduling.k8s.io/v1alpha2", &["podgroups", "podgroups/status", "workloads"]),
    ("storagemigration.k8s.io/v1beta1", &["storageversionmigrations", "storageversionmigrations/status"]),
];

/// What of a group and version is wanted and not served.
async fn missing(client: &Client, version: &str, wanted: &[&str]) -> Vec<String> {
    let served = client.list_api_group_resources(version).await;
    let served: Vec<String> =
        served.map(|list| list.resources.into_iter().map(|each| each.name).collect()).unwrap_or_default();
    let missing = wanted.iter().filter(|name| !served.iter().any(|served| served == **name));
    missing.map(|name| format!("{version}/{name}")).collect()
}

#[tokio::test]
async fn apis_that_are_off_by_default_are_served_and_coxswain_runs_there() {
    let plane = ControlPlane::gated();
    let client = plane.cluster().await.client;
    let mut all = Vec::new();
    for (version, wanted) in SERVED {
        all.extend(missing(&client, version, wanted).await);
    }
    assert_eq!(all, Vec::<String>::new(), "not served");
    let manager = plane.coxswain("gated", &["--leader-elect=false", "--use-service-account-credentials"]);
    let gate = "kubernetes_feature_enabled{name=\"GenericWorkload\",stage=\"ALPHA\"}";
    let enabled = async || manager.page(Caller::Admin, "/metrics").await.metric(gate);
    until("a gate that was given to the manager", LIMIT, enabled, Option::is_some).await;
    assert_eq!(enabled().await, Some(1.0));
    let healthy = async || manager.page(Caller::Admin, "/healthz").await.status;
    until("a healthy manager", LIMIT, healthy, |status| *status == 200).await;
    servers_that_leave_are_forgotten(plane).await;
    let forbidden =
        plane.audit().into_iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<String> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
    manager.stop();
}

/// What an API server stores is forgotten when its Lease is deleted; what the one that is there stores is not.
async fn servers_that_leave_are_forgotten(plane: &ControlPlane) {
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        plane.kubectl(&["apply", "-f", file.path().to_str().expect("text")]);
    };
    let label = json!({ "apiserver.kubernetes.io/identity": "kube-apiserver" });
    for name in ["gated-a", "gated-b"] {
        apply(json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name, "namespace": "kube-system", "labels": label } }));
    }
    apply(json!({ "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": { "name": "gated.things" }, "spec": {} }));
    let entry =
        |server: &str| json!({ "apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"] });
    let status =
        json!({ "storageVersions": [entry("gated-a"), entry("gated-b")], "commonEncodingVersion": "v1" });
    let patch = json!({ "status": status }).to_string();
    let patched = ["patch", "storageversion", "gated.things", "--subresource=status", "--type=merge", "-p"];
    plane.kubectl(&[&patched[..], &[patch.as_str()]].concat());
    let servers =
        "jsonpath={.items[?(@.metadata.name=='gated.things')].status.storageVersions[*].apiServerID}";
    let left = || async { plane.kubectl(&["get", "storageversions", "-o", servers]) };
    until("two API servers", LIMIT, left, |left| left == "gated-a gated-b").await;
    plane.kubectl(&["-n", "kube-system", "delete", "lease", "gated-b"]);
    until("one API server", LIMIT, left, |left| left == "gated-a").await;
    plane.kubectl(&["-n", "kube-system", "delete", "lease", "gated-a"]);
    let names = || async { plane.kubectl(&["get", "storageversions", "-o", "name"]) };
    let names = until("an end of the object", LIMIT, names, |names| !names.contains("gated.things")).await;
    assert!(names.contains("/apps.deployments"), "what the API server stores stays: {names}");
}
