//! Nodes that are lost: what becomes of their pods, by the tools that people use; and who takes over in the middle of it. Kubelets
//! are played by kwok, or by a test that renews their Leases.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    AuditEvent, ControlPlane, Heartbeats, Manager, Namespace, Options, Program, by_depth, object, until,
};

const LIMIT: Duration = Duration::from_mins(3);
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Nodes that nobody plays stay as they are; the others renew their Leases every two seconds.
const PLANE: [&str; 4] = [
    "--audit",
    "--kwok-arg=manage-all-nodes=false",
    "--kwok-arg=manage-nodes-with-label-selector=type=kwok",
    "--kwok-arg=node-lease-duration-seconds=8",
];
/// What takes minutes takes seconds.
const SOON: [&str; 3] =
    ["--node-monitor-period=1s", "--node-monitor-grace-period=20s", "--node-eviction-rate=5"];
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// A node that says once that it is ready.
async fn node(nodes: &Api<Node>, name: &str) {
    let new = object(json!({ "metadata": { "name": name } }));
    nodes.create(&PostParams::default(), &new).await.expect("the node is created");
    let status = json!({ "status": {
        "allocatable": { "cpu": "64", "memory": "64Gi", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z" }],
    } });
    let patched = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
    patched.expect("the node is ready");
}

/// The taints of a node as `KEY:EFFECT`.
async fn taints(nodes: &Api<Node>, name: &str) -> BTreeSet<String> {
    let node = nodes.get(name).await.expect("the node");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

async fn are_tainted(nodes: &Api<Node>, name: &str, wanted: &[&str]) {
    let wanted: BTreeSet<String> = wanted.iter().map(|taint| (*taint).to_owned()).collect();
    let look = || taints(nodes, name);
    until(&format!("{name} has the taints {wanted:?}"), LIMIT, look, |taints| *taints == wanted).await;
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|each| each.type_ == "Ready" && each.status == "True")
}

async fn says_that_it_is_ready(namespace: &Namespace, pod: &str) {
    let status = json!({ "status": {
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    let api = namespace.api::<Pod>();
    let patched = api.patch_status(pod, &PatchParams::default(), &Patch::Strategic(status)).await;
    drop(patched.expect("the pod is ready"));
}

#[tokio::test]
async fn a_pod_of_a_lost_node_is_replaced_by_the_tools_that_people_use() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: PLANE.to_vec() });
    let manager = plane.coxswain("coxswain", &[&["--use-service-account-credentials"][..], &SOON].concat());
    let cluster = plane.cluster().await;
    let heartbeats = Heartbeats::start(cluster.client.clone());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let namespace = cluster.namespace("outages").await;
    namespace.default_account().await;

    heartbeats.renew("test", names(["lost"])).await;
    node(&nodes, "lost").await;
    are_tainted(&nodes, "lost", &[]).await;
    plane.kubectl(&["cordon", "node-0", "node-1"]);
    are_tainted(&nodes, "node-0", &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
    let labels = json!({ "app": "db" });
    let _: StatefulSet = namespace
        .create(json!({
            "metadata": { "name": "db" },
            "spec": {
                "serviceName": "db",
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "db", "image": "db:1" }] },
                },
            },
        }))
        .await;
    let pods = namespace.api::<Pod>();
    let pod = || async { pods.get_opt("db-0").await.expect("a look") };
    let is_on = |pod: &Option<Pod>, wanted: &str| {
        let node = pod.as_ref().and_then(|pod| pod.spec.as_ref()).and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|name| name.starts_with(wanted))
    };
    let first = until("the pod is bound", LIMIT, pod, |pod| is_on(pod, "lost")).await;
    says_that_it_is_ready(&namespace, "db-0").await;
    plane.kubectl(&["uncordon", "node-0", "node-1"]);
    are_tainted(&nodes, "node-0", &[]).await;

    // Its kubelet falls silent.
    heartbeats.renew("test", BTreeSet::new()).await;
    let unreachable = [format!("{UNREACHABLE}:NoExecute"), format!("{UNREACHABLE}:NoSchedule")];
    are_tainted(&nodes, "lost", &unreachable.each_ref().map(String::as_str)).await;
    until("the pod is not ready", LIMIT, pod, |pod| pod.as_ref().is_some_and(|pod| !is_ready(pod))).await;
    let explained = || async {
        let client = Command::new(env!("CARGO_BIN_EXE_coxswain"))
            .args(["explain", "node", "lost", "--controller", "node-lifecycle-controller"])
            .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
            .output();
        String::from_utf8(client.expect("the program").stdout).expect("text")
    };
    until("it is said why the node is tainted", LIMIT, explained, |told| {
        told.contains("The condition Ready is Unknown; its last heartbeat was")
            && told.contains("The node has the taint node.kubernetes.io/unreachable")
    })
    .await;

    // Somebody has made sure that it is off.
    plane.kubectl(&["taint", "node", "lost", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]);
    let uid = |pod: &Option<Pod>| pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
    until("another pod is ready elsewhere", LIMIT, pod, |pod| {
        uid(pod) != uid(&first) && is_on(pod, "node-") && pod.as_ref().is_some_and(is_ready)
    })
    .await;

    // It is replaced, too.
    plane.kubectl(&["delete", "node", "lost"]);
    heartbeats.renew("test", names(["lost"])).await;
    node(&nodes, "lost").await;
    are_tainted(&nodes, "lost", &[]).await;
    plane.kubectl(&["drain", "node-0", "--force", "--timeout=170s"]);
    are_tainted(&nodes, "node-0", &["node.kubernetes.io/unschedulable:NoSchedule"]).await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// Longer than twice a node's grace.
const SILENCE: Duration = Duration::from_secs(42);

/// Nobody can say anything, and the manager hears nothing, be it that the API server is not there or that it stands still: that
/// is the silence of no node. Neither is what comes first afterwards, before nodes have had their say.
#[tokio::test]
async fn an_api_server_that_is_away_marks_no_node() {
    const NAMES: [&str; 3] = ["node-0", "node-1", "node-2"];
    // The simulation shows as much in `make test`: see CONTRIBUTING.md.
    if !by_depth(false, true) {
        return;
    }
    let plane = ControlPlane::start(&Options { nodes: 3, args: PLANE.to_vec() });
    let args = [&SOON[..], &["--leader-elect=false", CONTROLLERS]].concat();
    let _manager = plane.coxswain("coxswain", &args);
    let cluster = plane.cluster().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    for name in NAMES {
        are_tainted(&nodes, name, &[]).await;
    }
    for (away, back) in [("kill", "start"), ("pause", "resume")] {
        plane.operate(away, "kube-apiserver");
        // What is shown is what comes of so much time.
        tokio::time::sleep(SILENCE).await;
        plane.operate(back, "kube-apiserver");
        for name in NAMES {
            let renewed = || async { leases.get(name).await.ok()?.spec?.renew_time.map(|time| time.0) };
            let before = until("a Lease", LIMIT, renewed, Option::is_some).await;
            until("it is renewed", LIMIT, renewed, |time| time.is_some() && *time > before).await;
        }
    }
    // kwok takes its time to watch nodes again, and does not hear of what happened meanwhile.
    let watched = json!({ "metadata": { "name": "watched", "labels": { "type": "kwok" } } });
    nodes.create(&PostParams::default(), &object(watched)).await.expect("the node is created");
    let lease = || async { leases.get_opt("watched").await.ok().flatten() };
    until("kwok watches nodes", LIMIT, lease, Option::is_some).await;
    // One that falls silent is seen to: until then rounds were made.
    let label = json!({ "metadata": { "labels": { "type": null } } });
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(label)).await.expect("it falls silent");
    let unreachable = [format!("{UNREACHABLE}:NoExecute"), format!("{UNREACHABLE}:NoSchedule")];
    are_tainted(&nodes, "node-0", &unreachable.each_ref().map(String::as_str)).await;
    let audit = plane.audit();
    let touched: BTreeSet<&str> = audit
        .iter()
        .filter(|event| event.coxswain().is_some() && event.is_write() && event.succeeded())
        .filter(|event| event.object_ref.resource == "nodes" && event.object_ref.subresource == "status")
        .map(|event| event.object_ref.name.as_str())
        .filter(|name| NAMES.contains(name))
        .collect();
    assert_eq!(touched, BTreeSet::from(["node-0"]), "nodes whose conditions were written");
}

const CONTROLLERS: &str = "--controllers=node-lifecycle-controller,taint-eviction-controller,\
    daemonset-controller,serviceaccount-controller";

/// What nobody may change who takes over: nodes by what they say and how they are tainted, healthy ones by their versions; pods.
#[derive(Debug, PartialEq)]
struct State {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
}

const LOST: [&str; 3] = ["n0", "n1", "n2"];

impl State {
    async fn of(nodes: &Api<Node>, namespace: &Namespace) -> Self {
        let all = nodes.list(&ListParams::default()).await.expect("nodes").items.into_iter();
        let pods = namespace.pods().await.into_iter();
        Self { nodes: all.map(|node| named(&node)).collect(), pods: pods.map(|pod| named(&pod)).collect() }
    }
}

/// An object by its name, without what the taints of a lost node carry of the time at which they were set.
fn named(object: &impl serde::Serialize) -> (String, Value) {
    let mut value = serde_json::to_value(object).expect("JSON");
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let metadata = value["metadata"].as_object_mut().expect("metadata");
    metadata.remove("managedFields");
    if LOST.contains(&name.as_str()) {
        metadata.remove("resourceVersion");
    }
    if let Some(taints) = value.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        taints.iter_mut().filter_map(Value::as_object_mut).for_each(|taint| drop(taint.remove("timeAdded")));
        taints.sort_by_key(Value::to_string);
    }
    (name, value)
}

/// When the taints that drive pods away were set, if all lost nodes have one.
async fn driven_since(nodes: &Api<Node>) -> Option<Vec<String>> {
    let mut times = Vec::new();
    for name in LOST {
        let node = serde_json::to_value(nodes.get(name).await.expect("the node")).expect("JSON");
        let taints = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let driving = taints.iter().find(|taint| taint["effect"] == "NoExecute")?;
        times.push(driving["timeAdded"].as_str().unwrap_or_default().to_owned());
    }
    Some(times)
}

/// Waits until a new manager has set them anew.
async fn takes_over(nodes: &Api<Node>, manager: &Manager<'_>, before: &[String]) -> Vec<String> {
    let look = || driven_since(nodes);
    let is_anew = |times: &Option<Vec<String>>| {
        times.as_ref().is_some_and(|times| times.iter().zip(before).all(|(now, before)| now > before))
    };
    let times = until(&format!("{} taints anew", manager.name), LIMIT, look, is_anew).await;
    let times = times.expect("all have one");
    // They are told in seconds: who comes next is to tell later ones.
    let is_later = |now: &Timestamp| {
        times.iter().all(|time| time.parse::<Timestamp>().expect("a time").as_second() < now.as_second())
    };
    until("the next second", LIMIT, async || SystemClock.now(), is_later).await;
    times
}

/// Writes of nodes and pods, from this many requests on.
fn written(plane: &ControlPlane, since: usize, program: Program) -> Vec<String> {
    let audit = plane.audit();
    let is_one = |event: &&AuditEvent| {
        event.is_from(program)
            && event.is_write()
            && ["nodes", "pods"].contains(&event.object_ref.resource.as_str())
    };
    let own = audit.iter().skip(since).filter(is_one);
    own.map(|event| format!("{} {} {}", event.verb, event.resource(), event.object_ref.name)).collect()
}

/// The pod whose time is over is deleted by each who takes over, though it is being deleted already: nothing changes.
const ONCE_MORE: &str = "delete pods goes";

/// What a new manager has written, from this many requests on, when it has done so.
async fn has_deleted_once_more(plane: &ControlPlane, since: usize, program: Program) -> Vec<String> {
    let look = async || written(plane, since, program);
    let has = |writes: &Vec<String>| writes.iter().any(|write| write == ONCE_MORE);
    until(&format!("{program} deletes who goes once more"), LIMIT, look, has).await
}

#[tokio::test]
async fn an_outage_changes_hands_and_nobody_goes_early_by_that() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let args = [&[CONTROLLERS][..], &SOON, &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let heartbeats = Heartbeats::start(cluster.client.clone());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let namespace = cluster.namespace("outages").await;
    namespace.default_account().await;
    let all: Vec<String> = (0..10).map(|at| format!("n{at}")).collect();
    heartbeats.renew("test", all.iter().cloned().collect()).await;
    for name in &all {
        node(&nodes, name).await;
    }
    for name in &all {
        are_tainted(&nodes, name, &[]).await;
    }
    let on = async |name: &str, node: &str, seconds: i64| {
        let toleration = json!({
            "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
        });
        let _: Pod = namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "nodeName": node,
                    "tolerations": [toleration],
                    "containers": [{ "name": "c", "image": "image:1" }],
                },
            }))
            .await;
        says_that_it_is_ready(&namespace, name).await;
    };
    for at in 0..4 {
        on(&format!("waits-{at}"), &format!("n{at}"), 3600).await;
    }
    on("goes", "n0", 1).await;

    let alive: BTreeSet<String> = all.iter().filter(|name| !LOST.contains(&name.as_str())).cloned().collect();
    heartbeats.renew("test", alive).await;
    let driven = until("three are lost", LIMIT, || driven_since(&nodes), Option::is_some).await;
    let state = || State::of(&nodes, &namespace);
    let is_marked = |state: &State| {
        let not_ready = |at: usize| state.pods[&format!("waits-{at}")].to_string().contains(r#""False""#);
        (0..3).all(not_ready) && !state.pods["goes"]["metadata"]["deletionTimestamp"].is_null()
    };
    let before = until("pods are marked and one goes", LIMIT, state, is_marked).await;

    // What a second Go manager does that takes over.
    let since = plane.audit().len();
    go.stop();
    let go = plane.go_manager("go-2", &args);
    let driven = takes_over(&nodes, &go, &driven.expect("all have one")).await;
    let theirs = has_deleted_once_more(&plane, since, Program::Go).await;
    assert_eq!(State::of(&nodes, &namespace).await, before, "the Go manager changed something");

    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    let driven = takes_over(&nodes, &ours, &driven).await;
    let our_own = has_deleted_once_more(&plane, since, Program::Coxswain).await;
    assert_eq!(State::of(&nodes, &namespace).await, before, "Coxswain changed something");
    let others: Vec<_> = our_own.iter().filter(|write| !theirs.contains(write)).collect();
    assert_eq!(others, Vec::<&String>::new(), "the Go manager does not write that");
    // How often depends on what it sees first: the old taint, or the one that it sets.
    let [our_own, theirs] = [&our_own, &theirs]
        .map(|writes| writes.iter().filter(|write| *write != ONCE_MORE).collect::<Vec<_>>());
    assert!(our_own.len() <= theirs.len(), "{our_own:?} for {theirs:?}");

    ours.stop();
    let go = plane.go_manager("go-3", &args);
    takes_over(&nodes, &go, &driven).await;
    assert_eq!(State::of(&nodes, &namespace).await, before, "the Go manager changed something");
    go.stop();
}
