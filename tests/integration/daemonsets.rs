//! DaemonSets under Coxswain as the only manager, by the tools that people use.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::json;

use crate::harness::{ControlPlane, Options, until};

const LIMIT: Duration = Duration::from_mins(2);
const NODES: usize = 3;

#[tokio::test]
async fn kubectl_rolls_undoes_restarts_and_drains() {
    let plane = ControlPlane::start(&Options { nodes: NODES as u32, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let namespace = plane.cluster().await.namespace("daemons").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let _: DaemonSet = namespace
        .create(json!({
            "metadata": { "name": "agent" },
            "spec": {
                "selector": { "matchLabels": { "app": "agent" } },
                "template": {
                    "metadata": { "labels": { "app": "agent" } },
                    "spec": { "containers": [{ "name": "agent", "image": "agent:1" }] },
                },
            },
        }))
        .await;
    let api = namespace.api::<DaemonSet>();
    let get = || async { api.get("agent").await.expect("the DaemonSet").status.unwrap_or_default() };
    until("a pod runs on each node", LIMIT, get, |status| status.number_available == Some(NODES as i32))
        .await;

    let rolled = |what: &str| {
        let told = kubectl(&["rollout", "status", "daemonset/agent", "--timeout=120s"]);
        assert!(told.contains("successfully rolled out"), "{what}: {told}");
    };
    let images = || kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
    kubectl(&["set", "image", "daemonset/agent", "agent=agent:2"]);
    rolled("another image");
    assert_eq!(images(), ["agent:2"; NODES].join(" "));
    let history = kubectl(&["rollout", "history", "daemonset/agent"]);
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    let first = kubectl(&["rollout", "history", "daemonset/agent", "--revision=1"]);
    assert!(first.contains("agent:1"), "{first}");

    kubectl(&["rollout", "undo", "daemonset/agent"]);
    rolled("the first image again");
    assert_eq!(images(), ["agent:1"; NODES].join(" "));
    let names = || kubectl(&["get", "pods", "-o", "name"]);
    let before = names();
    // It is kubectl that cannot pause one.
    let refused = plane.try_kubectl(&["-n", &namespace.name, "rollout", "pause", "daemonset/agent"]);
    assert!(!refused.status.success(), "{refused:?}");
    kubectl(&["rollout", "restart", "daemonset/agent"]);
    rolled("restarted");
    assert!(before.lines().all(|name| !names().contains(name)), "all pods are new");
    let revisions = kubectl(&["get", "controllerrevisions", "-o", "jsonpath={.items[*].revision}"]);
    let mut numbers: Vec<&str> = revisions.split_whitespace().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["2", "3", "4"]);

    // A drained node keeps the pods of DaemonSets.
    let before = names();
    plane.kubectl(&["drain", "node-0", "--ignore-daemonsets", "--timeout=60s"]);
    kubectl(&["set", "image", "daemonset/agent", "agent=agent:3"]);
    rolled("on a cordoned node, too");
    assert_eq!(names().lines().count(), before.lines().count());

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}
