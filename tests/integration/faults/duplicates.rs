//! Not one pod too many: answers that are lost, and an API server and an etcd that go away in the middle of it. So the control
//! plane is its own: other tests would not survive there. The lost answers use it first, which costs no further one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coxswain::manager::{Controller, Phase, supervise};
use coxswain_controllers::workloads::replicaset;
use coxswain_machinery::client::{Fault, FaultRule, Faults};
use coxswain_machinery::framework::Descriptor;
use http::{Method, StatusCode};
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    ControlPlane, Namespace, Options, by_depth, event_logger, faulty_clients, runtime_on, turn, until,
};

/// Each attempt that fails doubles the wait for the next one: where half of all requests do, a dozen of them is no wonder.
const LIMIT: Duration = Duration::from_mins(8);
/// What reconciles in flight get to finish.
const GRACE: Duration = Duration::from_secs(10);

static REPLICA_SETS: Descriptor = replicaset::DESCRIPTOR;

async fn replica_set(namespace: &Namespace, name: &str, replicas: usize) {
    let body = json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    });
    let _: ReplicaSet = namespace.create(body).await;
}

/// Tries again while the API server is away.
async fn scale(namespace: &Namespace, name: &str, replicas: usize) {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let api = namespace.api::<ReplicaSet>();
    let patched = async || {
        api.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(|error| error.to_string())
    };
    until("the scale is set", LIMIT, patched, Result::is_ok).await.expect("checked");
}

/// Waits until each ReplicaSet says that all of its pods are available and that nothing failed, and the pods are those.
async fn settled(namespace: &Namespace, wanted: &BTreeMap<String, usize>) {
    let observe = async || -> Option<BTreeMap<String, usize>> {
        let sets = namespace.api::<ReplicaSet>().list(&kube::api::ListParams::default()).await.ok()?;
        let settled = sets.items.iter().filter(|set| {
            let status = set.status.clone().unwrap_or_default();
            let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
            status.observed_generation == set.metadata.generation
                && Some(status.replicas) == wanted
                && status.available_replicas.unwrap_or(0) == status.replicas
                && status.conditions.unwrap_or_default().is_empty()
        });
        Some(
            settled
                .map(|set| {
                    (
                        set.metadata.name.clone().unwrap_or_default(),
                        set.status.as_ref().map_or(0, |status| status.replicas as usize),
                    )
                })
                .collect(),
        )
    };
    until("all pods available", LIMIT, observe, |seen| seen.as_ref() == Some(wanted)).await;
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for pod in namespace.pods().await.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        *pods.entry(pod.metadata.labels.unwrap_or_default()["app"].clone()).or_default() += 1;
    }
    assert_eq!(pods, *wanted);
}

/// Pods that Coxswain has made, and names of those that it has deleted.
fn made_and_deleted(plane: &ControlPlane, namespace: &Namespace) -> (usize, BTreeSet<String>) {
    let all = plane.audit();
    let made = all.iter().filter(|entry| entry.is_done_by_us("create", "pods", &namespace.name)).count();
    let deleted = all.into_iter().filter(|entry| entry.is_done_by_us("delete", "pods", &namespace.name));
    (made, deleted.map(|entry| entry.object_ref.name).collect())
}

fn suffer(faults: &Faults) {
    let post = |fault, probability| {
        FaultRule::new(fault).method(Method::POST).path("*/pods").probability(probability)
    };
    let refused = |code, reason| Fault::Status { code, reason, retry_after: Some(1) };
    faults.add(post(Fault::LoseAnswer, 0.2));
    faults.add(post(Fault::Cut { after: 20 }, 0.1));
    faults.add(post(Fault::Drop, 0.1));
    faults.add(post(Fault::Stall, 0.02));
    faults.add(post(refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"), 0.05));
    faults.add(post(refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"), 0.05));
    let deletes = FaultRule::new(Fault::LoseAnswer).method(Method::DELETE).path("*/pods/*");
    faults.add(deletes.probability(0.2));
    let status = FaultRule::new(Fault::LoseAnswer).method(Method::PUT).path("*/status");
    faults.add(status.probability(0.2));
    let conflict = FaultRule::new(refused(StatusCode::CONFLICT, "Conflict")).method(Method::PUT);
    faults.add(conflict.probability(0.1));
    faults.add(FaultRule::new(Fault::Cut { after: 3000 }).watch(true).probability(0.5));
}

/// The ReplicaSet controller in this process, with faults on everything that it does.
async fn lost_answers(plane: &ControlPlane) {
    let namespace = plane.cluster().await.namespace("lost").await;
    namespace.default_account().await;
    let faults = Faults::new(3);
    suffer(&faults);
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &faults).await;
    let runtime = Arc::new(runtime_on(clients));
    let controller = Arc::new(Controller::new(&REPLICA_SETS, Phase::Standby, true, event_logger()));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(supervise(Arc::clone(&controller), Arc::clone(&runtime), Some(GRACE), stop.clone()));
    controller.wish(|wish| wish.lead = true);

    let mut wanted = BTreeMap::new();
    for at in 0..5 {
        let name = format!("set-{at}");
        replica_set(&namespace, &name, 20).await;
        wanted.insert(name, 20);
    }
    settled(&namespace, &wanted).await;
    assert_eq!(made_and_deleted(plane, &namespace), (100, BTreeSet::new()));

    for (at, (name, replicas)) in wanted.iter_mut().enumerate() {
        *replicas = if at % 2 == 0 { 30 } else { 5 };
        scale(&namespace, name, *replicas).await;
    }
    settled(&namespace, &wanted).await;
    let (made, deleted) = made_and_deleted(plane, &namespace);
    assert_eq!((made, deleted.len()), (130, 30));
    assert!(faults.hits() > 50, "only {} faults", faults.hits());
    assert_eq!(controller.phase(), Phase::Running);
    stop.cancel();
    tasks.join_all().await;
    runtime.events.shutdown(Duration::ZERO).await;
}

/// The whole manager, while what it stands on is restarted.
async fn restarts(plane: &Arc<ControlPlane>) {
    let namespace = plane.cluster().await.namespace("restarts").await;
    // Longer than a restart takes: losing the Lease would end it, as it should.
    let coxswain = plane.coxswain(
        "coxswain",
        &[
            "--leader-elect-lease-duration=90s",
            "--leader-elect-renew-deadline=60s",
            "--kube-api-qps=200",
            "--kube-api-burst=300",
        ],
    );
    let operate = async |operations: &'static [(&'static str, &'static str)]| {
        let plane = Arc::clone(plane);
        let all = move || operations.iter().for_each(|(operation, name)| plane.operate(operation, name));
        tokio::task::spawn_blocking(all).await.expect("done");
    };
    let mut wanted = BTreeMap::new();
    for at in 0..20 {
        let name = format!("set-{at}");
        replica_set(&namespace, &name, 10).await;
        wanted.insert(name, 10);
    }
    operate(&[("restart", "kube-apiserver"), ("restart", "etcd")]).await;
    settled(&namespace, &wanted).await;
    for (name, replicas) in &mut wanted {
        *replicas = 15;
        scale(&namespace, name, 15).await;
    }
    operate(&[("kill", "etcd"), ("start", "etcd"), ("kill", "kube-apiserver"), ("start", "kube-apiserver")])
        .await;
    settled(&namespace, &wanted).await;
    let (made, deleted) = made_and_deleted(plane, &namespace);
    assert_eq!(deleted, BTreeSet::new(), "a pod that had to go was one too many");
    // The killed API server may have made some without a word in its log.
    assert!((290..=300).contains(&made), "{made} pods were made");
    assert_eq!(coxswain.exit(), "", "{}", coxswain.log());
    coxswain.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_made_twice() {
    // The simulation shows as much in `make test`: see CONTRIBUTING.md.
    if !by_depth(false, true) {
        return;
    }
    let _turn = turn().await;
    let plane = Arc::new(ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] }));
    lost_answers(&plane).await;
    restarts(&plane).await;
}
