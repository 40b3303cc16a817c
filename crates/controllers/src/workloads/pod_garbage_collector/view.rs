//! What a round finds, and who is left on a node that is gone.

use std::sync::Arc;

use super::{GoneNodes, Rounds};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::informer::Lister;
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

pub(super) fn round(room: &Rounds) -> RoundView {
    let finished = if room.keep.is_some() { room.pods.filed(FINISHED) } else { Vec::new() };
    let (unscheduled, bound): (Vec<_>, Vec<_>) =
        room.pods.filed(DELETING).into_iter().partition(|pod| pod.spec.node_name.is_empty());
    let out_of_service =
        bound.into_iter().filter(|pod| is_out_of_service(&room.nodes, &pod.spec.node_name)).collect();
    RoundView { finished, keep: room.keep.unwrap_or(usize::MAX), out_of_service, unscheduled }
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

fn is_out_of_service(nodes: &Lister<Node>, name: &Str) -> bool {
    nodes.get(&Key::new("", name.clone())).is_some_and(|node| {
        !node.is_ready() && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    })
}

fn fates(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(pod) = any.downcast_ref::<Pod>() else { return IndexKeys::new() };
    let is_finished = !["Pending", "Running", "Unknown"].contains(&pod.status.phase.as_str());
    let fates = [(is_finished, FINISHED), (pod.metadata.is_deleting(), DELETING)];
    fates.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fate)| Str::interned(fate)).collect()
}
