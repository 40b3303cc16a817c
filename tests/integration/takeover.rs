//! Taking over from the Go manager and handing back: nothing changes that the Go manager alone would not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Manager, Namespace, Options, until};

mod jobs;

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
const KINDS: [&str; 5] = ["pods", "replicasets", "deployments", "daemonsets", "controllerrevisions"];

/// What must not change: which pods, replica sets and revisions there are, and everything about them, the deployments and the
/// daemon sets but what the API server itself counts on.
#[derive(Debug, PartialEq)]
struct State {
    pods: BTreeSet<String>,
    replica_sets: BTreeMap<String, Value>,
    deployments: BTreeMap<String, Value>,
    daemon_sets: BTreeMap<String, Value>,
    revisions: BTreeMap<String, Value>,
}

impl State {
    async fn of(namespace: &Namespace) -> Self {
        let pods = namespace.pods().await;
        let list = ListParams::default();
        let sets = namespace.api::<ReplicaSet>().list(&list).await.expect("replica sets");
        let deployments = namespace.api::<Deployment>().list(&list).await.expect("deployments");
        let daemon_sets = namespace.api::<DaemonSet>().list(&list).await.expect("daemon sets");
        let revisions = namespace.api::<ControllerRevision>().list(&list).await.expect("revisions");
        Self {
            pods: pods.iter().filter_map(|pod: &Pod| pod.metadata.uid.clone()).collect(),
            replica_sets: sets.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            deployments: deployments.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            daemon_sets: daemon_sets.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
            revisions: revisions.items.iter().map(|each| named(serde_json::to_value(each))).collect(),
        }
    }
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

fn writes(plane: &ControlPlane, from: u64, user_agent: &str) -> Vec<String> {
    writes_of(plane, from, user_agent, &KINDS)
}

/// Everything that somebody wrote about these kinds, by the audit log from byte `from` on.
fn writes_of(plane: &ControlPlane, from: u64, user_agent: &str, kinds: &[&str]) -> Vec<String> {
    let text = fs::read(&plane.report.audit_log).expect("the audit log");
    let text = String::from_utf8_lossy(&text[from as usize..]).into_owned();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| {
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            field("userAgent").starts_with(user_agent)
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
                || text.contains("\"started\" controller=\"deployment-controller\""))
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
    let written = writes(&plane, end, "coxswain/");
    assert_eq!(written, retried_creates(&written), "Coxswain wrote when it took over");
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile: a rollout of one of them, and the retries of those that are stuck.
    namespace.set_image("web-2", "nginx:3").await;
    quiet(&namespace).await;
    let rolled = State::of(&namespace).await;
    assert_eq!(rolled.replica_sets.len(), before.replica_sets.len() + 1);

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, "kube-controller-manager/");
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
    let written = writes(&plane, end, "coxswain/");
    assert_eq!(written, retried_creates(&written), "Coxswain wrote when it took over");
    assert_eq!(State::of(&namespace).await, before, "Coxswain changed something");

    // It does its work meanwhile: one is rolled out, and one that the original has rolled is rolled back.
    for (at, image) in [(0, "agent:3"), (1, "agent:1")] {
        set_agent(&namespace, at, json!({ "containers": [{ "name": "c", "image": image }] })).await;
    }
    quiet(&namespace).await;
    let rolled = State::of(&namespace).await;
    assert_eq!(rolled.revisions.len(), before.revisions.len() + 1);

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    quiet(&namespace).await;
    let written = writes(&plane, end, "kube-controller-manager/");
    assert_eq!(written, retried_creates(&written), "the Go manager wrote when it got it back");
    assert_eq!(State::of(&namespace).await, rolled, "the Go manager changed something");
}
