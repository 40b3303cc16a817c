//! Many nodes whose kubelets renew their Leases: at rest, and when a zone of them is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use futures::StreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, PARALLEL, count_of, many};
use crate::figures::{Figure, Figures, Target};
use crate::harness::{Namespace, object, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::{calm, mib, resident};
use crate::scenario::{Scenario, grown, lean};

const NODES: usize = 1000;
/// The last of them is lost.
const ZONES: usize = 5;
const PODS_OF_A_NODE: usize = 5;
/// How often a kubelet renews its Lease.
const PERIOD: Duration = Duration::from_secs(10);
/// The Leases of a period are renewed in so many parts.
const PARTS: usize = 100;
const RATE: &str = "--node-eviction-rate=5";
/// Not the default of 50 s, in which there is nothing to measure.
const GRACE: &str = "--node-monitor-grace-period=30s";
/// What the nodes and Leases of these scenarios are found by.
const OURS: &str = "bench=fleet";
const LEASES: &str = "kube-node-lease";
/// So many images does a kubelet tell of.
const IMAGES: usize = 50;

/// Nodes that nobody plays but this: their names, and how many of them are alive.
struct Kubelets {
    client: Client,
    names: Vec<String>,
    alive: Arc<AtomicUsize>,
    _renewing: JoinSet<()>,
}

impl Kubelets {
    /// Nodes that are ready, in zones of one size, one after the other.
    async fn join(bench: &Bench, turn: Turn, number: usize) -> Self {
        let client = bench.cluster.client.clone();
        let prefix = format!("fleet-{}-{}", turn.round, turn.program).to_lowercase();
        let names: Vec<String> = (0..number).map(|at| format!("{prefix}-{at}")).collect();
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
        many(number, async |at| {
            let name = &names[at];
            let lease: Lease = object(json!({
                "metadata": { "name": name, "labels": { "bench": "fleet" } },
                "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now() },
            }));
            leases.create(&PostParams::default(), &lease).await.expect("a Lease");
            let node: Node = object(json!({ "metadata": { "name": name, "labels": {
                "bench": "fleet", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "here",
                "topology.kubernetes.io/zone": format!("zone-{}", at * ZONES / number),
            } } }));
            nodes.create(&PostParams::default(), &node).await.expect("a node");
            let status = Patch::Merge(json!({ "status": status() }));
            nodes.patch_status(name, &PatchParams::default(), &status).await.expect("it is ready");
        })
        .await;
        let alive = Arc::new(AtomicUsize::new(number));
        let mut renewing = JoinSet::new();
        renewing.spawn(renew(leases, names.clone(), Arc::clone(&alive)));
        Self { client, names, alive, _renewing: renewing }
    }

    /// Waits until a manager has taken away what admission has tainted them with.
    async fn untainted(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let tainted = async || {
            sleep(Duration::from_millis(200)).await;
            let list = nodes.list(&ListParams::default().labels(OURS)).await.expect("a list").items;
            list.iter().filter(|node| has_taint(node, "NoSchedule")).count()
        };
        until("the last node to be untainted", LIMIT, tainted, |count| *count == 0).await;
    }

    /// They go, and their Leases.
    async fn leave(self) {
        let (params, which) = (DeleteParams::default(), ListParams::default().labels(OURS));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        drop(self);
        nodes.delete_collection(&params, &which).await.expect("the nodes go");
        leases.delete_collection(&params, &which).await.expect("their Leases go");
        until("the last node to go", LIMIT, || count_of(&nodes, &which), |count| *count == 0).await;
    }
}

/// What a kubelet says of its node, in about its size.
fn status() -> Value {
    let at = format!("{:.0}", SystemClock.now());
    let condition = |kind: &str, status: &str| {
        json!({ "type": kind, "status": status, "reason": "KubeletSays", "message": "as the kubelet says",
            "lastHeartbeatTime": at, "lastTransitionTime": at })
    };
    let images: Vec<Value> = (0..IMAGES)
        .map(|at| {
            let name = format!("registry.example.com/team/application-{at}");
            json!({ "names": [format!("{name}@sha256:{at:064}"), format!("{name}:v1.{at}")], "sizeBytes": 100_000_000 + at })
        })
        .collect();
    let resources = json!({ "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    json!({
        "conditions": [
            condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
            condition("PIDPressure", "False"), condition("Ready", "True"),
        ],
        "capacity": resources, "allocatable": resources, "images": images,
    })
}

/// Renews the Leases of those that are alive, each once a period, as evenly as kubelets do.
async fn renew(leases: Api<Lease>, names: Vec<String>, alive: Arc<AtomicUsize>) {
    let mut ticks = interval(PERIOD / PARTS as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut part = 0;
    loop {
        ticks.tick().await;
        let alive = alive.load(Ordering::Relaxed);
        let due = (0..alive).filter(|at| at % PARTS == part).map(|at| {
            let (leases, name) = (&leases, &names[at]);
            async move {
                let patch = Patch::Merge(json!({ "spec": { "renewTime": now() } }));
                // One that is deleted at the end is not missed.
                drop(leases.patch(name, &PatchParams::default(), &patch).await);
            }
        });
        futures::stream::iter(due).buffer_unordered(PARALLEL).for_each(|()| async {}).await;
        part = (part + 1) % PARTS;
    }
}

fn now() -> String {
    format!("{:.6}", SystemClock.now())
}

fn has_taint(node: &Node, effect: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.effect == effect))
}

pub(super) struct Fleet {
    nodes: usize,
    lasts: Duration,
}

impl Fleet {
    pub(super) fn of(bench: &Bench) -> Self {
        let lasts = Duration::from_mins(2).mul_f64(bench.settings.scale.clamp(0.25, 1.0));
        Self { nodes: bench.scaled(NODES), lasts }
    }
}

impl Scenario for Fleet {
    fn name(&self) -> String {
        "fleet".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} nodes renew their Leases every {} s, and nothing else happens, for {} s. This is the constant load of an idle \
             cluster. All controllers run.",
            self.nodes,
            PERIOD.as_secs(),
            self.lasts.as_secs()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &[]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([(grown(), Target::Ratio(0.125))]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let manager = bench.manager(turn, "fleet", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            let before = resident(manager.pid).rss;
            let kubelets = Kubelets::join(bench, turn, self.nodes).await;
            kubelets.untainted().await;
            // One period, in which everyone was heard.
            sleep(PERIOD).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            sleep(self.lasts).await;
            gauge.close("", Until::Now, &mut figures).await;
            figures.add(grown(), mib(resident(manager.pid).rss.saturating_sub(before)));
            bench.stop_all();
            kubelets.leave().await;
            figures
        }
        .boxed_local()
    }
}

pub(super) struct Zone {
    nodes: usize,
}

impl Zone {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { nodes: bench.scaled(NODES).max(ZONES) }
    }

    /// Those of the zone that is lost, by their places.
    fn lost(&self) -> std::ops::Range<usize> {
        let is_lost = |at: &usize| at * ZONES / self.nodes == ZONES - 1;
        let first = (0..self.nodes).find(is_lost).unwrap_or(0);
        first..self.nodes
    }
}

impl Scenario for Zone {
    fn name(&self) -> String {
        "zone".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} of {} nodes, all in one zone, stop renewing their Leases. Each has {PODS_OF_A_NODE} pods without tolerations. The nodes \
             are tainted ({RATE}), and the pods are marked and evicted. --kube-api-qps is so high that it never delays a request.",
            self.lost().len(),
            self.nodes
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["node-lifecycle-controller", "taint-eviction-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([(grown(), Target::Ratio(0.125))]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("zone").await;
            let flags = Flags { more: &[RATE, GRACE], ..Flags::of(self.controllers(), Qps::Unlimited) };
            let manager = bench.manager(turn, "zone", &flags);
            calm(manager.pid).await;
            let before = resident(manager.pid).rss;
            let kubelets = Kubelets::join(bench, turn, self.nodes).await;
            kubelets.untainted().await;
            let lost: Vec<&String> = kubelets.names[self.lost()].iter().collect();
            many(lost.len() * PODS_OF_A_NODE, async |at| {
                pod(&namespace, &format!("pod-{at}"), lost[at / PODS_OF_A_NODE]).await;
            })
            .await;
            sleep(PERIOD).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            kubelets.alive.store(self.lost().start, Ordering::Relaxed);
            let (pods, nodes) = (namespace.api::<Pod>(), Api::<Node>::all(bench.cluster.client.clone()));
            let left = async || {
                sleep(Duration::from_millis(200)).await;
                let list = pods.list_metadata(&ListParams::default()).await.expect("a list").items;
                list.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
            };
            until("the last pod to be evicted", LIMIT, left, |count| *count == 0).await;
            let tainted = async || {
                let list = nodes.list(&ListParams::default().labels(OURS)).await.expect("a list").items;
                list.iter().filter(|node| has_taint(node, "NoExecute")).count()
            };
            until("all nodes of the zone to be tainted", LIMIT, tainted, |count| *count == lost.len()).await;
            gauge.close("", Until::Calm, &mut figures).await;
            figures.add(grown(), mib(resident(manager.pid).rss.saturating_sub(before)));
            bench.stop_all();
            kubelets.leave().await;
            figures
        }
        .boxed_local()
    }
}

/// A pod that is ready on a node, by its kubelet's word, and tolerates nothing.
async fn pod(namespace: &Namespace, name: &str, node: &str) {
    // Admission adds tolerations of five minutes where there are none.
    let tolerations = ["not-ready", "unreachable"].map(|key| {
        json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 0 })
    });
    let _: Pod = namespace
        .create(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "tolerations": tolerations,
                "containers": [{ "name": "web", "image": "web:1" }],
            },
        }))
        .await;
    let ready =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let pods = namespace.api::<Pod>();
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(ready)).await.expect("it is ready");
}
