//! What a decision about one Deployment rests on, read from the stores. Decides nothing.

use std::sync::Arc;

use super::{Controller, RECREATE};
use crate::api::apps::{Deployment, ReplicaSet};
use crate::api::core::Pod;
use crate::api::kinds::{BY_CONTROLLER, REPLICA_SETS, orphan_key};
use crate::framework::ObserveError;
use crate::informer::downcast;
use crate::model::hash;
use crate::model::selector::Selector;
use crate::model::{Failure, Key};

/// A Deployment and the ReplicaSets that concern it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) deployment: Arc<Deployment>,
    /// Its selector; one that selects everything has no ReplicaSets beside it.
    pub(super) selector: Selector,
    /// Its template, in the form in which templates are compared.
    pub(super) template: Vec<u8>,
    /// The ReplicaSets that it manages, and those that it selects and nobody manages, in no order.
    pub(super) candidates: Vec<Candidate>,
    /// The pods of the ReplicaSets that it manages, in no order; read for the strategy `Recreate` only.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
    /// The gate `DeploymentReplicaSetTerminatingReplicas`.
    pub(super) terminating_replicas: bool,
}

/// A ReplicaSet that may belong to the Deployment.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) set: Arc<ReplicaSet>,
    /// Whether it has the Deployment's present template.
    pub(super) is_current: bool,
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
) -> Result<Option<View>, ObserveError> {
    let Some(deployment) = room.deployments.get(key) else {
        return Ok(None);
    };
    let unusable = |what: String| ObserveError::Terminal(format!("Deployment {key}: {what}"));
    let selector =
        Selector::compile(&deployment.spec.selector).map_err(|error| unusable(error.to_string()))?;
    let template =
        hash::normal(&deployment.spec.template).map_err(|error| unusable(format!("template: {error}")))?;
    let mut view = View {
        deployment,
        selector,
        template,
        candidates: Vec::new(),
        pods: Vec::new(),
        failures: failures.to_vec(),
        terminating_replicas: room.terminating_replicas,
    };
    if view.selector.is_empty() {
        return Ok(Some(view));
    }
    let mut sets = room.replica_sets.by_index(BY_CONTROLLER, &view.deployment.metadata.uid);
    sets.extend(room.replica_sets.by_index(BY_CONTROLLER, &orphan_key(&key.namespace)));
    for met in failures.iter().filter_map(|failure| existing(failure, &view.deployment)) {
        if !sets.iter().any(|set| set.metadata.uid == met.metadata.uid) {
            sets.push(met);
        }
    }
    for set in sets {
        if set.metadata.controller().is_none() && !view.selector.matches(&set.metadata.labels) {
            continue;
        }
        let normal = hash::normal(&set.spec.template).map_err(|error| {
            ObserveError::Terminal(format!("ReplicaSet {}: template: {error}", Key::of(&set.metadata)))
        })?;
        let is_current = normal == view.template;
        view.candidates.push(Candidate { set, is_current });
    }
    if view.deployment.spec.strategy.r#type == RECREATE {
        view.pods = pods(room, &view);
    }
    Ok(Some(view))
}

/// The ReplicaSet that a create of the first pass found in its way, if it is the Deployment's own: the cache has not
/// seen it yet.
fn existing(failure: &Failure, deployment: &Deployment) -> Option<Arc<ReplicaSet>> {
    let met = failure.existing.clone().filter(|_| failure.kind == &REPLICA_SETS)?;
    downcast(met).filter(|met: &Arc<ReplicaSet>| met.metadata.is_controlled_by(&deployment.metadata.uid))
}

fn pods(room: &Controller, view: &View) -> Vec<Arc<Pod>> {
    let uid = &view.deployment.metadata.uid;
    let managed = view.candidates.iter().filter(|candidate| candidate.set.metadata.is_controlled_by(uid));
    let pods = managed.flat_map(|candidate| room.pods.by_index(BY_CONTROLLER, &candidate.set.metadata.uid));
    pods.filter(|pod| view.selector.matches(&pod.metadata.labels)).collect()
}
