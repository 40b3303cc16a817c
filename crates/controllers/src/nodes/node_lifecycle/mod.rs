//! The lives of nodes: who is silent for too long is said to be unknown, what nodes say of themselves becomes taints, and who is
//! not well is tainted so that pods leave it, at a limited rate. See "Node heartbeats", "Node controller" and "Taints and
//! Tolerations" in the Kubernetes documentation, and KEPs 166, 382 and 589.
//!
//! Three loops share one memory ([`memory`]):
//!
//! | loop | keys | woken by | does |
//! |---|---|---|---|
//! | nodes | a node | its changes | `NoSchedule` taints by conditions, two old labels ([`plan`]) |
//! | pods | a pod | that it is bound; that its node is marked | says that it is not ready ([`pods`]) |
//! | health | one | time; that nodes come, go, or say something else of themselves | signs of life, zones, `NoExecute` taints ([`health`]) |
//!
//! What it rests on: time counts against nodes only while the watch of Leases delivers ([`fleet`]); a Lease that anybody renews
//! will do, so it does every few seconds where somebody leads something. Every write of a node carries the resource version
//! that was judged, and a node is left out of a round until the cache shows the loop's last write of it, so a cache of nodes
//! that lags delays no other node. A node whose write met a conflict is read live in the next round, and its zone keeps the
//! token. While no node of any zone is ready it is us who are cut off, and nobody is driven away ([`zones`]).
//!
//! It deletes no pods: that is for taint eviction, and for the garbage collection of pods.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::coordination::Heartbeat;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_NODE;
use coxswain_machinery::api::kinds::{HEARTBEATS, NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Deliveries, Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::options::Flags;

mod fleet;
mod health;
mod memory;
mod metrics;
mod plan;
mod pods;
mod taints;
#[cfg(test)]
mod tests;
mod view;
mod zones;

use fleet::Rules;
use health::Health;
use memory::FleetMemory;
use metrics::Metrics;
use pods::Pods;
use view::View;
use zones::ZoneRules;

/// Nodes that are dealt with at the same time, and pods, as in the original.
const NODE_WORKERS: usize = 8;
const POD_WORKERS: usize = 4;
/// Longest time between two renewals of a Lease by a leader or an API server. A healthy watch of Leases is not silent for longer.
const LONGEST_RENEWAL: Duration = Duration::from_secs(11);
/// How long changes of nodes are collected before all are looked at.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    description: "Marks Nodes without heartbeats as unhealthy and taints them.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("node-controller"),
    event_source: Some("node-controller"),
    writes: &[
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "patch", "watch"] },
        Grant { group: "", resource: "nodes/status", verbs: &["patch"] },
        Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let nodes = build.watch::<Node>(&NODES);
    let pods = build.watch::<Pod>(&PODS);
    let heartbeats = build.watch::<Heartbeat>(&HEARTBEATS);
    let flags = &build.config.flags;
    let rules = rules(flags);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let deliveries = Deliveries::new(silence_that_counts(rules.grace));
    heartbeats.tells(&deliveries);
    let memory = Arc::new(FleetMemory::new(deliveries, metrics));
    let nodes_loop = Loop {
        queue: "node_lifecycle_controller",
        kind: Some(&NODES),
        settings: LoopSettings { workers: NODE_WORKERS, ..LoopSettings::default() },
        wake_ups: vec![nodes.wakes(wake::existing())],
        reconcile: Arc::new(RoomAdapter::new(Controller {
            nodes: nodes.lister(),
            memory: Arc::clone(&memory),
            rules,
        })),
    };
    let pods_loop = Loop {
        queue: "node_lifecycle_controller_pods",
        kind: Some(&PODS),
        settings: LoopSettings { workers: POD_WORKERS, ..LoopSettings::default() },
        wake_ups: vec![pods.wakes(pods::of_pods()), nodes.wakes(pods::of_nodes(pods.index(&BY_NODE)))],
        reconcile: Arc::new(RoomAdapter::new(Pods {
            lister: pods.lister(),
            nodes: nodes.lister(),
            memory: Arc::clone(&memory),
        })),
    };
    let health = Health {
        nodes: nodes.lister(),
        heartbeats: heartbeats.lister(),
        memory: Arc::clone(&memory),
        rules,
        period: flags.node_monitor_period,
    };
    let health_loop = Loop {
        queue: "node_health",
        kind: None,
        // Each write carries the version that was judged: a node whose write the cache does not show yet delays no other.
        settings: LoopSettings {
            longest_wait: Some(Duration::ZERO),
            ..LoopSettings::rounds(flags.node_monitor_period)
        },
        wake_ups: vec![nodes.wakes(of_health()).debounced(DEBOUNCE)],
        reconcile: Arc::new(RoomAdapter::new(health).remembered_by(memory)),
    };
    Ok(Built { loops: vec![nodes_loop, pods_loop, health_loop] })
}

/// Returns the time without a delivery that still counts against nodes: a quarter of the grace period, but at least the time in which
/// some Lease is renewed, and at most half of the grace period.
fn silence_that_counts(grace: Duration) -> Duration {
    (grace / 4).max(LONGEST_RENEWAL).min(grace / 2)
}

fn rules(flags: &Flags) -> Rules {
    Rules {
        grace: flags.node_monitor_grace_period,
        startup_grace: flags.node_startup_grace_period,
        zones: ZoneRules {
            primary: f64::from(flags.node_eviction_rate),
            secondary: f64::from(flags.secondary_node_eviction_rate),
            large: usize::try_from(flags.large_cluster_size_threshold).unwrap_or(0),
            threshold: flags.unhealthy_zone_threshold,
        },
    }
}

/// A node that comes, goes, says something else of its readiness or is driven away from otherwise than before concerns the
/// health of all. Heartbeats wait for the next round.
fn of_health() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Node>();
        let says =
            |node: &Node| (taints::condition(node, "Ready").map(str::to_owned), taints::is_driven(node));
        if delta.is_news() && old.map(says) != new.map(says) {
            add(Key::EMPTY);
        }
    })
}

/// The room of the first loop: what it reads.
struct Controller {
    nodes: Lister<Node>,
    memory: Arc<FleetMemory>,
    rules: Rules,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
