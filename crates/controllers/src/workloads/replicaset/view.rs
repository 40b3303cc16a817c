//! What a decision about one ReplicaSet rests on, read from the stores. Decides nothing.

use std::sync::Arc;

use super::{Controller, PodSet};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key, pods};
use coxswain_machinery::wire::Labels;

/// Feature gates that matter here.
#[derive(Clone, Copy, Debug)]
pub(in crate::workloads) struct Gates {
    /// `PodDeletionCost`
    pub(in crate::workloads) deletion_cost: bool,
    /// `DeploymentReplicaSetTerminatingReplicas`
    pub(in crate::workloads) terminating_replicas: bool,
}

/// A ReplicaSet, or what is seen as one, and the pods that concern it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// What it is.
    pub(super) kind: &'static Kind,
    pub(super) replica_set: Arc<ReplicaSet>,
    /// Its selector; never the one that selects everything.
    pub(super) selector: Selector,
    /// Labels that its template gives to a pod.
    pub(super) template_labels: Labels,
    /// The pods that it manages, and those of its namespace that nobody manages, in no order.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The pods of all ReplicaSets that have the same controller as this one, and those that count for this one.
    /// Only read when there may be pods to delete, and empty for one without a controller or of a kind that has no siblings.
    pub(super) related: Vec<Arc<Pod>>,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
    pub(super) gates: Gates,
}

impl View {
    /// The number of pods asked for. (The server fills in 1 where it is left out.)
    pub(super) fn desired(&self) -> usize {
        desired(&self.replica_set)
    }
}

fn desired(replica_set: &ReplicaSet) -> usize {
    usize::try_from(replica_set.spec.replicas.unwrap_or(1)).unwrap_or(0)
}

pub(super) fn observe<S: PodSet>(
    room: &Controller<S>,
    key: &Key,
    failures: &[Failure],
) -> Result<Option<View>, ObserveError> {
    let Some(set) = room.sets.get(key) else {
        return Ok(None);
    };
    let unusable = |what: String| ObserveError::Terminal(format!("{} {key}: {what}", S::KIND.kind));
    let replica_set = set.as_replica_set().map_err(|error| unusable(format!("template: {error}")))?;
    let selector =
        Selector::compile(&replica_set.spec.selector).map_err(|error| unusable(error.to_string()))?;
    if selector.is_empty() {
        return Err(unusable("the selector is empty and would match every pod".to_owned()));
    }
    let template = pods::template_metadata(&replica_set.spec.template)
        .map_err(|error| unusable(format!("template: {error}")))?;
    let mut pods = room.pods.of(ControllerKey::of(&replica_set.metadata, S::KIND));
    pods.extend(room.pods.orphans(&key.namespace));
    let related = related(room, &replica_set, &selector, &pods);
    Ok(Some(View {
        kind: S::KIND,
        replica_set,
        selector,
        template_labels: template.labels,
        pods,
        related,
        failures: failures.to_vec(),
        gates: room.gates,
    }))
}

fn related<S: PodSet>(
    room: &Controller<S>,
    replica_set: &ReplicaSet,
    selector: &Selector,
    pods: &[Arc<Pod>],
) -> Vec<Arc<Pod>> {
    let (Some(siblings), Some(owner)) = (&room.siblings, ControllerKey::named_by(&replica_set.metadata))
    else {
        return Vec::new();
    };
    let may_count = |pod: &&Arc<Pod>| pods::is_active(pod) && selector.matches(&pod.metadata.labels);
    if pods.iter().filter(may_count).count() <= desired(replica_set) {
        return Vec::new();
    }
    let siblings = siblings.with_uid_of(owner);
    let others = siblings.iter().map(|sibling| sibling.meta());
    let others = others.filter(|other| other.uid != replica_set.metadata.uid);
    let theirs = others.flat_map(|other| room.pods.of(ControllerKey::of(other, S::KIND)));
    theirs.chain(pods.iter().filter(may_count).cloned()).collect()
}
