//! The control plane for controllers that are off by default: it serves their APIs, and Coxswain runs there with the same
//! gates.

use std::time::Duration;

use kube::Client;

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
    let manager = plane.coxswain("gated", &["--leader-elect=false"]);
    let gate = "kubernetes_feature_enabled{name=\"GenericWorkload\",stage=\"ALPHA\"}";
    let enabled = async || manager.page(Caller::Admin, "/metrics").await.metric(gate);
    until("a gate that was given to the manager", LIMIT, enabled, Option::is_some).await;
    assert_eq!(enabled().await, Some(1.0));
    let healthy = async || manager.page(Caller::Admin, "/healthz").await.status;
    until("a healthy manager", LIMIT, healthy, |status| *status == 200).await;
    assert_eq!(manager.errors(), Vec::<String>::new());
    manager.stop();
}
