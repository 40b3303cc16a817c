//! What a decision about one Deployment rests on, read from the stores. Decides nothing.

use std::any::Any;
use std::sync::Arc;

use super::Controller;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::{DEPLOYMENTS, REPLICA_SETS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::executor::Effect;
use coxswain_machinery::framework::{ObserveError, Reads};
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Uid;

/// The strategy by which no pod of the new template comes before the last of the old ones has gone.
pub(super) const RECREATE: &str = "Recreate";

/// Feature gates that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// `DeploymentReplicaSetTerminatingReplicas`
    pub(super) terminating_replicas: bool,
}

/// A Deployment and the ReplicaSets that concern it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) deployment: Arc<Deployment>,
    /// Its selector; one that selects everything is left to the plan to refuse.
    pub(super) selector: Selector,
    /// The ReplicaSets that it manages, and those of its namespace that nobody manages, in no order.
    pub(super) replica_sets: Vec<Arc<ReplicaSet>>,
    /// UIDs of those ReplicaSets that have pods which have not run to their end, be they on their way out or not. Only
    /// read for a Deployment that recreates.
    pub(super) running: HashSet<Uid>,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
    /// Whether the first pass's plan wrote the status, or may have.
    pub(super) has_written_status: bool,
    pub(super) gates: Gates,
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Option<View>, ObserveError> {
    let Some(deployment) = room.deployments.get(key) else {
        return Ok(None);
    };
    let selector = Selector::compile(&deployment.spec.selector)
        .map_err(|error| ObserveError::Terminal(format!("Deployment {key}: {error}")))?;
    let owner = &deployment.metadata;
    let mut replica_sets = room.replica_sets.with_uid_of(ControllerKey::of(owner, &DEPLOYMENTS));
    replica_sets.extend(room.replica_sets.orphans(&key.namespace));
    // One of ours that the cache has not shown yet, met by its name.
    for met in failures.iter().filter_map(in_the_way).filter(|met| met.metadata.is_controlled_by(owner)) {
        replica_sets.retain(|held| held.metadata.name != met.metadata.name);
        replica_sets.push(met);
    }
    let running: HashSet<Uid> = if deployment.spec.strategy.r#type == RECREATE {
        let sets = replica_sets.iter().map(|set| &set.metadata);
        sets.filter(|set| has_running_pods(room, set)).map(|set| set.uid.clone()).collect()
    } else {
        HashSet::default()
    };
    let is_status = |effect: &Effect| effect.kind == &DEPLOYMENTS && effect.subresource == "status";
    Ok(Some(View {
        deployment,
        selector,
        replica_sets,
        running,
        failures: failures.to_vec(),
        has_written_status: read.written().iter().any(is_status),
        gates: room.gates,
    }))
}

fn has_running_pods(room: &Controller, replica_set: &ObjectMeta) -> bool {
    let pods = room.pods.of(ControllerKey::of(replica_set, &REPLICA_SETS));
    pods.iter().any(|pod| !pod.is_finished())
}

/// The ReplicaSet that bears the name of one that was to be created.
pub(super) fn in_the_way(failure: &Failure) -> Option<Arc<ReplicaSet>> {
    let object: &AnyObject = failure.existing.as_ref()?;
    let any: Arc<dyn Any + Send + Sync> = Arc::clone(object) as _;
    any.downcast().ok()
}
