//! What a decision about one DaemonSet rests on, read from the stores. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::Controller;
use super::memory::Place;
use super::tolerations;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::DAEMON_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::fitting::{Fit, Misfit};
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// Feature gates that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// `TaintTolerationComparisonOperators`
    pub(super) comparing_tolerations: bool,
}

impl Gates {
    /// How a node fits a DaemonSet.
    pub(super) fn fit(self, daemon_set: &DaemonSet, node: &Node) -> Fit {
        let constraints = &daemon_set.constraints;
        let added = tolerations::added(constraints.host_network);
        constraints.fit(node, added, self.comparing_tolerations)
    }

    /// Why a node gets no pod of a DaemonSet; `None` if it does.
    pub(super) fn why_not(self, daemon_set: &DaemonSet, node: &Node) -> Option<Misfit> {
        let constraints = &daemon_set.constraints;
        let added = tolerations::added(constraints.host_network);
        constraints.why_not(node, added, self.comparing_tolerations)
    }
}

/// A DaemonSet and what concerns it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) daemon_set: Arc<DaemonSet>,
    /// Its selector; one that selects everything is left to the plan to refuse.
    pub(super) selector: Selector,
    /// The pods that it manages, and those of its namespace that nobody manages, in no order.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The revisions that it manages, and those of its namespace that nobody manages, in no order.
    pub(super) revisions: Vec<Arc<ControllerRevision>>,
    /// All nodes, in no order.
    pub(super) nodes: Vec<Arc<Node>>,
    /// The rest of the backoff of failed pods of the present generation, by node.
    pub(super) backoffs: HashMap<Str, Duration>,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
    pub(super) gates: Gates,
}

impl View {
    /// A node of this name, as a place where pods fail.
    pub(super) fn place(&self, node: &Str) -> Place {
        place(&self.daemon_set, node)
    }
}

fn place(daemon_set: &DaemonSet, node: &Str) -> Place {
    Place {
        daemon_set: daemon_set.metadata.uid.clone(),
        generation: daemon_set.status.observed_generation,
        node: node.clone(),
    }
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
) -> Result<Option<View>, ObserveError> {
    let Some(daemon_set) = room.daemon_sets.get(key) else {
        return Ok(None);
    };
    let selector = Selector::compile(&daemon_set.spec.selector)
        .map_err(|error| ObserveError::Terminal(format!("DaemonSet {key}: {error}")))?;
    let controller = ControllerKey::of(&daemon_set.metadata, &DAEMON_SETS);
    let mut pods = room.pods.of(controller);
    pods.extend(room.pods.orphans(&key.namespace));
    let mut revisions = room.revisions.with_uid_of(controller);
    revisions.extend(room.revisions.orphans(&key.namespace));
    let failed = pods.iter().filter(|pod| pod.status.phase == "Failed").filter_map(|pod| node_of(pod));
    let remaining = |node: &Str| room.failed_pods.remaining(&place(&daemon_set, node));
    let backoffs = failed.filter_map(|node| Some((node.clone(), remaining(node)?))).collect();
    Ok(Some(View {
        selector,
        pods,
        revisions,
        nodes: room.nodes.list(),
        backoffs,
        failures: failures.to_vec(),
        gates: room.gates,
        daemon_set,
    }))
}

/// The node that a pod is bound to, or is meant for. A pod without either is none of a DaemonSet's business.
pub(super) fn node_of(pod: &Pod) -> Option<&Str> {
    if pod.spec.node_name.is_empty() { pod.target_node() } else { Some(&pod.spec.node_name) }
}

/// The revision that bears the name of one that was to be created.
pub(super) fn in_the_way(failure: &Failure) -> Option<Arc<ControllerRevision>> {
    let object: &AnyObject = failure.existing.as_ref()?;
    downcast(Arc::clone(object))
}
