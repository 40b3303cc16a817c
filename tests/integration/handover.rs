//! A cluster with all kinds of objects in many states, handed from the Go manager to Coxswain and back: nothing is created,
//! deleted or rewritten that the Go manager alone would not.
//!
//! Everything that the API has is compared by UID and resource version, custom resources included. What is written for
//! nothing (a delete that is refused, a create over quota) must be of the sort that the Go manager sent itself while it was
//! watched. Each of them is watched until it has counted all quotas anew, which it does every ten seconds, and has nothing
//! left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    Activity, Caller, ControlPlane, Manager, Options, all_built, binaries, built, by_depth, turn, until,
};

const LIMIT: Duration = Duration::from_mins(3);
const POPULATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/handover.yaml");
/// Leadership is to move without a long wait.
const ARGS: [&str; 4] = [
    "--resource-quota-sync-period=10s",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
/// How long after a write it is still expected to be heard of and answered with another.
const CALM: Duration = Duration::from_secs(2);
/// How many quotas were to be counted anew.
const COUNTED: &str = "workqueue_adds_total{name=\"resourcequota_primary\"}";
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

/// Waits until a manager has nothing left to do to the population, and nobody has written to it for a moment.
async fn quiet(plane: &ControlPlane, manager: &Manager<'_>) {
    let activity = Activity::follow(plane, manager).await;
    let concerns = |place: &str| place.starts_with("handover");
    assert!(activity.quiet(concerns, Instant::now(), CALM, LIMIT).await, "the cluster is not quiet");
}

/// Watches a manager until it has counted all of this many quotas anew, some of them twice, and has nothing left to do: what
/// it wrote, by verb and path.
async fn watched(
    plane: &ControlPlane,
    manager: &Manager<'_>,
    user_agent: &str,
    quotas: usize,
) -> BTreeSet<String> {
    let from = plane.audit().len();
    let counted = async || manager.page(Caller::Admin, "/metrics").await.metric(COUNTED).unwrap_or_default();
    // The first round may have begun.
    let rounds = 1 + by_depth(1, 6);
    let enough = counted().await + (rounds * quotas) as f64;
    until("all quotas to be counted anew", LIMIT, counted, |now| *now >= enough).await;
    quiet(plane, manager).await;
    written(plane, user_agent, from)
}

/// What was written since the `from`th request. Leases, events and reviews are nobody's objects.
fn written(plane: &ControlPlane, user_agent: &str, from: usize) -> BTreeSet<String> {
    let audit = plane.audit();
    let ours =
        audit[from..].iter().filter(|event| event.user_agent.starts_with(user_agent) && event.is_write());
    let kept = ours.filter(|event| {
        let resource = event.object_ref.resource.as_str();
        !matches!(resource, "leases" | "events" | "tokenreviews" | "subjectaccessreviews")
            && event.object_ref.subresource != "token"
    });
    kept.map(|event| format!("{} {} ({})", event.verb, event.uri, event.response_status.code)).collect()
}

/// Applies the population and brings it into the states that no file can describe.
async fn populate(plane: &ControlPlane) {
    let apply = || async {
        // Custom resources and service accounts come a moment after what they need.
        let done = Command::new(binaries().join("kubectl"))
            .args(["apply", "--server-side", "-f", POPULATION, "--kubeconfig"])
            .arg(&plane.report.kubeconfigs["admin"])
            .output()
            .expect("kubectl runs");
        done.status.success()
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
async fn everything_changes_hands_twice_and_nothing_changes() {
    // Both managers run the controllers that are built.
    let controllers = all_built();
    let args = [&[controllers.as_str()][..], &ARGS].concat();
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let go = plane.go_manager("go-1", &args);
    let first = leads(&plane, "").await;
    populate(&plane).await;
    quiet(&plane, &go).await;
    let before = everything(&plane);
    let quotas = before.keys().filter(|name| name.starts_with("ResourceQuota ")).count();
    assert!(quotas > 0, "there are quotas");
    assert!(before.len() > 80, "only {} objects", before.len());
    let usual = watched(&plane, &go, "kube-controller-manager/", quotas).await;
    assert_eq!(changes(&before, &everything(&plane)), Vec::<String>::new(), "the cluster is not quiet");

    let from = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain", &args);
    let second = leads(&plane, &first).await;
    running(&ours).await;
    watched(&plane, &ours, "coxswain/", quotas).await;
    assert_eq!(changes(&before, &everything(&plane)), Vec::<String>::new(), "Coxswain changed something");
    let unusual: Vec<_> = written(&plane, "coxswain/", from).difference(&usual).cloned().collect();
    assert_eq!(retries(&unusual), unusual, "Coxswain wrote what the Go manager does not write");

    let from = plane.audit().len();
    ours.stop();
    let again = plane.go_manager("go-2", &args);
    leads(&plane, &second).await;
    watched(&plane, &again, "kube-controller-manager/", quotas).await;
    assert_eq!(
        changes(&before, &everything(&plane)),
        Vec::<String>::new(),
        "the Go manager changed something"
    );
    let unusual: Vec<_> =
        written(&plane, "kube-controller-manager/", from).difference(&usual).cloned().collect();
    assert_eq!(retries(&unusual), unusual, "the Go manager wrote what it did not write before");
}

/// Waits until every controller of Coxswain runs.
async fn running(manager: &Manager<'_>) {
    let count = built().count();
    let log = || async { manager.log() };
    until("all controllers to run", LIMIT, log, |log| {
        let started = log.lines().filter(|line| line.contains("\"started\" controller="));
        started.filter_map(|line| line.split("controller=").nth(1)).collect::<BTreeSet<_>>().len() >= count
    })
    .await;
}

/// What is tried again and again and changes nothing: creates that are refused (over quota, in a namespace that ends), and
/// deletes of what somebody holds on to in a namespace that ends.
fn retries(written: &[String]) -> Vec<String> {
    let refused = |each: &&String| {
        each.starts_with("create ") && each.ends_with("(403)")
            || each.starts_with("deletecollection ") && each.contains("/namespaces/handover-ending/")
    };
    written.iter().filter(refused).cloned().collect()
}
