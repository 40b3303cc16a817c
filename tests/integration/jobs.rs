//! Jobs under Coxswain as the only manager, by the tools that people use.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::harness::{ControlPlane, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
const FINALIZERS: &str = "jsonpath={.items[*].metadata.finalizers}";

#[tokio::test]
async fn kubectl_waits_for_jobs_and_leaves_their_pods_behind() {
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let namespace = plane.cluster().await.namespace("jobs").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let accounts = || async { kubectl(&["get", "serviceaccounts", "-o", "name"]) };
    until("the service account", LIMIT, accounts, |names| names.contains("default")).await;

    kubectl(&["create", "job", "once", "--image=work:1"]);
    kubectl(&["wait", "--for=condition=complete", "job/once", "--timeout=120s"]);
    let told = kubectl(&["get", "job", "once"]);
    assert!(told.contains("Complete") && told.contains("1/1"), "{told}");
    assert_eq!(kubectl(&["get", "pods", "-l", "job-name=once", "-o", FINALIZERS]), "");

    // Its pods stay, without finalizer and owner.
    kubectl(&["delete", "job", "once", "--cascade=orphan"]);
    let left = || kubectl(&["get", "pods", "-l", "job-name=once", "-o", "jsonpath={.items[*].status.phase}"]);
    assert_eq!(left(), "Succeeded");
    kubectl(&["delete", "pods", "-l", "job-name=once", "--wait=true"]);
    assert_eq!(left(), "");

    // One whose pods are never bound: suspended, resumed, and deleted with all of them.
    let template = json!({ "spec": {
        "restartPolicy": "Never",
        "nodeSelector": { "nobody": "has-this" },
        "containers": [{ "name": "main", "image": "work:1" }],
    } });
    let spec = json!({ "parallelism": 3, "completions": 3, "template": template });
    let _: Job = namespace.create(json!({ "metadata": { "name": "long" }, "spec": spec })).await;
    let active = || async {
        let job: Job = namespace.api().get("long").await.expect("the Job");
        job.status.and_then(|status| status.active).unwrap_or(0)
    };
    until("three run", LIMIT, active, |active| *active == 3).await;
    kubectl(&["patch", "job", "long", "-p", r#"{"spec":{"suspend":true}}"#]);
    kubectl(&["wait", "--for=condition=suspended", "job/long", "--timeout=120s"]);
    until("none runs", LIMIT, active, |active| *active == 0).await;
    kubectl(&["patch", "job", "long", "-p", r#"{"spec":{"suspend":false}}"#]);
    until("three run again", LIMIT, active, |active| *active == 3).await;
    kubectl(&["delete", "job", "long"]);
    let pods = || async { kubectl(&["get", "pods", "-l", "job-name=long", "-o", "name"]) };
    until("nobody holds them", LIMIT, pods, String::is_empty).await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// The empty selector selects every pod of the namespace. kube-controller-manager adopts those that have no controller, and
/// deletes the ones that are too many.
#[tokio::test]
async fn job_with_an_empty_selector_runs_and_adopts_no_pod_of_others() {
    let namespace = ControlPlane::shared().cluster().await.namespace("selects-all").await;
    namespace.default_account().await;
    let container = json!({ "name": "main", "image": "work:1" });
    let unbound = json!({ "nodeSelector": { "nobody": "has-this" }, "containers": [container] });
    let _: Pod = namespace.create(json!({ "metadata": { "name": "foreign" }, "spec": unbound })).await;
    let template = json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "restartPolicy": "Never", "containers": [container] },
    });
    let spec = json!({ "manualSelector": true, "selector": {}, "template": template });
    let _: Job = namespace.create(json!({ "metadata": { "name": "work" }, "spec": spec })).await;

    let is_complete = || async {
        let job: Job = namespace.api().get("work").await.expect("the Job");
        let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|each| each.type_ == "Complete" && each.status == "True")
    };
    until("the Job is complete", LIMIT, is_complete, |is_complete| *is_complete).await;
    let foreign: Pod = namespace.api().get("foreign").await.expect("the Pod of nobody");
    assert_eq!(foreign.metadata.owner_references, None, "it was adopted");
    assert_eq!(foreign.metadata.deletion_timestamp, None, "it is being deleted");
}
