//! Nodes: evictions by taints and what is written on nodes, by the tools that people use, and from one manager to the other and
//! back. The kubelet is played by kwok; nodes are tainted, and made in numbers, by hand.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Manager, Namespace, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Both managers run these and nothing else, so that what differs is ours.
const CONTROLLERS: &str = "--controllers=taint-eviction-controller,serviceaccount-controller";
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
const TAINT: &str = "example.com/moves=out:NoExecute";

/// A pod on a node that tolerates the taint for so many seconds; for ever without, and not at all if it is not said.
async fn pod(namespace: &Namespace, name: &str, node: &str, tolerates: Option<Value>) {
    let tolerations: Vec<Value> = tolerates
        .into_iter()
        .map(|seconds| json!({ "key": "example.com/moves", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds }))
        .collect();
    let _: Pod = namespace
        .create(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "tolerations": tolerations,
                "containers": [{ "name": "c", "image": "image:1" }],
            },
        }))
        .await;
}

/// The pods that are there and stay, with their UIDs.
async fn staying(namespace: &Namespace) -> BTreeMap<String, String> {
    let pods = namespace.pods().await.into_iter().map(|pod| pod.metadata);
    let staying = pods.filter(|metadata| metadata.deletion_timestamp.is_none());
    staying.filter_map(|metadata| metadata.name.zip(metadata.uid)).collect()
}

async fn are_left(namespace: &Namespace, names: &[&str]) {
    let left = || async { staying(namespace).await.into_keys().collect::<Vec<_>>() };
    until(&format!("{names:?} are left"), LIMIT, left, |left| left == names).await;
}

/// Events by what they say, with how often each came.
async fn events(namespace: &Namespace) -> BTreeMap<String, i32> {
    let events = namespace.api::<Event>().list(&ListParams::default()).await.expect("events");
    let evictions =
        events.items.into_iter().filter(|event| event.reason.as_deref() == Some("TaintManagerEviction"));
    let mut told = BTreeMap::new();
    for event in evictions {
        *told.entry(event.message.unwrap_or_default()).or_default() += event.count.unwrap_or(1);
    }
    told
}

async fn are_told(namespace: &Namespace, wanted: &[(&str, i32)]) {
    let wanted: BTreeMap<String, i32> =
        wanted.iter().map(|(text, count)| (text.replace("NS", &namespace.name), *count)).collect();
    until("events tell of it", LIMIT, || events(namespace), |told| *told == wanted).await;
}

#[tokio::test]
async fn kubectl_taints_a_node_and_its_pods_go_when_their_time_is_over() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let namespace = plane.cluster().await.namespace("evictions").await;
    namespace.default_account().await;
    for (name, tolerates) in [
        ("goes", None),
        ("stays", Some(Value::Null)),
        ("waits", Some(json!(3600))),
        ("waits-a-little", Some(json!(3))),
    ] {
        pod(&namespace, name, "node-0", tolerates).await;
    }
    pod(&namespace, "elsewhere", "node-1", None).await;
    plane.kubectl(&["taint", "node", "node-0", TAINT]);
    are_left(&namespace, &["elsewhere", "stays", "waits"]).await;
    let marked = [("Marking for deletion Pod NS/goes", 1), ("Marking for deletion Pod NS/waits-a-little", 1)];
    are_told(&namespace, &marked).await;

    // Why is told to who asks.
    let explained = || async {
        let client = Command::new(env!("CARGO_BIN_EXE_coxswain"))
            .args(["explain", "pod", &format!("{}/waits", namespace.name)])
            .args(["--controller", "taint-eviction-controller"])
            .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
            .output();
        String::from_utf8(client.expect("the program").stdout).expect("text")
    };
    until("it is said why a pod waits", LIMIT, explained, |told| {
        told.contains("The pod tolerates the taint example.com/moves=out:NoExecute of the node node-0 for 1h")
    })
    .await;

    // The taint goes before the time is over; and the node is drained, which is somebody else's doing.
    plane.kubectl(&["taint", "node", "node-0", &format!("{TAINT}-")]);
    let cancelled = [&marked[..], &[("Cancelling deletion of Pod NS/waits", 1)]].concat();
    are_told(&namespace, &cancelled).await;
    plane.kubectl(&["drain", "node-0", "--force", "--timeout=170s"]);
    are_left(&namespace, &["elsewhere"]).await;
    are_told(&namespace, &cancelled).await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// Waits until a manager has begun to work.
async fn leads(manager: &Manager<'_>) {
    let log = || async { manager.log() };
    until(&format!("{} leads", manager.name), LIMIT, log, |text| {
        text.contains("Caches are synced") || text.contains("\"started\" controller=")
    })
    .await;
}

/// A pod that waits begins anew with each manager; none goes earlier by that, and none that tolerates the taint goes.
#[tokio::test]
async fn pods_that_wait_change_hands_twice_and_none_goes_early() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("evictions").await;
    namespace.default_account().await;
    for at in 0..5 {
        pod(&namespace, &format!("stays-{at}"), "node-0", Some(Value::Null)).await;
        pod(&namespace, &format!("waits-{at}"), "node-0", Some(json!(3600))).await;
    }
    plane.kubectl(&["taint", "node", "node-0", TAINT]);
    pod(&namespace, "goes", "node-0", None).await;
    let goes = || async { staying(&namespace).await };
    let before = until("one has gone", LIMIT, goes, |pods| !pods.contains_key("goes")).await;
    assert_eq!(before.len(), 10);

    let writes = |since: usize, user_agent: &str| -> Vec<String> {
        let audit = plane.audit();
        let own = audit.iter().skip(since).filter(|event| event.user_agent.starts_with(user_agent));
        let own = own.filter(|event| event.is_write() && event.object_ref.resource == "pods");
        own.map(|event| format!("{} {}", event.verb, event.uri)).collect()
    };
    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    // It does its work meanwhile, and by then has looked at all that was there.
    pod(&namespace, "goes", "node-0", None).await;
    until("it goes", LIMIT, goes, |pods| !pods.contains_key("goes")).await;
    assert_eq!(staying(&namespace).await, before);
    let written = writes(since, "coxswain/");
    assert!(written.iter().all(|write| write.contains("/pods/goes")), "{written:?}");

    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    pod(&namespace, "goes", "node-0", None).await;
    until("it goes", LIMIT, goes, |pods| !pods.contains_key("goes")).await;
    assert_eq!(staying(&namespace).await, before);
    let written = writes(since, "kube-controller-manager/");
    assert!(written.iter().all(|write| write.contains("/pods/goes")), "{written:?}");
    go.stop();
}
