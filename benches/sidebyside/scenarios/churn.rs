//! How soon readiness reaches EndpointSlices: one Service with many endpoints, many Services with ten, and all pods of
//! two hundred Services as fast as the API server takes it.
//!
//! Both managers find the same pods and slices. Pods turn unready at a steady rate, and then ready again. A latency is the
//! time from the API server's answer to such a change until a watch of the slices shows it.
//!
//! What is measured is a manager at work: before it, unmeasured, one pod turns unready and ready again. Whatever a manager
//! does once, such as asking for the token of a controller's account, which one does when it starts and the other when it
//! first needs it, is done then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many, pod, running};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, never_more};
use coxswain_machinery::random::HashMap;

/// Slices have settled when none has changed for so long.
const QUIET: Duration = Duration::from_secs(3);
/// Slices written by the benchmark itself, and how long it lets pass between two.
const BARE: (usize, Duration) = (100, Duration::from_millis(50));
/// Percentiles that are told.
const PERCENTILES: [u8; 2] = [50, 99];

/// Services, and what happens to the readiness of their pods.
pub(super) struct Churn {
    services: usize,
    /// Of each Service.
    endpoints: usize,
    /// Pods that turn unready, and ready again.
    flips: usize,
    /// Of these a second.
    rate: u32,
    part: Option<Part>,
}

/// A namespace with Services of one size, and what a watch of its slices has shown.
struct Part {
    namespace: Namespace,
    pods: Vec<String>,
    seen: Arc<Mutex<EncodedEndpoint>>,
    _watch: JoinSet<()>,
}

#[derive(Default)]
struct EncodedEndpoint {
    ready: HashMap<String, bool>,
    last: Option<Instant>,
    /// Who waits for a pod to be shown like this.
    waiting: HashMap<String, (bool, oneshot::Sender<Instant>)>,
}

/// All sizes.
pub(super) fn all(bench: &Bench) -> Vec<Churn> {
    let of = |services: usize, endpoints: usize, flips: usize, rate| {
        let (services, flips) = (bench.scaled(services), bench.scaled(flips));
        // One Service stays one; it is its endpoints that are fewer then.
        let endpoints = if services == 1 && endpoints > 100 { bench.scaled(endpoints) } else { endpoints };
        Churn { services, endpoints, flips: flips.min(services * endpoints), rate, part: None }
    };
    vec![of(200, 10, 2000, 100), of(1, 5000, 150, 20), of(500, 10, 150, 20)]
}

impl Scenario for Churn {
    fn name(&self) -> String {
        format!("readiness, {} × {} endpoints", self.services, self.endpoints)
    }

    fn about(&self) -> String {
        let (services, endpoints, flips, rate) = (self.services, self.endpoints, self.flips, self.rate);
        format!(
            "Number of Services: {services}, with {endpoints} pods each. {flips} pods become unready and then ready again, {rate} \
             changes per second. --kube-api-qps is so high that it never delays a request."
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["endpointslice-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        let latencies = PERCENTILES.map(|each| (whole(What::Latency(each)), Target::Ratio(0.5)));
        // Wall time is what the rate makes it.
        latencies.into_iter().chain([never_more(What::Writes)]).collect()
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            let part = Part::fill(bench, self.services, self.endpoints).await;
            let mut bare = part.bare().await;
            bare.sort_unstable();
            let told = PERCENTILES.map(|each| format!("p{each} {:.1} ms", percentile(&bare, each)));
            bench.say(&format!("  a slice is shown, from its write, without a manager: {}", told.join(", ")));
            self.part = Some(part);
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let part = self.part.as_ref().expect("it is prepared");
            let role = format!("churn-{}-{}", self.services, self.endpoints);
            let manager = bench.manager(turn, &role, &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            part.settled().await;
            part.warm_up().await;
            calm(manager.pid).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            let mut latencies = part.flip(self, turn.round, false).await;
            latencies.extend(part.flip(self, turn.round, true).await);
            gauge.close("", Until::Calm, &mut figures).await;
            part.settled().await;
            latencies.sort_unstable();
            for each in PERCENTILES {
                let latency = percentile(&latencies, each);
                bench.say(&format!("  p{each}: {latency:.1} ms"));
                figures.add(whole(What::Latency(each)), latency);
            }
            figures
        }
        .boxed_local()
    }

    fn clear<'a>(&'a mut self, _bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move { self.part = None }.boxed_local()
    }
}

impl EncodedEndpoint {
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
    async fn fill(bench: &Bench, services: usize, endpoints: usize) -> Self {
        bench.say(&format!("  filling the cluster: {services} Services with {endpoints} pods each"));
        let namespace = bench.namespace("readiness").await;
        many(services, async |at| {
            let name = format!("service-{at}");
            let spec = json!({ "selector": { "app": name }, "ports": [{ "port": 80 }] });
            let _: Service = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
        })
        .await;
        let name_of = |at: usize| format!("pod-{}-{}", at / endpoints, at % endpoints);
        let pods: Vec<String> = (0..services * endpoints).map(name_of).collect();
        many(pods.len(), async |at| {
            let labels = json!({ "app": format!("service-{}", at / endpoints) });
            pod(&namespace, &pods[at], &format!("node-{}", at % bench.nodes), labels).await;
        })
        .await;
        running(&namespace, pods.len()).await;
        let seen: Arc<Mutex<EncodedEndpoint>> = Arc::default();
        let mut watch = JoinSet::new();
        watch.spawn(follow(namespace.api(), Arc::clone(&seen)));
        Self { namespace, pods, seen, _watch: watch }
    }

    /// Waits until all pods are in slices, ready, and nothing is written any more.
    async fn settled(&self) {
        let quiet = async || {
            let seen = self.seen.lock().expect("no panic");
            let ready = seen.ready.values().filter(|ready| **ready).count();
            (ready, seen.last.is_some_and(|last| last.elapsed() >= QUIET))
        };
        let all = self.pods.len();
        until("the slices to settle", LIMIT, quiet, |(ready, quiet)| *ready == all && *quiet).await;
    }

    /// How long writes of a slice take until a watch shows them, by the benchmark's own hand: what no manager's latency can
    /// be less than.
    async fn bare(&self) -> Vec<Duration> {
        let (count, pause) = BARE;
        let api = self.namespace.api::<EndpointSlice>();
        let body = json!({ "metadata": { "name": "bare" }, "addressType": "IPv4", "endpoints": [] });
        let made: EndpointSlice = self.namespace.create(body).await;
        let from = made.metadata.resource_version.expect("a version");
        let only = WatchParams::default().fields("metadata.name=bare");
        let mut events = std::pin::pin!(api.watch(&only, &from).await.expect("a watch"));
        let mut took = Vec::with_capacity(count);
        for at in 0..count {
            sleep(pause).await;
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "at": at.to_string() } } }));
            let (params, begun) = (PatchParams::default(), Instant::now());
            let shown = async {
                events.try_next().await.expect("an event").expect("no end");
                begun.elapsed()
            };
            let (patched, shown) = futures::join!(api.patch("bare", &params, &patch), shown);
            patched.expect("patched");
            took.push(shown);
        }
        api.delete("bare", &DeleteParams::default()).await.expect("deleted");
        took
    }

    /// One pod turns unready, and ready again, and all has settled.
    async fn warm_up(&self) {
        for ready in [false, true] {
            flip(self.namespace.api(), self.pods[0].clone(), ready, Arc::clone(&self.seen)).await;
        }
        self.settled().await;
    }

    /// Pods turn ready, or unready, at a steady rate; how long each takes to be shown.
    async fn flip(&self, churn: &Churn, round: usize, ready: bool) -> Vec<Duration> {
        let interval = Duration::from_secs(1) / churn.rate;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for at in 0..churn.flips {
            sleep_until(start + interval * at as u32).await;
            // Spread over all, other ones in every round.
            let pod = (at * self.pods.len() / churn.flips + round) % self.pods.len();
            let (api, name, seen) = (self.namespace.api(), self.pods[pod].clone(), Arc::clone(&self.seen));
            tasks.spawn(flip(api, name, ready, seen));
        }
        tasks.join_all().await
    }
}

/// In milliseconds, of durations in order.
fn percentile(sorted: &[Duration], percentile: u8) -> f64 {
    let at = sorted.len() * usize::from(percentile) / 100;
    sorted[at.min(sorted.len() - 1)].as_secs_f64() * 1e3
}

async fn flip(api: Api<Pod>, name: String, ready: bool, seen: Arc<Mutex<EncodedEndpoint>>) -> Duration {
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
async fn follow(api: Api<EndpointSlice>, seen: Arc<Mutex<EncodedEndpoint>>) {
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else {
            sleep(Duration::from_millis(200)).await;
            continue;
        };
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
