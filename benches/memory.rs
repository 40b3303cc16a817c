//! Memory and start-up beside the Go manager: the same cluster, the same flags, the same `--controllers`.
//!
//! Each manager is started afresh, in turns, in three states of the cluster: empty; with pods; with pods, ConfigMaps and
//! Secrets. Printed are resident memory once it has settled and what it is made of, CPU seconds until then, and what a
//! cached pod costs, with their ratios. `OBJECTS` (5000) says how many pods there are, and as many ConfigMaps and Secrets;
//! `ROUNDS` (2) how often each is measured. `docs/performance.md` says how to read it.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

#[path = "../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;
#[allow(dead_code, reason = "each benchmark samples what it needs")]
mod sampling;
#[allow(dead_code, reason = "each benchmark has settings of its own")]
mod settings;

use std::alloc::System;
use std::time::Duration;

use bytes::Bytes;
use cap::Cap;
use coxswain_machinery::api::kinds;
use coxswain_machinery::client::{ClientBuilder, ClientMetrics, ClientOptions, Connection, ListQuery};
use coxswain_machinery::informer::Store;
use coxswain_machinery::telemetry::Registry;
use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use serde_json::json;

use harness::{Caller, ControlPlane, Manager, Namespace, Options, until};
use sampling::{Resident, cpu_seconds, mib, resident, steady};
use settings::number;

/// Counts what the benchmark itself holds, so that cached pods can be weighed.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const CONTROLLERS: &str = "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller";
/// Each acts at once: a Lease that the one before did not release would be waited for.
const NO_ELECTION: &str = "--leader-elect=false";
/// Pods of one ReplicaSet.
const PODS_PER_SET: usize = 100;
/// Requests under way at the same time while the cluster is filled.
const PARALLEL: usize = 16;
/// A quarter of a minute, in which allocators give back what starting took.
const LEAST: Duration = Duration::from_secs(15);

#[derive(Clone, Copy)]
struct Figures {
    resident: Resident,
    cpu_seconds: f64,
    /// Bytes of live objects after a collection; Go says so of itself.
    live_heap: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Program {
    Go,
    Coxswain,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

async fn compare() {
    let (objects, rounds) = (number("OBJECTS", 5000), number("ROUNDS", 2));
    let nodes = (objects / 400 + 2) as u32;
    let plane = ControlPlane::start(&Options { nodes, args: Vec::new() });
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("load").await;

    let empty = rounds_of(&plane, rounds, "empty").await;
    println!("filling the cluster: {objects} pods");
    create_pods(&plane, &namespace, objects).await;
    let pods = rounds_of(&plane, rounds, "pods").await;
    println!("filling the cluster: {objects} ConfigMaps and as many Secrets");
    stream::iter(0..objects).for_each_concurrent(PARALLEL, |at| create_pair(&namespace, at)).await;
    let full = rounds_of(&plane, rounds, "full").await;
    let weighed = bytes_per_cached_pod(&plane).await;

    println!("\n| figure | Go | Coxswain | ratio |\n|---|---:|---:|---:|");
    let everything = format!("{objects} pods and {} others", 2 * objects);
    let pods_alone = format!("{objects} pods");
    for (state, figures) in [("empty cluster", &empty), (&*pods_alone, &pods), (&*everything, &full)] {
        let [go, ours] = figures.map(|figures| figures.resident);
        row(&format!("RSS, {state}, MiB"), mib(go.rss), mib(ours.rss));
        row("&nbsp; of it its own (RssAnon)", mib(go.anon), mib(ours.anon));
        row("&nbsp; of it the binary's pages (RssFile)", mib(go.file), mib(ours.file));
    }
    let above =
        |state: &[Figures; 2], at: usize| mib(state[at].resident.rss.saturating_sub(empty[at].resident.rss));
    row("RSS above the empty cluster's, MiB", above(&full, 0), above(&full, 1));
    let per_pod = |at: usize| above(&pods, at) * 1024.0 / objects as f64;
    row("RSS per pod, KiB", per_pod(0), per_pod(1));
    let live = |state: &[Figures; 2]| state[0].live_heap.expect("Go tells of its heap");
    row("live heap bytes per cached pod", (live(&pods) - live(&empty)) / objects as f64, weighed);
    row("CPU seconds from start to settled, full cluster", full[0].cpu_seconds, full[1].cpu_seconds);
}

fn row(what: &str, go: f64, ours: f64) {
    println!("| {what} | {go:.2} | {ours:.2} | {:.3} |", ours / go);
}

/// The least of some rounds, in turns so that both meet the same moods of the machine.
async fn rounds_of(plane: &ControlPlane, rounds: usize, state: &str) -> [Figures; 2] {
    let mut least: [Option<Figures>; 2] = [None, None];
    for round in 0..rounds {
        for (at, program) in [Program::Go, Program::Coxswain].into_iter().enumerate() {
            let new = measure(plane, program, &format!("{state}-{round}-{at}")).await;
            let best = least[at].get_or_insert(new);
            if new.resident.rss < best.resident.rss {
                best.resident = new.resident;
            }
            best.cpu_seconds = best.cpu_seconds.min(new.cpu_seconds);
            best.live_heap = best.live_heap.zip(new.live_heap).map(|(one, other)| one.min(other));
        }
    }
    least.map(|figures| figures.expect("at least one round"))
}

async fn measure(plane: &ControlPlane, program: Program, name: &str) -> Figures {
    let manager = match program {
        Program::Go => plane.go_manager(name, &[CONTROLLERS, NO_ELECTION]),
        Program::Coxswain => plane.coxswain(name, &[CONTROLLERS, NO_ELECTION]),
    };
    steady(manager.pid, LEAST).await;
    let mut figures =
        Figures { resident: resident(manager.pid), cpu_seconds: cpu_seconds(manager.pid), live_heap: None };
    if program == Program::Go {
        figures.live_heap = Some(live_heap(&manager).await);
    }
    let Resident { rss, anon, file } = figures.resident;
    println!(
        "{name}: {:.1} MiB ({:.1} its own, {:.1} the binary's), {:.2} CPU seconds",
        mib(rss),
        mib(anon),
        mib(file),
        figures.cpu_seconds
    );
    manager.stop();
    figures
}

/// What Go holds when it has just collected; read after everything else, for it changes the rest.
async fn live_heap(manager: &Manager<'_>) -> f64 {
    manager.page(Caller::Admin, "/debug/pprof/heap?gc=1").await;
    let metrics = manager.page(Caller::Admin, "/metrics").await;
    metrics.metric("go_memstats_heap_alloc_bytes").expect("Go's metrics")
}

/// Live heap bytes per pod in a store of ours, as requested of the allocator: its share of tables, indexes and pools of
/// shared strings included. The pods are those of the cluster, as the API server sends them.
async fn bytes_per_cached_pod(plane: &ControlPlane) -> f64 {
    let kubeconfig = &plane.report.kubeconfigs["admin"];
    let connection = Connection::load(Some(kubeconfig), None).await.expect("the kubeconfig");
    let metrics = ClientMetrics::register(&Registry::new()).expect("metrics");
    let clients = ClientBuilder::new(connection, ClientOptions::default(), metrics).await.expect("clients");
    let page = clients.root("benchmark").list(&kinds::PODS, &ListQuery::default()).await.expect("a list");
    let before = HEAP.allocated();
    let store = Store::new(&kinds::PODS);
    let decode = |bytes: &Bytes| (kinds::PODS.decode)(bytes).expect("a pod");
    store.replace(page.items.iter().map(decode).collect(), &page.resource_version);
    (HEAP.allocated() - before) as f64 / store.len() as f64
}

/// Pods of ReplicaSets, made by a Go manager without a rate limit.
async fn create_pods(plane: &ControlPlane, namespace: &Namespace, objects: usize) {
    let helper = plane.go_manager("filler", &["--kube-api-qps=1000", "--kube-api-burst=2000"]);
    for at in 0..objects.div_ceil(PODS_PER_SET) {
        let replicas = PODS_PER_SET.min(objects - at * PODS_PER_SET) as i32;
        namespace.deployment(&format!("web-{at}"), replicas, json!({})).await;
    }
    let running = || async {
        let pods = namespace.pods().await;
        pods.iter()
            .filter(|pod| {
                pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            })
            .count()
    };
    until("all pods run", Duration::from_mins(10), running, |count| *count == objects).await;
    helper.stop();
}

/// A ConfigMap and a Secret of a kilobyte each.
async fn create_pair(namespace: &Namespace, at: usize) {
    let text = "x".repeat(1024);
    let name = format!("object-{at}");
    let config_map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": text } }))
            .expect("a ConfigMap");
    namespace.api::<ConfigMap>().create(&PostParams::default(), &config_map).await.expect("created");
    let mut secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a Secret");
    secret.data = Some([("k".to_owned(), ByteString(text.into_bytes()))].into());
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await.expect("created");
}
