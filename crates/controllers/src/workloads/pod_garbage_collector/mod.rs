//! Garbage collection of pods: removes pods that nobody else can end, always by force.
//!
//! Two loops. One looks at all pods in rounds ([`Rounds`]): finished ones beyond a threshold, those being deleted on nodes that
//! are out of service, and those being deleted that were never bound. The other looks at a node that is gone for a while
//! ([`GoneNodes`]), and at all pods that are bound to it. A pod that has not finished is said to have failed before it is
//! deleted, so that its owner sees a failure. See "Pod lifecycle" and "Node shutdowns" in the Kubernetes documentation.
//!
//! | change of | keys |
//! |---|---|
//! | none: every 20 seconds | the one key of the rounds |
//! | a pod that is new or newly bound, to a node that the cache has not | that node's, 40 seconds later |
//! | a node that is gone | its own, 40 seconds later |
//!
//! What it rests on: a node is read live before its pods go, be it gone or out of service, deletes carry the pod's UID, for a pod of a StatefulSet has a
//! successor of its name, and a pod fails only as it was seen, for it may have succeeded since. The role grants neither events nor a read of single pods. Rounds find pods by an index, so they cost
//! what they find.
//!
//! It retries no write: the next round looks again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_NODE;
use coxswain_machinery::api::kinds::{NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod metrics;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;

use metrics::Metrics;
use plan::Note;
use view::{FATES, NodeView, RoundView, is_over};

/// How long after a round the next one comes, as in the original.
const ROUND: Duration = Duration::from_secs(20);
/// How long a node must have been gone, as in the original. Pods that stay are looked at again after as long.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pod-garbage-collector-controller",
    aliases: &["podgc"],
    description: "Deletes finished Pods beyond a threshold and Pods of Nodes that no longer exist.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("pod-garbage-collector"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "pods", verbs: &["delete", "list", "watch"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "watch"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<Pod>(&PODS);
    let nodes = build.watch::<Node>(&NODES);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    // 0 and less is for keeping all.
    let keep = usize::try_from(build.config.flags.terminated_pod_gc_threshold).ok().filter(|keep| *keep > 0);
    let rounds = Rounds { pods: pods.index(&FATES), nodes: nodes.lister(), keep };
    let gone_nodes = GoneNodes { pods: pods.index(&BY_NODE), nodes: nodes.lister() };
    Ok(Built {
        loops: vec![
            Loop {
                queue: "pod_gc_rounds",
                kind: None,
                settings: LoopSettings::rounds(ROUND),
                wake_ups: Vec::new(),
                reconcile: Arc::new(RoomAdapter::new(rounds).counted_by(metrics.clone())),
            },
            Loop {
                queue: "orphaned_pods_nodes",
                kind: Some(&NODES),
                settings: LoopSettings::default(),
                wake_ups: vec![
                    pods.wakes(unknown_nodes(nodes.lister())).debounced(QUARANTINE),
                    nodes.wakes(nodes_that_go()).debounced(QUARANTINE),
                ],
                reconcile: Arc::new(RoomAdapter::new(gone_nodes).counted_by(metrics)),
            },
        ],
    })
}

/// A pod that is new or newly bound concerns its node, if the cache has not that, and so does one that was over and is no longer: a
/// node on which all pods are over has no timer. A node that goes later tells of itself.
fn unknown_nodes(nodes: Lister<Node>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let Some(node) = new.map(|pod| &pod.spec.node_name).filter(|node| !node.is_empty()) else { return };
        let is_over_no_longer = |old: &Pod| is_over(old) && new.is_some_and(|new| !is_over(new));
        if old.is_none_or(|old| old.spec.node_name != *node || is_over_no_longer(old)) {
            let key = Key::new("", node.clone());
            if nodes.get(&key).is_none() {
                add(key);
            }
        }
    })
}

fn nodes_that_go() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let (Some(node), None) = (delta.old, delta.new) {
            add(Key::of(node.meta()));
        }
    })
}

/// The loop over what is finished, out of service, or was never bound.
struct Rounds {
    /// Those that are finished or being deleted.
    pods: Indexed<Pod>,
    nodes: Lister<Node>,
    /// Finished pods that may stay; all if `None`.
    keep: Option<usize>,
}

impl Room<Note> for Rounds {
    type View = RoundView;

    fn observe(&self, _: &Key, _: &[Failure], read: &Reads) -> Result<Observation<RoundView>, ObserveError> {
        Ok(view::round(self, read))
    }

    fn plan(view: &RoundView, now: Timestamp) -> Plan<Note> {
        plan::round(view, now)
    }

    fn reasons(view: &RoundView, now: Timestamp) -> Vec<String> {
        reasons::of_round(view, &plan::round(view, now).note)
    }
}

/// The loop over nodes that are gone.
struct GoneNodes {
    /// Pods by node: a node that is gone costs no look at the pods of others.
    pods: Indexed<Pod>,
    nodes: Lister<Node>,
}

impl Room<Note> for GoneNodes {
    type View = NodeView;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<NodeView>, ObserveError> {
        Ok(view::gone_node(self, key).into())
    }

    fn plan(view: &NodeView, now: Timestamp) -> Plan<Note> {
        plan::gone_node(view, now)
    }

    fn reasons(view: &NodeView, _: Timestamp) -> Vec<String> {
        reasons::of_node(view)
    }
}
