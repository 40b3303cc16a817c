//! A cluster with all kinds of objects in many states, handed from the Go manager to a second one, to Coxswain and back to a
//! third: nothing is created, deleted or rewritten that the second Go manager did not when it took over.
//!
//! Everything that the API has is compared by UID and resource version, custom resources included. What is written for
//! nothing (a delete that is refused, a create over quota) must have been written by the second Go manager too. Each of them
//! is watched until it has counted all quotas anew, which it does every ten seconds, and has nothing left to do. Before the
//! second and before Coxswain takes over, while nobody leads, the same things are changed ([`leaderless`]): Coxswain makes
//! of them what the Go manager made of them, with no more writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    Activity, AuditEvent, Caller, ControlPlane, Manager, Options, Program, all_built, built, by_depth, turn,
    until,
};

mod leaderless;

use leaderless::{Leaderless, beyond};

const LIMIT: Duration = Duration::from_mins(3);
const POPULATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/handover.yaml");
/// Leadership is to move without a long wait.
const ARGS: [&str; 6] = [
    "--resource-quota-sync-period=10s",
    // Nodes that nobody plays are not lost by that.
    "--node-monitor-grace-period=1h",
    "--node-startup-grace-period=1h",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
/// How long after a write it is still expected to be heard of and answered with another.
const CALM: Duration = Duration::from_secs(2);
/// How often a cluster is looked at that is to settle.
const LOOKS: usize = 4;
/// How many quotas were to be counted anew.
const COUNTED: &str = "workqueue_adds_total{name=\"resourcequota_primary\"}";
/// Nodes that nobody plays stay as they are.
const PLANE: [&str; 4] = [
    "--audit",
    "--kwok-arg=manage-all-nodes=false",
    "--kwok-arg=manage-nodes-with-label-selector=type=kwok",
    "--apiserver-arg=service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
];
/// What changes by itself, or because somebody looks.
const RESTLESS: [&str; 4] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "nodes"];

/// Every object.
type State = BTreeMap<String, Value>;

/// Everything that can be listed, as of now.
fn everything(plane: &ControlPlane) -> State {
    let names = plane.kubectl(&["api-resources", "--verbs=list,delete", "-o", "name"]);
    let wanted: Vec<&str> = names.lines().filter(|name| !RESTLESS.contains(name)).collect();
    let text = plane.kubectl(&["get", &wanted.join(","), "-A", "-o", "json"]);
    let list: Value = serde_json::from_str(&text).expect("a list");
    list["items"].as_array().expect("items").iter().map(named).collect()
}

fn named(object: &Value) -> (String, Value) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    (name, object.clone())
}

/// What no two writes and no two objects have in common.
fn version(object: Option<&Value>) -> Option<(&Value, &Value)> {
    object.map(|object| (&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]))
}

/// What differs between two states.
fn changes(before: &State, after: &State) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| version(before.get(*name)) != version(after.get(*name)));
    let text = |object: Option<&Value>| object.map_or_else(|| "nothing".to_owned(), Value::to_string);
    changed.map(|name| format!("{name}: {} -> {}", text(before.get(name)), text(after.get(name)))).collect()
}

/// A state without changes of hints. The Go manager may look at Services before it has seen the nodes: it takes the hints off, and
/// gives them anew a moment later.
fn but_for_hints(mut state: State, before: &State) -> State {
    let is_slice = |name: &str| name.starts_with("EndpointSlice ");
    for (name, object) in state.iter_mut().filter(|(name, _)| is_slice(name)) {
        if let Some(old) = before.get(name)
            && without_hints(old) == without_hints(object)
        {
            object.clone_from(old);
        }
    }
    state
}

fn without_hints(slice: &Value) -> Value {
    let mut slice = slice.clone();
    let metadata = slice["metadata"].as_object_mut().expect("metadata");
    // The time of the last change of a pod is not that of the new hints, and goes with them.
    for field in ["annotations", "generation", "managedFields", "resourceVersion"] {
        metadata.remove(field);
    }
    let endpoints = slice["endpoints"].as_array_mut().into_iter().flatten();
    endpoints.filter_map(Value::as_object_mut).for_each(|endpoint| drop(endpoint.remove("hints")));
    slice
}

/// Waits until a manager has nothing left to do to the population, and nobody has written to it for a moment.
async fn quiet(plane: &ControlPlane, manager: &Manager<'_>) {
    let activity = Activity::follow(plane, manager).await;
    let concerns = |place: &str| place.starts_with("handover");
    assert!(activity.quiet(concerns, Instant::now(), CALM, LIMIT).await, "the cluster is not quiet");
}

/// Watches a manager until it has counted all of this many quotas anew, some of them twice, and has nothing left to do.
async fn watch(plane: &ControlPlane, manager: &Manager<'_>, quotas: usize) {
    let counted = async || manager.page(Caller::Admin, "/metrics").await.metric(COUNTED).unwrap_or_default();
    // The first round may have begun.
    let rounds = 1 + by_depth(1, 6);
    let enough = counted().await + (rounds * quotas) as f64;
    until("all quotas to be counted anew", LIMIT, counted, |now| *now >= enough).await;
    quiet(plane, manager).await;
}

fn quotas(state: &State) -> usize {
    state.keys().filter(|name| name.starts_with("ResourceQuota ")).count()
}

/// Everything once nothing changes any more while a manager counts all quotas anew.
async fn settled_state(plane: &ControlPlane, manager: &Manager<'_>) -> State {
    let mut before = everything(plane);
    let mut restless = Vec::new();
    for _ in 0..LOOKS {
        assert!(quotas(&before) > 0, "there are quotas");
        assert!(before.len() > 80, "only {} objects", before.len());
        watch(plane, manager, quotas(&before)).await;
        let now = everything(plane);
        restless = changes(&before, &now);
        if restless.is_empty() {
            return now;
        }
        before = now;
    }
    panic!("the cluster does not settle: {restless:?}");
}

/// What was written since the `from`th request. Leases, events and reviews are nobody's objects.
fn written(plane: &ControlPlane, program: Program, from: usize) -> Vec<AuditEvent> {
    let is_kept = |event: &AuditEvent| {
        let resource = event.object_ref.resource.as_str();
        event.is_from(program)
            && event.is_write()
            && !matches!(resource, "leases" | "events" | "tokenreviews" | "subjectaccessreviews")
            && event.object_ref.subresource != "token"
    };
    plane.audit().into_iter().skip(from).filter(is_kept).collect()
}

/// These requests by verb, path and answer.
fn lines<'a>(requests: impl Iterator<Item = &'a AuditEvent>) -> BTreeSet<String> {
    let path = |event: &AuditEvent| event.uri.split('?').next().unwrap_or_default().to_owned();
    requests.map(|event| format!("{} {} ({})", event.verb, path(event), event.response_status.code)).collect()
}

/// Applies the population and brings it into the states that no file can describe.
async fn populate(plane: &ControlPlane) {
    let apply = || async {
        // Custom resources and service accounts come a moment after what they need.
        plane.try_kubectl(&["apply", "--server-side", "-f", POPULATION]).status.success()
    };
    until("the population", LIMIT, apply, |done| *done).await;
    let uid = |what: &str, name: &str| {
        plane.kubectl(&["-n", "handover", "get", what, name, "-o", "jsonpath={.metadata.uid}"])
    };
    // A chain of owners through a custom resource, and a fan below it.
    object(plane, "v1", "ConfigMap", "root", &[], &[]);
    let root = uid("configmap", "root");
    object(
        plane,
        "handover.example.com/v1",
        "Widget",
        "middle",
        &[owner("v1", "ConfigMap", "root", &root)],
        &[],
    );
    let middle = uid("widget", "middle");
    for name in ["leaf-1", "leaf-2"] {
        object(
            plane,
            "v1",
            "Secret",
            name,
            &[owner("handover.example.com/v1", "Widget", "middle", &middle)],
            &[],
        );
    }
    // Owners that go in the foreground, or leave their dependents behind, and can't: somebody holds on to something.
    object(plane, "v1", "ConfigMap", "leaving", &[], &[]);
    let leaving = uid("configmap", "leaving");
    object(
        plane,
        "v1",
        "ConfigMap",
        "stays",
        &[owner("v1", "ConfigMap", "leaving", &leaving)],
        &["example.com/held"],
    );
    object(plane, "v1", "ConfigMap", "letting-go", &[], &["example.com/held"]);
    plane.kubectl(&[
        "-n",
        "handover",
        "delete",
        "configmap",
        "leaving",
        "--cascade=foreground",
        "--wait=false",
    ]);
    plane.kubectl(&[
        "-n",
        "handover",
        "delete",
        "configmap",
        "letting-go",
        "--cascade=orphan",
        "--wait=false",
    ]);
    // What pods served is left to whoever wants it, and is mirrored from now on.
    let name =
        || async { plane.kubectl(&["-n", "handover", "get", "endpoints", "--ignore-not-found", "let-go"]) };
    until("Endpoints of pods", LIMIT, name, |name| !name.is_empty()).await;
    let unselect = r#"[{ "op": "remove", "path": "/spec/selector" }]"#;
    plane.kubectl(&["-n", "handover", "patch", "service", "let-go", "--type=json", "-p", unselect]);
    plane.kubectl(&["delete", "namespace", "handover-ending", "--wait=false"]);
    begin_rollouts(plane);
    // The Go manager learns of new resources every 30 seconds; until then it says nothing of their number.
    let used = || async {
        plane.kubectl(&[
            "-n",
            "handover-quota",
            "get",
            "resourcequota",
            "all",
            "-o",
            "jsonpath={.status.used}",
        ])
    };
    until("custom resources to be counted", LIMIT, used, |used| used.contains("count/widgets")).await;
}

/// What is served and rolled: in mid-course, where it stays.
fn begin_rollouts(plane: &ControlPlane) {
    // A pod of both families serves a Service of both.
    let ready = r#"{ "status": {
        "phase": "Running", "podIP": "10.1.0.9", "podIPs": [{ "ip": "10.1.0.9" }, { "ip": "fd00:1::9" }],
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }]
    } }"#;
    plane.kubectl(&["-n", "handover", "patch", "pod", "twin", "--subresource=status", "-p", ready]);
    // A rollout is in mid-course, and stays there: nobody makes its new pods ready.
    let reached = "--for=jsonpath={.status.availableReplicas}=4";
    plane.kubectl(&["-n", "handover", "wait", "deployment/midway", reached, "--timeout=2m"]);
    let by_hand = r#"{ "spec": { "template": { "spec": { "nodeName": "by-hand" } } } }"#;
    plane.kubectl(&["-n", "handover", "patch", "deployment", "midway", "-p", by_hand]);
    let reached = "--for=jsonpath={.status.unavailableReplicas}=2";
    plane.kubectl(&["-n", "handover", "wait", "deployment/midway", reached, "--timeout=2m"]);
    // StatefulSets are in mid-rollout, broken there, and on their way out; pods of the DaemonSet stay as they are.
    for (name, field, number) in [
        ("statefulset/partitioned", "availableReplicas", 2),
        ("statefulset/held", "availableReplicas", 1),
        ("statefulset/broken", "availableReplicas", 3),
        ("daemonset/agents", "numberAvailable", 3),
    ] {
        let reached = format!("--for=jsonpath={{.status.{field}}}={number}");
        plane.kubectl(&["-n", "handover-sets", "wait", name, &reached, "--timeout=2m"]);
    }
    for args in [
        &["set", "image", "statefulset/partitioned", "c=nginx:2"][..],
        &["set", "image", "daemonset/agents", "c=nginx:2"],
        &["patch", "statefulset", "broken", "-p", by_hand],
        &["delete", "statefulset", "held", "--wait=false"],
    ] {
        plane.kubectl(&[&["-n", "handover-sets"][..], args].concat());
    }
    for reached in ["updatedReplicas}=1", "availableReplicas}=2"] {
        let reached = format!("--for=jsonpath={{.status.{reached}");
        plane.kubectl(&["-n", "handover-sets", "wait", "statefulset/broken", &reached, "--timeout=2m"]);
    }
    plane.kubectl(&["-n", "handover-jobs", "wait", "job/done", "--for=condition=Complete", "--timeout=2m"]);
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true,
    })
}

fn object(
    plane: &ControlPlane,
    api_version: &str,
    kind: &str,
    name: &str,
    owners: &[Value],
    finalizers: &[&str],
) {
    let body = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "handover", "ownerReferences": owners, "finalizers": finalizers,
        },
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body.to_string()).expect("its content");
    plane.kubectl(&["create", "-f", text(file.path())]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Waits until this manager has the Lease.
async fn leads(plane: &ControlPlane, before: &str) -> String {
    let holder = || async {
        plane.kubectl(&[
            "-n",
            "kube-system",
            "get",
            "lease",
            "kube-controller-manager",
            "--ignore-not-found",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
    };
    until("somebody else to lead", LIMIT, holder, |now| !now.is_empty() && now != before).await
}

#[tokio::test]
async fn everything_changes_hands_and_only_what_was_changed_changes() {
    // Both managers run the controllers that are built.
    let controllers = all_built();
    let args = [&[controllers.as_str()][..], &ARGS].concat();
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: PLANE.to_vec() });
    let go = plane.go_manager("go-1", &args);
    let first = leads(&plane, "").await;
    populate(&plane).await;
    let changed = [Leaderless::new(&plane, 1).await, Leaderless::new(&plane, 2).await];
    let is_changed = |event: &&AuditEvent| changed.iter().any(|each| each.concerns(event.place()));
    quiet(&plane, &go).await;

    // What a Go manager writes that takes over from another.
    let from = plane.audit().len();
    go.stop();
    changed[0].change();
    let go = plane.go_manager("go-2", &args);
    let second = leads(&plane, &first).await;
    changed[0].is_settled(&go).await;
    let before = settled_state(&plane, &go).await;
    let quotas = quotas(&before);
    let requests = written(&plane, Program::Go, from);
    let allowed = lines(requests.iter().filter(|event| !is_changed(event)));
    let measure = changed[0].written(requests.iter());
    assert!(beyond(&leaderless::Sorts::new(), &measure).len() > 10, "it did little: {measure:?}");

    let from = plane.audit().len();
    go.stop();
    changed[1].change();
    let ours = plane.coxswain("coxswain", &args);
    let third = leads(&plane, &second).await;
    running(&ours).await;
    changed[1].is_settled(&ours).await;
    watch(&plane, &ours, quotas).await;
    let after = everything(&plane);
    let mut touched = changes(&before, &after);
    touched.retain(|change| !changed[1].concerns(change));
    assert_eq!(touched, Vec::<String>::new(), "Coxswain changed something");
    let requests = written(&plane, Program::Coxswain, from);
    let unusual: Vec<_> =
        lines(requests.iter().filter(|event| !is_changed(event))).difference(&allowed).cloned().collect();
    assert_eq!(unusual, Vec::<String>::new(), "Coxswain wrote what the Go manager does not write");
    let more = beyond(&measure, &changed[1].written(requests.iter()));
    assert_eq!(more, Vec::<String>::new(), "Coxswain wrote more than the Go manager");
    assert_eq!(changed[1].inventory(&after), changed[0].inventory(&after), "Coxswain made something else");

    let from = plane.audit().len();
    ours.stop();
    let again = plane.go_manager("go-3", &args);
    leads(&plane, &third).await;
    watch(&plane, &again, quotas).await;
    let end = but_for_hints(everything(&plane), &after);
    assert_eq!(changes(&after, &end), Vec::<String>::new(), "the Go manager changed something");
    let requests = written(&plane, Program::Go, from);
    let unusual: Vec<_> =
        lines(requests.iter().filter(|event| !is_changed(event))).difference(&allowed).cloned().collect();
    assert_eq!(unusual, Vec::<String>::new(), "the Go manager wrote what it did not write before");
}

/// Waits until every controller of Coxswain runs.
async fn running(manager: &Manager<'_>) {
    let count = built().count();
    let log = || async { manager.log() };
    until("all controllers to run", LIMIT, log, |log| {
        let started = log.lines().filter(|line| line.contains("\"Controller started\" controller="));
        started.filter_map(|line| line.split("controller=").nth(1)).collect::<BTreeSet<_>>().len() >= count
    })
    .await;
}
