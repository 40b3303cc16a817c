//! How soon readiness reaches EndpointSlices, beside the Go manager: one Service with many endpoints, and many Services
//! with ten.
//!
//! Both managers, one after the other, find the same pods and slices and run nothing but the endpointslice controller, with
//! the same flags. Pods turn unready, and for the next manager ready again, at a steady rate. Printed are the times from
//! the API server's answer to such a change until a watch of the slices shows it, and how many slices were written.
//! `ENDPOINTS` (5000), `SERVICES` (500), `FLIPS` (300, in each part), `RATE` (20 a second) and `ROUNDS` (2) can be set.

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
mod settings;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use harness::{ControlPlane, Manager, Namespace, Options, until};
use settings::number;

const ARGS: [&str; 4] = [
    "--controllers=endpointslice-controller",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
    "--leader-elect=false",
];
/// Endpoints of each of the many Services.
const FEW: usize = 10;
/// Requests under way at the same time while the cluster is filled.
const PARALLEL: usize = 16;
const LIMIT: Duration = Duration::from_mins(20);
/// A manager that has written nothing for so long has settled.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
struct Sizes {
    endpoints: usize,
    services: usize,
    flips: usize,
    rate: usize,
    rounds: usize,
}

fn main() {
    let sizes = Sizes {
        endpoints: number("ENDPOINTS", 5000),
        services: number("SERVICES", 500),
        flips: number("FLIPS", 300),
        rate: number("RATE", 20),
        rounds: number("ROUNDS", 2),
    };
    assert!(sizes.flips <= sizes.endpoints.min(sizes.services * FEW), "a pod flips once in each part");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(compare(sizes));
}

/// One part under one manager, over all rounds.
#[derive(Clone, Default)]
struct Figures {
    latencies: Vec<Duration>,
    writes: usize,
}

impl Figures {
    fn quantile(&mut self, quantile: f64) -> f64 {
        self.latencies.sort_unstable();
        let at = ((self.latencies.len() as f64 * quantile) as usize).min(self.latencies.len() - 1);
        self.latencies[at].as_secs_f64() * 1e3
    }
}

async fn compare(sizes: Sizes) {
    let nodes = (sizes.endpoints + sizes.services * FEW) / 400 + 2;
    let plane = ControlPlane::start(&Options { nodes: nodes as u32, args: vec!["--audit"] });
    let cluster = plane.cluster().await;
    let big = Part::fill(cluster.namespace("big").await, nodes, 1, sizes.endpoints).await;
    let small = Part::fill(cluster.namespace("small").await, nodes, sizes.services, FEW).await;

    let mut figures: [[Figures; 2]; 2] = Default::default();
    for round in 0..sizes.rounds {
        for program in 0..2 {
            let name = format!("{}-{round}", ["go", "coxswain"][program]);
            let manager =
                if program == 0 { plane.go_manager(&name, &ARGS) } else { plane.coxswain(&name, &ARGS) };
            for (part, figures) in [&big, &small].into_iter().zip(&mut figures) {
                part.settled().await;
                let before = writes(&plane, part, &manager);
                // Unready under the one manager, ready again under the other.
                let latencies = part.flip(sizes, round, program == 1).await;
                part.settled().await;
                let mut now = Figures { latencies, writes: writes(&plane, part, &manager) - before };
                println!(
                    "{name}, {}: p50 {:.1} ms, p99 {:.1} ms, {} writes",
                    part.what,
                    now.quantile(0.5),
                    now.quantile(0.99),
                    now.writes
                );
                figures[program].latencies.append(&mut now.latencies);
                figures[program].writes += now.writes;
            }
            manager.stop();
        }
    }
    println!("\n{} flips each, {} a second", sizes.flips * sizes.rounds, sizes.rate);
    println!("| figure | Go | Coxswain | ratio |\n|---|---:|---:|---:|");
    for (part, [go, ours]) in [&big, &small].into_iter().zip(&mut figures) {
        row(&format!("{}: p50, ms", part.what), go.quantile(0.5), ours.quantile(0.5));
        row(&format!("{}: p99, ms", part.what), go.quantile(0.99), ours.quantile(0.99));
        row(&format!("{}: slices written", part.what), go.writes as f64, ours.writes as f64);
    }
}

fn row(what: &str, go: f64, ours: f64) {
    println!("| {what} | {go:.1} | {ours:.1} | {:.2} |", ours / go);
}

/// Slices that a manager has written in a namespace.
fn writes(plane: &ControlPlane, part: &Part, manager: &Manager<'_>) -> usize {
    let agent = if manager.name.starts_with("go") { "kube-controller-manager" } else { "coxswain" };
    let all = plane.audit().into_iter();
    all.filter(|event| {
        event.is_write()
            && event.user_agent.starts_with(agent)
            && event.object_ref.resource == "endpointslices"
            && event.object_ref.namespace == part.namespace.name
    })
    .count()
}

/// A namespace with Services of one size, and what a watch of its slices has shown.
struct Part {
    what: String,
    namespace: Namespace,
    pods: Vec<String>,
    seen: Arc<Mutex<Seen>>,
    _watch: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    ready: HashMap<String, bool>,
    last: Option<Instant>,
    /// Who waits for a pod to be shown like this.
    waiting: HashMap<String, (bool, oneshot::Sender<Instant>)>,
}

impl Seen {
    fn note(&mut self, slice: EndpointSlice) {
        let now = Instant::now();
        self.last = Some(now);
        for endpoint in slice.endpoints.unwrap_or_default() {
            let Some(pod) = endpoint.target_ref.and_then(|target| target.name) else { continue };
            let ready = endpoint.conditions.and_then(|conditions| conditions.ready).unwrap_or_default();
            if self.waiting.get(&pod).is_some_and(|(wanted, _)| *wanted == ready)
                && let Some((_, told)) = self.waiting.remove(&pod)
            {
                // Whoever has given up does not want to know.
                let _ = told.send(now);
            }
            self.ready.insert(pod, ready);
        }
    }
}

impl Part {
    /// Makes `services` Services with as many `endpoints` each, and waits until the pods run.
    async fn fill(namespace: Namespace, nodes: usize, services: usize, endpoints: usize) -> Self {
        println!("filling the cluster: {services} Services with {endpoints} pods");
        let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "default" } })).await;
        let pods: Vec<(usize, String)> = (0..services)
            .flat_map(|service| (0..endpoints).map(move |at| (service, format!("pod-{service}-{at}"))))
            .collect();
        for service in 0..services {
            let name = format!("service-{service}");
            let spec = json!({ "selector": { "app": name }, "ports": [{ "port": 80 }] });
            let _: Service = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
        }
        stream::iter(pods.iter().enumerate())
            .for_each_concurrent(PARALLEL, |(at, (service, name))| {
                let body = json!({
                    "metadata": { "name": name, "labels": { "app": format!("service-{service}") } },
                    "spec": {
                        "nodeName": format!("node-{}", at % nodes),
                        "automountServiceAccountToken": false,
                        "containers": [{ "name": "web", "image": "web:1" }],
                    },
                });
                let namespace = &namespace;
                async move {
                    let _: Pod = namespace.create(body).await;
                }
            })
            .await;
        let running = ListParams::default().fields("status.phase=Running");
        let count =
            async || namespace.api::<Pod>().list_metadata(&running).await.map_or(0, |list| list.items.len());
        until("all pods run", LIMIT, count, |count| *count == pods.len()).await;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut watch = JoinSet::new();
        watch.spawn(follow(namespace.api(), Arc::clone(&seen)));
        let what = format!("{services} × {endpoints} endpoints");
        Self { what, namespace, pods: pods.into_iter().map(|(_, name)| name).collect(), seen, _watch: watch }
    }

    /// Waits until all pods are in slices and nothing is written any more.
    async fn settled(&self) {
        let quiet = async || {
            let seen = self.seen.lock().expect("no panic");
            (seen.ready.len(), seen.last.is_some_and(|last| last.elapsed() >= QUIET))
        };
        until("the slices to settle", LIMIT, quiet, |(count, quiet)| *count == self.pods.len() && *quiet)
            .await;
    }

    /// Pods turn ready, or unready, at a steady rate; how long each takes to be shown.
    async fn flip(&self, sizes: Sizes, round: usize, ready: bool) -> Vec<Duration> {
        let interval = Duration::from_secs(1) / sizes.rate as u32;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for at in 0..sizes.flips {
            sleep_until(start + interval * at as u32).await;
            // Spread over all, other ones in every round.
            let pod = (at * self.pods.len() / sizes.flips + round) % self.pods.len();
            let (api, name, seen) = (self.namespace.api(), self.pods[pod].clone(), Arc::clone(&self.seen));
            tasks.spawn(flip(api, name, ready, seen));
        }
        tasks.join_all().await
    }
}

async fn flip(api: Api<Pod>, name: String, ready: bool, seen: Arc<Mutex<Seen>>) -> Duration {
    let (tell, told) = oneshot::channel();
    seen.lock().expect("no panic").waiting.insert(name.clone(), (ready, tell));
    let status = if ready { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
    api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await.expect("patched");
    let answered = Instant::now();
    let shown = tokio::time::timeout(LIMIT, told).await;
    let shown = shown.unwrap_or_else(|_| panic!("{name} is never shown")).expect("it is told");
    shown.saturating_duration_since(answered)
}

/// Keeps account of what the slices show, for as long as it is not aborted.
async fn follow(api: Api<EndpointSlice>, seen: Arc<Mutex<Seen>>) {
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else { continue };
        for slice in list.items {
            seen.lock().expect("no panic").note(slice);
        }
        let from = list.metadata.resource_version.unwrap_or_default();
        let Ok(events) = api.watch(&WatchParams::default().timeout(290), &from).await else { continue };
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(slice) | WatchEvent::Modified(slice) = event {
                seen.lock().expect("no panic").note(slice);
            }
        }
    }
}
