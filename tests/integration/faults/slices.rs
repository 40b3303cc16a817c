//! Slices under faults: whatever happens to watches, requests and the manager itself, they end up showing the pods, each
//! once, in as many slices as without faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coxswain::client::{Fault, FaultRule, Faults};
use coxswain::controllers::endpointslice;
use coxswain::framework::Descriptor;
use coxswain::informer::{InformersConfig, WatchTiming};
use coxswain::manager::{Controller, Phase, supervise};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    ControlPlane, Manager, Namespace, Options, chronicle, faulty_clients, runtime, turn, until,
};

const LIMIT: Duration = Duration::from_mins(3);
const GRACE: Duration = Duration::from_secs(10);
/// Endpoints in one slice, so that few pods need several.
const MAX: &str = "--max-endpoints-per-slice=5";
const ALONE: &str = "--controllers=endpointslice-controller";
/// A manager that was killed does not release its Lease.
const NO_ELECTION: &str = "--leader-elect=false";
const SERVICES: usize = 8;
const PODS: usize = 12;

static ENDPOINT_SLICES: Descriptor = endpointslice::DESCRIPTOR;

fn service_name(at: usize) -> String {
    format!("service-{at}")
}

async fn create_services(namespace: &Namespace) {
    for at in 0..SERVICES {
        let name = service_name(at);
        let spec = json!({ "selector": { "app": name }, "ports": [{ "port": 80 }] });
        let _: Service = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
}

async fn create_pod(namespace: &Namespace, service: usize, name: &str) {
    let _: Pod = namespace
        .create(json!({
            "metadata": { "name": name, "labels": { "app": service_name(service) } },
            "spec": { "nodeName": "node-0", "containers": [{ "name": "web", "image": "nginx" }] },
        }))
        .await;
}

async fn create_pods(namespace: &Namespace) {
    for at in 0..PODS {
        for service in 0..SERVICES {
            create_pod(namespace, service, &format!("pod-{service}-{at}")).await;
        }
    }
}

async fn unready(namespace: &Namespace, name: &str) {
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let patch = Patch::Strategic(status);
    namespace.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}

/// What one sees of a service: its pods with their readiness, of which none may be there twice.
type Shown = BTreeMap<String, Vec<bool>>;

/// What the slices show, by service, and how many they are.
async fn shown(namespace: &Namespace) -> BTreeMap<String, (Shown, usize)> {
    let list = namespace.api::<EndpointSlice>().list(&ListParams::default()).await.expect("slices");
    let mut services: BTreeMap<String, (Shown, usize)> = BTreeMap::new();
    for slice in list.items {
        let name = slice.metadata.labels.unwrap_or_default()["kubernetes.io/service-name"].clone();
        let (shown, count) = services.entry(name).or_default();
        *count += 1;
        for endpoint in slice.endpoints.unwrap_or_default() {
            let pod = endpoint.target_ref.and_then(|target| target.name).unwrap_or_default();
            let is_ready = endpoint.conditions.and_then(|conditions| conditions.ready).unwrap_or_default();
            shown.entry(pod).or_default().push(is_ready);
        }
    }
    services
}

/// What the pods are.
async fn pods(namespace: &Namespace) -> BTreeMap<String, Shown> {
    let mut services: BTreeMap<String, Shown> =
        (0..SERVICES).map(|at| (service_name(at), Shown::new())).collect();
    for pod in namespace.pods().await {
        let status = serde_json::to_value(pod.status).expect("JSON");
        if status["podIP"].is_null() || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let is_true = |each: &Value| each["type"] == "Ready" && each["status"] == "True";
        let is_ready = status["conditions"].as_array().is_some_and(|all| all.iter().any(is_true));
        let service = pod.metadata.labels.unwrap_or_default()["app"].clone();
        let shown = services.entry(service).or_default();
        shown.insert(pod.metadata.name.unwrap_or_default(), vec![is_ready]);
    }
    services
}

/// Waits until the slices show so many pods of each service as there are, each once; gives how many slices each has.
async fn settled(namespace: &Namespace, each: usize) -> Vec<usize> {
    let agree = async || {
        let (pods, slices) = (pods(namespace).await, shown(namespace).await);
        let seen: BTreeMap<String, Shown> =
            slices.iter().map(|(name, (shown, _))| (name.clone(), shown.clone())).collect();
        (pods.values().all(|pods| pods.len() == each) && pods == seen, slices)
    };
    let (_, slices) = until("slices show the pods", LIMIT, agree, |(agree, _)| *agree).await;
    slices.into_values().map(|(_, count)| count).collect()
}

/// Pods come, turn unready, and go.
async fn life(namespace: &Namespace) {
    create_services(namespace).await;
    create_pods(namespace).await;
    for service in 0..SERVICES {
        unready(namespace, &format!("pod-{service}-1")).await;
    }
    settled(namespace, PODS).await;
    for service in 0..SERVICES {
        for at in [2, 3] {
            let name = format!("pod-{service}-{at}");
            namespace.api::<Pod>().delete(&name, &DeleteParams::default()).await.expect("deleted");
        }
        create_pod(namespace, service, &format!("pod-{service}-new")).await;
        unready(namespace, &format!("pod-{service}-5")).await;
    }
}

fn suffer(faults: &Faults) {
    let refused = |code, reason| Fault::Status { code, reason, retry_after: Some(1) };
    let on = |fault, method, probability| {
        FaultRule::new(fault).method(method).path("*/endpointslices*").probability(probability)
    };
    faults.add(on(Fault::LoseAnswer, Method::POST, 0.25));
    faults.add(on(Fault::Drop, Method::POST, 0.1));
    faults.add(on(refused(StatusCode::FORBIDDEN, "Forbidden"), Method::POST, 0.1));
    faults.add(on(Fault::LoseAnswer, Method::PUT, 0.2));
    faults.add(on(refused(StatusCode::CONFLICT, "Conflict"), Method::PUT, 0.2));
    faults.add(on(refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"), Method::PUT, 0.1));
    faults.add(on(Fault::LoseAnswer, Method::DELETE, 0.3));
    faults.add(FaultRule::new(Fault::Cut { after: 1500 }).watch(true).probability(0.3));
    // Caches that hear nothing for seconds.
    faults.add(FaultRule::new(Fault::Freeze { after: 800 }).watch(true).probability(0.3));
}

/// The controller in this process, with faults on its requests and on its watches.
async fn faulty(plane: &ControlPlane) {
    let namespace = plane.cluster().await.namespace("suffering").await;
    let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "default" } })).await;
    let faults = Faults::new(5);
    suffer(&faults);
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &faults).await;
    let source = Arc::new(clients.root("shared-informers"));
    let timing = WatchTiming {
        seconds: 5..=6,
        margin: Duration::from_secs(1),
        initial: Duration::from_secs(3),
        pause: Duration::from_secs(1),
    };
    let config = InformersConfig { timing, ..InformersConfig::default() };
    let mut runtime = runtime(clients, source, config);
    runtime.config.flags.max_endpoints_per_slice = 5;
    let runtime = Arc::new(runtime);
    let controller = Arc::new(Controller::new(&ENDPOINT_SLICES, Phase::Standby, true, chronicle()));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(supervise(Arc::clone(&controller), Arc::clone(&runtime), GRACE, stop.clone()));
    controller.wish(|wish| wish.lead = true);

    life(&namespace).await;
    let slices = settled(&namespace, PODS - 1).await;
    // Twelve pods need three slices of five; who came and went may leave one more.
    assert!(slices.iter().all(|count| (3..=4).contains(count)), "{slices:?}");
    assert!(faults.hits() > 15, "only {} faults", faults.hits());
    faults.clear();
    let slices_later = settled(&namespace, PODS - 1).await;
    assert_eq!(slices, slices_later, "what faults left behind was put right before they ended");
    assert_eq!(controller.phase(), Phase::Running);
    stop.cancel();
    tasks.join_all().await;
    runtime.events.shutdown(Duration::ZERO).await;
}

fn start<'a>(plane: &'a ControlPlane, name: &str) -> Manager<'a> {
    plane.coxswain(name, &[ALONE, NO_ELECTION, MAX, "--kube-api-qps=20", "--kube-api-burst=5"])
}

/// Writes of slices that were answered.
fn writes(plane: &ControlPlane, namespace: &Namespace) -> usize {
    let all = plane.audit().into_iter();
    all.filter(|event| {
        event.is_write()
            && event.object_ref.namespace == namespace.name
            && event.object_ref.resource == "endpointslices"
    })
    .count()
}

/// The whole manager is killed between its writes, again and again.
async fn killed(plane: &ControlPlane) {
    let namespace = plane.cluster().await.namespace("killed").await;
    let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "default" } })).await;
    // Everything is there before it starts: it has many writes to make at once, and is slow about them.
    create_services(&namespace).await;
    create_pods(&namespace).await;
    let running = async || pods(&namespace).await;
    until("all pods run", LIMIT, running, |pods| pods.values().all(|pods| pods.len() == PODS)).await;
    let manager = start(plane, "killed");
    for at in 1..=4 {
        let count = async || writes(plane, &namespace);
        until(&format!("{at} writes and more"), LIMIT, count, |count| *count >= at * 4).await;
        manager.kill();
        manager.start_again();
    }
    let slices = settled(&namespace, PODS).await;
    assert_eq!(slices, [3; SERVICES], "as many as without being killed");
    manager.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_end_up_showing_the_pods() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    faulty(&plane).await;
    killed(&plane).await;
}
