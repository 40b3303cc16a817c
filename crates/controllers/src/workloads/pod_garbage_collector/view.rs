//! What a round finds, and who is left on a node that is gone.

use std::sync::Arc;

use super::{GoneNodes, Rounds};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Pods that are finished, and those that are being deleted. All others are filed nowhere.
pub(super) static FATES: Index = Index { name: "fate", keys: fates };

const FINISHED: &str = "finished";
const DELETING: &str = "deleting";

/// Taints a node whose pods are never heard of again.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What one round finds.
#[derive(Debug)]
pub(super) struct RoundView {
    /// Pods that are finished, as the threshold counts them; none if there is no threshold.
    pub(super) finished: Vec<Arc<Pod>>,
    /// How many of them may stay.
    pub(super) keep: usize,
    /// Pods that are being deleted on nodes that are out of service.
    pub(super) out_of_service: Vec<Arc<Pod>>,
    /// Pods that are being deleted and were never bound.
    pub(super) unscheduled: Vec<Arc<Pod>>,
}

/// A node that the cache has not, and its pods.
#[derive(Debug)]
pub(super) struct NodeView {
    pub(super) node: Str,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Nodes that are out of service by the cache are read live: one that is back ends its pods itself, and a pod that is ended by force
/// there runs on beside its successor.
pub(super) fn round(room: &Rounds, read: &Reads) -> Result<Observation<RoundView>, ObserveError> {
    let finished = if room.keep.is_some() { room.pods.filed(FINISHED) } else { Vec::new() };
    let (unscheduled, bound): (Vec<_>, Vec<_>) =
        room.pods.filed(DELETING).into_iter().partition(|pod| pod.spec.node_name.is_empty());
    let (mut out_of_service, mut needs) = (Vec::new(), Vec::new());
    for pod in bound {
        let node = Key::new("", pod.spec.node_name.clone());
        if !room.nodes.get(&node).is_some_and(|node| is_out_of_service(&node)) {
            continue;
        }
        match read.object(&NODES, &node) {
            None => {
                let read = Read::Object(&NODES, node);
                if !needs.contains(&read) {
                    needs.push(read);
                }
            }
            Some(Ok(live)) => {
                if live.cloned().and_then(downcast).is_some_and(|node| is_out_of_service(&node)) {
                    out_of_service.push(pod);
                }
            }
            Some(Err(error)) => {
                return Err(ObserveError::Retry(format!("cannot read the node {}: {error}", node.name)));
            }
        }
    }
    if !needs.is_empty() {
        return Ok(Observation::Needs(needs));
    }
    let keep = room.keep.unwrap_or(usize::MAX);
    Ok(Observation::View(RoundView { finished, keep, out_of_service, unscheduled }))
}

/// `None` if there is nothing to do about the node.
pub(super) fn gone_node(room: &GoneNodes, key: &Key) -> Option<NodeView> {
    if room.nodes.get(key).is_some() {
        return None;
    }
    let mut pods = room.pods.list();
    pods.retain(|pod| pod.spec.node_name == key.name);
    (!pods.is_empty()).then(|| NodeView { node: key.name.clone(), pods })
}

fn is_out_of_service(node: &Node) -> bool {
    !node.is_ready() && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn fates(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(pod) = any.downcast_ref::<Pod>() else { return IndexKeys::new() };
    let is_finished = !["Pending", "Running", "Unknown"].contains(&pod.status.phase.as_str());
    let fates = [(is_finished, FINISHED), (pod.metadata.is_deleting(), DELETING)];
    fates.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fate)| Str::interned(fate)).collect()
}
