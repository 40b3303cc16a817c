//! Nodes: evictions by taints and what is written on nodes, by the tools that people use, and from one manager to the other and
//! back. The kubelet is played by kwok; nodes are tainted, and made in numbers, by hand.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, Program, object, until};

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

/// What is written on the node, once it was touched.
async fn told_when_touched(plane: &ControlPlane, node: &str, wanted: &str) {
    let touched = || async {
        plane.kubectl(&["annotate", "--overwrite", "node", node, &format!("example.com/touch={wanted}")]);
        let path = r"jsonpath={.metadata.annotations.node\.alpha\.kubernetes\.io/ttl}";
        plane.kubectl(&["get", "node", node, "-o", path])
    };
    until(&format!("{node} is told {wanted}"), LIMIT, touched, |told| told == wanted).await;
}

#[tokio::test]
async fn nodes_follow_the_size_of_the_cluster_and_change_hands() {
    const ARGS: [&str; 2] = ["--controllers=ttl-controller", "--use-service-account-credentials"];
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let args = [&ARGS[..], &ELECTION].concat();
    let nodes: Api<Node> = Api::all(plane.cluster().await.client);
    let create = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let node = object(json!({ "metadata": { "name": format!("bare-{number}") } }));
            nodes.create(&PostParams::default(), &node).await.expect("the node is created");
        }
    };
    let remove = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let name = format!("bare-{number}");
            nodes.delete(&name, &DeleteParams::default()).await.expect("the node is deleted");
        }
    };
    let told = || async {
        let all = nodes.list(&ListParams::default()).await.expect("nodes").items;
        let mut told: BTreeMap<String, usize> = BTreeMap::new();
        for node in all {
            let annotations = node.metadata.annotations.unwrap_or_default();
            let text = annotations.get("node.alpha.kubernetes.io/ttl").map_or("nothing", String::as_str);
            *told.entry(text.to_owned()).or_default() += 1;
        }
        told
    };
    let are = async |wanted: &[(&str, usize)]| {
        let wanted = wanted.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect();
        until("nodes are told", LIMIT, told, |told| *told == wanted).await;
    };

    let go = plane.go_manager("go-1", &args);
    create(0..95).await;
    are(&[("0", 95)]).await;
    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    ours.await_start(LIMIT).await;
    create(95..96).await;
    are(&[("0", 96)]).await;
    let written = |program: Program, since: usize| -> Vec<String> {
        let audit = plane.audit();
        let own = audit.iter().skip(since).filter(|event| event.is_from(program));
        let own = own.filter(|event| event.object_ref.resource == "nodes");
        own.filter(|event| event.is_write()).map(|event| format!("{} {}", event.verb, event.uri)).collect()
    };
    let of_one = written(Program::Coxswain, since);
    assert!(
        of_one.len() == 1 && of_one[0].contains("bare-95"),
        "what was told is not told again: {of_one:?}"
    );

    // Others follow when they are touched, and only then.
    create(96..101).await;
    told_when_touched(&plane, "bare-0", "15").await;
    let mut now = told().await;
    assert_eq!(now.values().sum::<usize>(), 101);
    assert!(now.remove("0").is_some_and(|unmoved| unmoved >= 95), "they were not touched");
    remove(95..101).await;
    told_when_touched(&plane, "bare-1", "15").await;
    remove(89..95).await;
    told_when_touched(&plane, "bare-1", "0").await;
    let audit = plane.audit();
    let ours_asked = audit.iter().filter(|event| event.coxswain().is_some());
    let refused: Vec<_> = ours_asked
        .filter(|event| event.is_forbidden() || event.object_ref.resource == "nodes" && event.verb == "get")
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect();
    assert_eq!(refused, Vec::<String>::new());

    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    go.await_start(LIMIT).await;
    create(95..96).await;
    until(
        "it is told",
        LIMIT,
        || async { written(Program::Go, since) },
        |written| written.iter().any(|write| write.contains("bare-95")),
    )
    .await;
    // The one that was left with another number, and no other.
    let written = written(Program::Go, since);
    let others = written.iter().filter(|write| !write.contains("bare-95") && !write.contains("bare-0"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    go.stop();
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

    let writes = |since: usize, program: Program| -> Vec<String> {
        let audit = plane.audit();
        let own = audit.iter().skip(since).filter(|event| event.is_from(program));
        let own = own.filter(|event| event.is_write() && event.object_ref.resource == "pods");
        own.map(|event| format!("{} {}", event.verb, event.uri)).collect()
    };
    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    ours.await_start(LIMIT).await;
    // It does its work meanwhile, and by then has looked at all that was there.
    pod(&namespace, "goes", "node-0", None).await;
    until("it goes", LIMIT, goes, |pods| !pods.contains_key("goes")).await;
    assert_eq!(staying(&namespace).await, before);
    let written = writes(since, Program::Coxswain);
    assert!(written.iter().all(|write| write.contains("/pods/goes")), "{written:?}");

    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    go.await_start(LIMIT).await;
    pod(&namespace, "goes", "node-0", None).await;
    until("it goes", LIMIT, goes, |pods| !pods.contains_key("goes")).await;
    assert_eq!(staying(&namespace).await, before);
    let written = writes(since, Program::Go);
    assert!(written.iter().all(|write| write.contains("/pods/goes")), "{written:?}");
    go.stop();
}
