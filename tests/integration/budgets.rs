//! PodDisruptionBudgets under Coxswain as the only manager, by the tools that people use.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
const ARGS: [&str; 1] = ["--use-service-account-credentials"];

async fn budget(namespace: &Namespace, name: &str, spec: Value) {
    let _: PodDisruptionBudget =
        namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// Allowed, healthy, desired, expected.
fn numbers(status: &PodDisruptionBudgetStatus) -> [i32; 4] {
    [status.disruptions_allowed, status.current_healthy, status.desired_healthy, status.expected_pods]
        .map(Option::unwrap_or_default)
}

/// Waits for what a budget's status says.
async fn says(namespace: &Namespace, name: &str, wanted: impl Fn(&PodDisruptionBudgetStatus) -> bool) {
    let api = namespace.api::<PodDisruptionBudget>();
    let get = || async { api.get(name).await.expect("the budget").status.unwrap_or_default() };
    until(&format!("the status of {name}"), LIMIT, get, |status| wanted(status)).await;
}

fn nothing_was_forbidden(plane: &ControlPlane) {
    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
}

#[tokio::test]
async fn kubectl_drains_what_a_budget_lets_go_and_shows_it() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &ARGS);
    let namespace = plane.cluster().await.namespace("budgets").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    namespace.deployment("web", 6, json!({})).await;
    let web = json!({ "matchLabels": { "app": "web" } });
    budget(&namespace, "web", json!({ "maxUnavailable": "20%", "selector": web })).await;
    says(&namespace, "web", |status| numbers(status) == [2, 6, 4, 6]).await;
    let columns = |text: &str| -> Vec<String> {
        let row = text.lines().last().unwrap_or_default();
        row.split_whitespace().take(4).map(str::to_owned).collect()
    };
    assert_eq!(columns(&kubectl(&["get", "pdb"])), ["web", "N/A", "20%", "2"]);
    let told = kubectl(&["describe", "pdb", "web"]);
    for line in [
        "Allowed disruptions:  2",
        "Current:              6",
        "Desired:              4",
        "Total:                6",
    ] {
        assert!(told.contains(line), "{line:?} is not in {told}");
    }

    // Pods go as others come, and the node is empty in the end.
    plane.kubectl(&["drain", "node-0", "--timeout=170s"]);
    let on_node = || async { namespace.pods().await };
    let is_on = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("node-0");
    until("no pod is on the node", LIMIT, on_node, |pods| !pods.iter().any(is_on)).await;
    says(&namespace, "web", |status| {
        numbers(status) == [2, 6, 4, 6] && status.disrupted_pods.as_ref().is_none_or(BTreeMap::is_empty)
    })
    .await;

    // What a budget does not let go stays.
    kubectl(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"maxUnavailable":0}}"#]);
    says(&namespace, "web", |status| status.observed_generation == Some(2) && numbers(status)[0] == 0).await;
    let before = namespace.pods().await.len();
    let drained = plane.try_kubectl(&["drain", "node-1", "--timeout=5s"]);
    let told = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(!drained.status.success() && told.contains("violate the pod's disruption budget"), "{told}");
    assert_eq!(namespace.pods().await.len(), before);
    custom_resources_count(&plane, &namespace).await;
    nothing_was_forbidden(&plane);
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// A kind that was just defined, with a scale: its pods count by that.
async fn custom_resources_count(plane: &ControlPlane, namespace: &Namespace) {
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        kubectl(&["apply", "-f", file.path().to_str().expect("text")]);
    };
    apply(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "rollouts.budgets.example.com" },
        "spec": {
            "group": "budgets.example.com",
            "scope": "Namespaced",
            "names": { "kind": "Rollout", "plural": "rollouts", "singular": "rollout" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                "subresources": { "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                } },
            }],
        },
    }));
    kubectl(&["wait", "--for=condition=Established", "crd/rollouts.budgets.example.com", "--timeout=60s"]);
    apply(json!({
        "apiVersion": "budgets.example.com/v1", "kind": "Rollout",
        "metadata": { "name": "roll" }, "spec": { "replicas": 4 },
    }));
    let uid = kubectl(&["get", "rollouts.budgets.example.com", "roll", "-o", "jsonpath={.metadata.uid}"]);
    let _: Pod = namespace
        .create(json!({
            "metadata": {
                "name": "roll", "labels": { "app": "roll" },
                "ownerReferences": [{
                    "apiVersion": "budgets.example.com/v1", "kind": "Rollout", "name": "roll", "uid": uid, "controller": true,
                }],
            },
            "spec": { "containers": [{ "name": "c", "image": "image:1" }] },
        }))
        .await;
    let roll = json!({ "matchLabels": { "app": "roll" } });
    budget(namespace, "roll", json!({ "maxUnavailable": "50%", "selector": roll })).await;
    // Both nodes are cordoned: the pod waits.
    says(namespace, "roll", |status| numbers(status) == [0, 0, 2, 4]).await;
}

/// Pods of nobody: no other comes for one that is evicted.
const PODS: i32 = 25;
const NEEDED: i32 = 15;

#[tokio::test]
async fn evictions_at_once_leave_what_the_budget_needs() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &ARGS);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("evictions").await;
    namespace.default_account().await;
    let name = |at: i32| format!("web-{at}");
    for at in 0..PODS {
        let _: Pod = namespace
            .create(json!({
                "metadata": { "name": name(at), "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "image:1" }] },
            }))
            .await;
    }
    let web = json!({ "matchLabels": { "app": "web" } });
    budget(&namespace, "web", json!({ "minAvailable": NEEDED, "selector": web })).await;
    let left = |pods: i32| [pods - NEEDED, pods, NEEDED, pods];
    says(&namespace, "web", |status| numbers(status) == left(PODS)).await;
    let api: Api<Pod> = Api::namespaced(cluster.once.clone(), &namespace.name);
    // Everybody asks for everything, again and again, until nothing more is granted.
    let mut granted = 0;
    for _ in 0..3 {
        let params = EvictParams::default();
        let asked = join_all((0..PODS).map(|at| {
            let (api, params) = (&api, &params);
            async move { api.evict(&name(at), params).await }
        }));
        granted += asked.await.iter().filter(|answer| answer.is_ok()).count();
        says(&namespace, "web", |status| numbers(status) == left(numbers(status)[3])).await;
        assert!(namespace.pods().await.len() as i32 >= NEEDED, "{granted} were granted");
    }
    assert!(granted > 0);
    for at in 0..PODS {
        // Most are refused or gone; what conflicted with other evictions is granted now.
        match api.evict(&name(at), &EvictParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 429) => {}
            Err(error) => panic!("{error}"),
        }
    }
    says(&namespace, "web", |status| numbers(status) == left(NEEDED)).await;
    assert_eq!(namespace.pods().await.len() as i32, NEEDED);
    nothing_was_forbidden(&plane);
    assert_eq!(manager.errors(), Vec::<String>::new());
}
