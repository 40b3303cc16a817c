//! What a round finds, and who is left on a node that is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{GoneNodes, Rounds};
use crate::live_reads::OUT_OF_SERVICE_NODE;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::{Observation, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Pods that are finished, and those that are being deleted. All others are filed nowhere.
pub(super) static FATES: Index = Index { name: "fate", keys: fates };

const FINISHED: &str = "finished";
const DELETING: &str = "deleting";

/// What one round finds.
#[derive(Debug)]
pub(super) struct RoundView {
    /// Pods that are finished, as the threshold counts them; none if there is no threshold.
    pub(super) finished: Vec<Arc<Pod>>,
    /// How many of them may stay.
    pub(super) keep: usize,
    /// Pods that are being deleted on nodes that are out of service, but for those that only finalizers keep.
    pub(super) out_of_service: Vec<Arc<Pod>>,
    /// Pods that are being deleted and were never bound.
    pub(super) unscheduled: Vec<Arc<Pod>>,
    /// Errors of live reads of nodes that are out of service by the cache. Their pods wait for the next round.
    pub(super) unread: Vec<String>,
}

/// A node that the cache has not, and its pods.
#[derive(Debug)]
pub(super) struct NodeView {
    pub(super) node: Str,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Nodes that are out of service by the cache are read live: one that is back ends its pods itself, and a pod that is ended by force
/// there runs on beside its successor.
pub(super) fn round(room: &Rounds, read: &Reads) -> Observation<RoundView> {
    let finished = if room.keep.is_some() { room.pods.filed(FINISHED) } else { Vec::new() };
    let (unscheduled, bound): (Vec<_>, Vec<_>) =
        room.pods.filed(DELETING).into_iter().partition(|pod| pod.spec.node_name.is_empty());
    let bound: Vec<_> = bound.into_iter().filter(|pod| !is_over(pod)).collect();
    let mut dead = BTreeSet::new();
    let mut unread = Vec::new();
    let mut needs = Vec::new();
    for name in bound.iter().map(|pod| pod.spec.node_name.clone()).collect::<BTreeSet<_>>() {
        let place = Key::new("", name.clone());
        if !room.nodes.get(&place).is_some_and(|node| is_dead(&node)) {
            continue;
        }
        match read.object(&NODES, &place) {
            None => needs.push(OUT_OF_SERVICE_NODE.of(Read::Object(&NODES, place))),
            Some(Ok(live)) => {
                if live.cloned().and_then(downcast).is_some_and(|node| is_dead(&node)) {
                    dead.insert(name);
                }
            }
            Some(Err(error)) => unread.push(format!("read node {name}: {error}")),
        }
    }
    if !needs.is_empty() {
        return Observation::Needs(needs);
    }
    let out_of_service = bound.into_iter().filter(|pod| dead.contains(&pod.spec.node_name)).collect();
    let keep = room.keep.unwrap_or(usize::MAX);
    Observation::View(RoundView { finished, keep, out_of_service, unscheduled, unread })
}

/// `None` if there is nothing to do about the node.
pub(super) fn gone_node(room: &GoneNodes, key: &Key) -> Option<NodeView> {
    if room.nodes.get(key).is_some() {
        return None;
    }
    let mut pods = room.pods.filed(&key.name);
    pods.sort_unstable_by_key(|pod| Key::of(&pod.metadata));
    (!pods.is_empty()).then(|| NodeView { node: key.name.clone(), pods })
}

fn is_dead(node: &Node) -> bool {
    node.is_out_of_service() && !node.is_ready()
}

/// Whether only finalizers keep it: it has finished and was deleted by force before. To delete it again would change nothing.
pub(super) fn is_over(pod: &Pod) -> bool {
    let forced = pod.metadata.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0);
    forced && pod.is_finished()
}

fn fates(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(pod) = any.downcast_ref::<Pod>() else { return IndexKeys::new() };
    let is_finished = !["Pending", "Running", "Unknown"].contains(&pod.status.phase.as_str());
    let fates = [(is_finished, FINISHED), (pod.metadata.is_deleting(), DELETING)];
    fates.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fate)| Str::interned(fate)).collect()
}
