//! Taint-based eviction: deletes pods from nodes with `NoExecute` taints that they do not tolerate, at once or when the time
//! that they tolerate them is over. See "Taints and Tolerations" in the Kubernetes documentation, and KEP-166.
//!
//! The room observes a pod with the taints of its node and what it remembers of the pod ([`memory`]), and decides whether the pod
//! stays, waits or goes ([`plan`]). A pod that waits is an entry in the queue and no more. Which keys a change concerns
//! ([`keys`]):
//!
//! | change of | keys |
//! |---|---|
//! | a node that is new, or whose `NoExecute` taints changed | every pod's that is bound to it |
//! | a pod that is newly bound to a tainted node, or tolerates other taints | its own |
//! | a pod that goes while it waits | its own |
//! | none: the time is over | the pod's |
//!
//! What it rests on: before a pod goes its node is read live, once for all pods that ask at the same time, and the taints that
//! are found decide. The pod's status is patched at the resource version that was judged, and the delete carries the UID. So a cache
//! that lags evicts nobody, nor does an API server that cannot be asked.
//!
//! It uses deletes and not the Eviction API, as the original does: no budget holds it back. It never shortens a time: what it
//! remembers begins anew with each instance, and nothing is computed from the taint's `timeAdded`.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_NODE;
use coxswain_machinery::api::kinds::{NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod memory;
mod metrics;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod verdict;
mod view;

use memory::{Note, Timers};
use metrics::Metrics;
use view::View;

/// Pods that are dealt with at the same time, as in the original.
const WORKERS: usize = 8;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "taint-eviction-controller",
    aliases: &[],
    description: "Evicts Pods from Nodes whose taints they do not tolerate.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("node-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "pods", verbs: &["delete", "get", "list", "watch"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<Pod>(&PODS);
    let nodes = build.watch::<Node>(&NODES);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let timers = Arc::new(Timers::default());
    let room = Controller {
        pods: pods.lister(),
        nodes: nodes.lister(),
        timers: Arc::clone(&timers),
        comparing: (build.gate)("TaintTolerationComparisonOperators"),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "noexec_taint_pod",
            kind: Some(&PODS),
            settings: LoopSettings { workers: WORKERS, ..LoopSettings::default() },
            wake_ups: vec![
                pods.wakes(keys::of_pods(nodes.lister(), Arc::clone(&timers))),
                nodes.wakes(keys::of_nodes(pods.index(&BY_NODE))),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics).remembered_by(timers)),
        }],
    })
}

/// The room: what it reads, and what it remembers.
struct Controller {
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    timers: Arc<Timers>,
    /// Whether tolerations may compare numbers.
    comparing: bool,
}

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, failures, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        reasons::reasons(view)
    }
}
