//! Taking over from the Go manager and handing back: nothing changes that the Go manager alone would not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Manager, Namespace, Options, Program, until};

mod bindings;
mod certificates;
mod cleaners;
mod devices;
mod identity;
mod jobs;
mod policies;
mod storage;
mod uncounted;

const LIMIT: Duration = Duration::from_mins(3);
/// Both managers run what Deployments and DaemonSets need and nothing else, so that what differs is ours.
const CONTROLLERS: &str = "--controllers=deployment-controller,replicaset-controller,daemonset-controller,\
    serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller";
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
const DEPLOYMENTS: usize = 30;
const DAEMON_SETS: usize = 10;
/// Of what writes are counted.
const KINDS: [&str; 6] =
    ["pods", "replicasets", "deployments", "daemonsets", "controllerrevisions", "poddisruptionbudgets"];

/// What must not change: which pods, replica sets and revisions there are, and everything about them, the deployments, the
/// daemon sets and the budgets but what the API server itself counts on.
#[derive(Debug, PartialEq)]
struct State {
    pods: BTreeSet<String>,
    replica_sets: BTreeMap<String, Value>,
    deployments: BTreeMap<String, Value>,
    daemon_sets: BTreeMap<String, Value>,
    revisions: BTreeMap<String, Value>,
    budgets: BTreeMap<String, Value>,
    /// The field managers of each Deployment, ReplicaSet and DaemonSet: `MANAGER OPERATION SUBRESOURCE`.
    field_managers: BTreeMap<String, BTreeSet<String>>,
}

impl State {
    async fn of(namespace: &Namespace) -> Self {
        let pods = namespace.pods().await;
        let list = ListParams::default();
        let sets = namespace.api::<ReplicaSet>().list(&list).await.expect("replica sets");
        let deployments = namespace.api::<Deployment>().list(&list).await.expect("deployments");
        let daemon_sets = namespace.api::<DaemonSet>().list(&list).await.expect("daemon sets");
        let revisions = namespace.api::<ControllerRevision>().list(&list).await.expect("revisions");
        let budgets = namespace.api::<PodDisruptionBudget>().list(&list).await.expect("budgets");
        let metadata = (sets.items.iter().map(|each| &each.metadata))
            .chain(deployments.items.iter().map(|each| &each.metadata))
            .chain(daemon_sets.items.iter().map(|each| &each.metadata));
        Self {
            field_managers: metadata.map(field_managers).collect(),
            pods: pods.iter().filter_map(|pod: &Pod| pod.metadata.uid.clone()).collect(),
            replica_sets: sets.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            deployments: deployments.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            daemon_sets: daemon_sets.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            revisions: revisions.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            budgets: budgets.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
        }
    }
}

fn field_managers(metadata: &ObjectMeta) -> (String, BTreeSet<String>) {
    let entries = metadata.managed_fields.iter().flatten().map(|entry| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{} {} {}", text(&entry.manager), text(&entry.operation), text(&entry.subresource))
    });
    // A random UID, because a Deployment and a DaemonSet may have the same name.
    (metadata.uid.clone().unwrap_or_default(), entries.collect())
}

/// Checks that the work of Coxswain has added no field manager to an object that both managers have written.
fn assert_same_field_managers(before: &State, worked: &State) {
    for (uid, managers) in &before.field_managers {
        let now = worked.field_managers.get(uid).unwrap_or(managers);
        assert_eq!(now, managers, "field managers of the object with the UID {uid}");
    }
    let names =
        |state: &State| -> BTreeSet<String> { state.field_managers.values().flatten().cloned().collect() };
    assert_eq!(names(worked), names(before), "field managers of new objects");
}

fn named(object: Result<Value, serde_json::Error>) -> (String, Value) {
    let mut object = object.expect("JSON");
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for volatile in ["managedFields", "resourceVersion"] {
        object["metadata"].as_object_mut().expect("metadata").remove(volatile);
    }
    (name, object)
}

/// Deployments in many states: settled, scaled, rolled twice, rolled back, paused in mid-rollout, stuck on a bad
/// template, recreated, without replicas, with a short history.
async fn populate(namespace: &Namespace) {
    for at in 0..DEPLOYMENTS {
        let name = format!("web-{at}");
        let spec = match at % 10 {
            5 => json!({ "strategy": { "type": "Recreate" } }),
            6 => json!({ "revisionHistoryLimit": 1 }),
            7 => json!({ "minReadySeconds": 2 }),
            8 => json!({ "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } }),
            9 => {
                json!({ "progressDeadlineSeconds": 2, "template": { "spec": { "serviceAccountName": "absent" } } })
            }
            _ => json!({}),
        };
        namespace.deployment(&name, (at % 5) as i32, spec).await;
    }
    quiet(namespace).await;
    for at in 0..DEPLOYMENTS {
        let name = format!("web-{at}");
        match at % 10 {
            1 | 5 | 6 => {
                namespace.set_image(&name, "nginx:2").await;
            }
            2 => {
                namespace.patch_deployment(&name, json!({ "spec": { "replicas": 7 } })).await;
            }
            3 => {
                // Nothing comes up with this account: the rollout stays half done, and is paused there.
                let broken =
                    json!({ "spec": { "template": { "spec": { "serviceAccountName": "absent" } } } });
                namespace.patch_deployment(&name, broken).await;
            }
            4 => {
                namespace.set_image(&name, "nginx:2").await;
                quiet(namespace).await;
                namespace.set_image(&name, "nginx:1").await;
            }
            _ => {}
        }
    }
    quiet(namespace).await;
    for at in (3..DEPLOYMENTS).step_by(10) {
        namespace.patch_deployment(&format!("web-{at}"), json!({ "spec": { "paused": true } })).await;
    }
    quiet(namespace).await;
}

/// DaemonSets in many states: settled, rolled twice, rolled back, with old pods that nobody deletes, stuck on a bad template
/// with and without surge, without history, with a generation by annotation, being deleted.
async fn populate_daemons(namespace: &Namespace) {
    for at in 0..DAEMON_SETS {
        let strategy = match at {
            3 => json!({ "type": "OnDelete" }),
            6 => json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }),
            _ => json!({ "rollingUpdate": { "maxUnavailable": 2 } }),
        };
        let generation =
            if at == 8 { json!({ "deprecated.daemonset.template.generation": "7" }) } else { json!({}) };
        let name = format!("agent-{at}");
        let _: DaemonSet = namespace
            .create(json!({
                "metadata": { "name": name, "annotations": generation },
                "spec": {
                    "updateStrategy": strategy,
                    "minReadySeconds": if at == 7 { 2 } else { 0 },
                    "revisionHistoryLimit": if at == 5 { 0 } else { 10 },
                    "selector": { "matchLabels": { "app": name } },
                    "template": {
                        "metadata": { "labels": { "app": name } },
                        "spec": { "containers": [{ "name": "c", "image": "agent:1" }] },
                    },
                },
            }))
            .await;
    }
    quiet(namespace).await;
    for image in ["agent:2", "agent:1"] {
        for at in [1, 2, 3, 5, 7, 8].into_iter().filter(|at| image == "agent:2" || *at == 2) {
            set_agent(namespace, at, json!({ "containers": [{ "name": "c", "image": image }] })).await;
        }
        quiet(namespace).await;
    }
    for at in [4, 6] {
        // No pod comes with this account: the rollout stays half done.
        set_agent(namespace, at, json!({ "serviceAccountName": "absent" })).await;
    }
    // Without garbage collection it goes on being deleted.
    let api = namespace.api::<DaemonSet>();
    api.delete("agent-9", &DeleteParams::orphan()).await.expect("the DaemonSet is deleted");
    quiet(namespace).await;
}

async fn set_agent(namespace: &Namespace, at: usize, spec: Value) {
    let patch = json!({ "spec": { "template": { "spec": spec } } });
    let name = format!("agent-{at}");
    let api = namespace.api::<DaemonSet>();
    api.patch(&name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .expect("the DaemonSet is changed");
}

/// Waits until two looks, some time apart, see the same.
async fn quiet(namespace: &Namespace) {
    let look = || async {
        let before = State::of(namespace).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (before == State::of(namespace).await).then_some(())
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await;
}

fn writes(plane: &ControlPlane, from: u64, program: Program) -> Vec<String> {
    writes_of(plane, from, program, &KINDS)
}

/// Everything that somebody wrote about these kinds, by the audit log from byte `from` on.
fn writes_of(plane: &ControlPlane, from: u64, program: Program, kinds: &[&str]) -> Vec<String> {
    let text = fs::read(&plane.report.audit_log).expect("the audit log");
    let text = String::from_utf8_lossy(&text[from as usize..]).into_owned();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| {
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            program.sent(&field("userAgent"))
                && field("stage") == "ResponseComplete"
                && ["create", "update", "patch", "delete"].contains(&field("verb").as_str())
                && kinds.contains(&resource)
        })
        .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
        .collect()
}

fn end_of_log(plane: &ControlPlane) -> u64 {
    fs::metadata(&plane.report.audit_log).expect("the audit log").len()
}

/// Waits until a manager reports that its controllers run.
async fn leads(manager: &Manager<'_>) {
    let log = || async { manager.log() };
    until(&format!("{} leads", manager.name), LIMIT, log, |text| {
        text.contains("deployment-controller")
            && (text.contains("Caches are synced")
                || text.contains("\"Controller started\" controller=\"deployment-controller\""))
    })
    .await;
}

#[tokio::test]
async fn thirty_deployments_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("handover").await;
    populate(&namespace).await;
    let before = State::of(&namespace).await;
    assert!(before.pods.len() > 40, "only {} pods", before.pods.len());

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, Program::Coxswain);
    assert_eq!(written, retried_creates(&written), "Coxswain wrote when it took over");
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile: a rollout of one of them, and the retries of those that are stuck.
    namespace.set_image("web-2", "nginx:3").await;
    quiet(&namespace).await;
    let rolled = State::of(&namespace).await;
    assert_eq!(rolled.replica_sets.len(), before.replica_sets.len() + 1);
    assert_same_field_managers(&before, &rolled);

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, Program::Go);
    assert_eq!(written, retried_creates(&written), "the Go manager wrote when it got it back");
    assert_eq!(State::of(&namespace).await, rolled, "the Go manager changed something");
}

/// Creates of pods that are refused over and over are the only writes that a quiet cluster sees.
fn retried_creates(written: &[String]) -> Vec<String> {
    written.iter().filter(|each| each.contains("create") && each.contains("/pods")).cloned().collect()
}

#[tokio::test]
async fn ten_daemon_sets_change_hands_twice_and_get_no_revision_by_it() {
    let plane = ControlPlane::start(&Options { nodes: 4, args: vec!["--audit"] });
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("daemons").await;
    populate_daemons(&namespace).await;
    let before = State::of(&namespace).await;
    assert!(before.pods.len() > 35, "only {} pods", before.pods.len());
    assert!(before.revisions.len() > 14, "only {} revisions", before.revisions.len());

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, Program::Coxswain);
    assert_eq!(written, retried_creates(&written), "Coxswain wrote when it took over");
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile: one is rolled out, and one that the original has rolled is rolled back.
    for (at, image) in [(0, "agent:3"), (1, "agent:1")] {
        set_agent(&namespace, at, json!({ "containers": [{ "name": "c", "image": image }] })).await;
    }
    quiet(&namespace).await;
    let rolled = State::of(&namespace).await;
    assert_eq!(rolled.revisions.len(), before.revisions.len() + 1);
    assert_same_field_managers(&before, &rolled);

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, Program::Go);
    assert_eq!(written, retried_creates(&written), "the Go manager wrote when it got it back");
    assert_eq!(State::of(&namespace).await, rolled, "the Go manager changed something");
}

/// Budgets in many states: numbers and percentages, of pods that go and come, with an eviction that was granted and not carried
/// out, over nothing, over everything, over a controller that is not there.
async fn populate_budgets(namespace: &Namespace) {
    for (name, replicas) in [("web", 4), ("api", 3), ("held", 3)] {
        let held = if name == "held" { json!(["example.com/hold"]) } else { json!([]) };
        let template = json!({ "template": { "metadata": { "finalizers": held } } });
        namespace.deployment(name, replicas, template).await;
    }
    let lone = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "none", "controller": true,
        "uid": "11111111-2222-3333-4444-555555555555" }]);
    for (name, owners) in [("lone", json!([])), ("lost", lone)] {
        let _: Pod = namespace
            .create(json!({
                "metadata": { "name": name, "labels": { "app": name }, "ownerReferences": owners },
                "spec": { "containers": [{ "name": "c", "image": "image:1" }] },
            }))
            .await;
    }
    let app = |app: &str| json!({ "matchLabels": { "app": app } });
    for (name, spec) in [
        ("number", json!({ "minAvailable": 2, "selector": app("web") })),
        ("percent", json!({ "minAvailable": "60%", "selector": app("api") })),
        ("unavailable", json!({ "maxUnavailable": 2, "selector": app("held") })),
        ("lone", json!({ "maxUnavailable": 1, "selector": app("lone") })),
        (STUCK, json!({ "maxUnavailable": "10%", "selector": app("lost") })),
        ("nothing", json!({ "minAvailable": 1 })),
        ("none", json!({ "minAvailable": 0, "selector": app("none") })),
    ] {
        let _: PodDisruptionBudget =
            namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
    quiet(namespace).await;
    // One goes and is held; one was to go, for longer than this test takes, and stays.
    evict(namespace, "held").await;
    let pods = namespace.pods().await;
    let is_of_web = |pod: &&Pod| pod.metadata.labels.as_ref().is_some_and(|labels| labels["app"] == "web");
    let stays = pods.iter().find(is_of_web).and_then(|pod| pod.metadata.name.clone()).expect("a pod");
    let entry = json!({ "status": { "disruptedPods": { stays: "2099-01-01T00:00:00Z" } } });
    let api = namespace.api::<PodDisruptionBudget>();
    let patched = api.patch_status("number", &PatchParams::default(), &Patch::Merge(entry)).await;
    patched.expect("an entry is made");
    quiet(namespace).await;
}

/// The budget that fails.
const STUCK: &str = "stuck";

/// Evicts a pod of `app=NAME`, as soon as that is allowed.
async fn evict(namespace: &Namespace, app: &str) {
    let api = namespace.api::<Pod>();
    let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await.expect("pods").items;
    let name = pods
        .iter()
        .find(|pod| pod.metadata.deletion_timestamp.is_none())
        .and_then(|pod| pod.metadata.name.clone())
        .expect("a pod");
    let asked = || async { api.evict(&name, &EvictParams::default()).await.is_ok() };
    until(&format!("{name} is evicted"), LIMIT, asked, |granted| *granted).await;
}

#[tokio::test]
async fn budgets_change_hands_twice_with_evictions_under_way() {
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let controllers = format!("{CONTROLLERS},disruption-controller");
    let args = [&[controllers.as_str()][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let namespace = plane.cluster().await.namespace("budgets").await;
    populate_budgets(&namespace).await;
    let before = State::of(&namespace).await;
    let of = |state: &State, name: &str, field: &str| state.budgets[name]["status"][field].clone();
    assert_eq!(of(&before, "number", "currentHealthy"), 3, "one of four is about to go");
    assert_eq!(of(&before, "number", "disruptedPods").as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(of(&before, "percent", "disruptionsAllowed"), 1);
    assert_eq!(of(&before, STUCK, "conditions")[0]["reason"], "SyncFailed");

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    quiet(&namespace).await;
    assert_eq!(
        writes(&plane, end, Program::Coxswain),
        Vec::<String>::new(),
        "Coxswain wrote when it took over"
    );
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile.
    evict(&namespace, "api").await;
    namespace.patch_deployment("web", json!({ "spec": { "replicas": 5 } })).await;
    quiet(&namespace).await;
    let worked = State::of(&namespace).await;
    assert_eq!(of(&worked, "number", "currentHealthy"), 4);
    assert_eq!(of(&worked, "percent", "disruptionsAllowed"), 1);

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, Program::Go);
    // The budget that fails is written each time, as it is.
    let others: Vec<&String> = written.iter().filter(|each| !each.contains(STUCK)).collect();
    assert_eq!(others, Vec::<&String>::new(), "the Go manager wrote when it got it back");
    assert_eq!(State::of(&namespace).await, worked, "the Go manager changed something");
}
