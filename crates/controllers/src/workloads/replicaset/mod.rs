//! ReplicaSets: as many pods of one template as the ReplicaSet asks for, no more and no fewer. The same room keeps the pods
//! of ReplicationControllers ([`super::replicationcontroller`]), which it sees as ReplicaSets ([`PodSet`]).
//!
//! The room observes a ReplicaSet with the pods that it manages or could adopt ([`view`]), and decides on adoption and
//! release, on the pods to create or delete, and on the status ([`plan`], [`status`]). Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | a ReplicaSet | its own |
//! | a pod with a managing ReplicaSet, its deletion included | that ReplicaSet's |
//! | a pod whose managing ReplicaSet changed | the old and the new one's |
//! | a pod without a controller that appeared, was relabeled or released | every ReplicaSet's that selects it |
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote. So the
//! room keeps no expectations of pods to come or go, as long as the framework
//!
//! - holds the key back until the pod and ReplicaSet caches have reached the resource versions of all answers to a
//!   plan's writes, those of a batch that failed in part included;
//! - after a create whose answer was lost, holds it back until the caches have reached a resource version that the
//!   server gave out later than that. Should the create take effect later still, there is one pod too many for a
//!   moment, and the ranking takes one away: never one too few, and no delete hits another pod than the chosen one,
//!   since it carries the UID;
//! - plans a second time at once when a step failed, so that the failure is recorded, and retries with backoff;
//! - emits neither event of a write whose refusal was tolerated.
//!
//! It never writes a ReplicaSet's spec or metadata, never decodes a pod template's spec, and reads nothing live but
//! the ReplicaSet itself before an adoption.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::kinds::{PODS, REPLICA_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, Selecting, wake,
};
use coxswain_machinery::informer::{Dependents, Lister};
use coxswain_machinery::model::selects::Selects;
use coxswain_machinery::model::{Failure, Key, Plan, pods};
use coxswain_machinery::wire::WireError;

mod metrics;
mod plan;
mod reasons;
mod status;
#[cfg(test)]
mod tests;
mod view;

use metrics::AgeRatios;
pub(super) use metrics::Metrics;
pub(super) use view::Gates;
use view::View;

/// For how long a ReplicaSet waits for its pods to be seen where `StaleControllerConsistencyReplicaSet` is off, as in the
/// original.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The ReplicaSet controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "replicaset-controller",
    aliases: &["replicaset"],
    description: "Runs the desired number of Pods of each ReplicaSet.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("replicaset-controller"),
    event_source: None,
    writes: &[
        Grant { group: "apps", resource: "replicasets", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "replicasets/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement), because pods block their owner's deletion.
        Grant { group: "apps", resource: "replicasets/finalizers", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch", "watch"] },
        Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let gates = Gates {
        deletion_cost: (build.gate)("PodDeletionCost"),
        terminating_replicas: (build.gate)("DeploymentReplicaSetTerminatingReplicas"),
    };
    let waits_without_end = (build.gate)("StaleControllerConsistencyReplicaSet");
    let settings = LoopSettings {
        longest_wait: (!waits_without_end).then_some(LONGEST_WAIT),
        withholds_refused_creates: true,
        ..LoopSettings::with_workers(build.config.flags.concurrent_replicaset_syncs)
    };
    let metrics = Metrics::register(build.metrics)?.with_stale(build.metrics)?;
    Ok(keep::<ReplicaSet>(build, "replicaset", settings, gates, metrics))
}

/// What asks for pods as a ReplicaSet does.
pub(super) trait PodSet: Selects {
    /// What it is.
    const KIND: &'static Kind;
    /// Whether those that have the same controller think of each other's pods when they choose which to delete.
    const HAS_SIBLINGS: bool;

    /// The ReplicaSet that asks for the same, with all bytes of this object; an error if its template can't be read.
    fn as_replica_set(self: Arc<Self>) -> Result<Arc<ReplicaSet>, WireError>;
}

impl PodSet for ReplicaSet {
    const KIND: &'static Kind = &REPLICA_SETS;
    const HAS_SIBLINGS: bool = true;

    fn as_replica_set(self: Arc<Self>) -> Result<Arc<ReplicaSet>, WireError> {
        Ok(self)
    }
}

/// A loop that keeps the pods of all sets of one kind.
pub(super) fn keep<S: PodSet>(
    build: &Build<'_>,
    queue: &'static str,
    settings: LoopSettings,
    gates: Gates,
    metrics: Metrics,
) -> Built {
    let sets = build.watch::<S>(S::KIND);
    let pods = build.watch::<Pod>(&PODS);
    let wake_ups = vec![sets.wakes(wake::own()), pods.wakes(pod_keys::<S>(sets.lister(), sets.selecting()))];
    let room = Controller {
        sets: sets.lister(),
        siblings: S::HAS_SIBLINGS.then(|| sets.dependents()),
        pods: pods.dependents(),
        gates,
    };
    let reconcile = Arc::new(RoomAdapter::new(room).counted_by(metrics));
    Built { loops: vec![Loop { queue, kind: Some(S::KIND), settings, wake_ups, reconcile }] }
}

/// The room: what it reads, and what is switched on.
pub(super) struct Controller<S> {
    pub(super) sets: Lister<S>,
    /// Sets by their controller, if they think of each other.
    pub(super) siblings: Option<Dependents<S>>,
    /// Pods by their controller.
    pub(super) pods: Dependents<Pod>,
    pub(super) gates: Gates,
}

impl<S: PodSet> Room<AgeRatios> for Controller<S> {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures)?.into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<AgeRatios> {
        let plan = plan::plan(view, now);
        let ratios =
            if view.failures.is_empty() { metrics::age_ratios(view, &plan, now) } else { Vec::new() };
        plan.with_note(AgeRatios(ratios))
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        reasons::reasons(view, now)
    }
}

/// A pod concerns the set that manages it; one that nobody manages those that select it.
fn pod_keys<S: PodSet>(sets: Lister<S>, selecting: Selecting<S>) -> KeyMap {
    wake::claiming(sets, selecting, pods::counts_alike)
}
