//! `PodDisruptionBudgets`: how many of the pods that one selects may be evicted now, and how many there should be.
//!
//! The room observes a budget with its pods and the replicas that their controllers should have ([`view`], [`replicas`]), and
//! decides on its status ([`plan`]). A second loop takes back the condition `DisruptionTarget` of pods that were not
//! disrupted after all ([`stale`]). Which keys a change concerns ([`keys`]):
//!
//! | change of | keys |
//! |---|---|
//! | a budget | its own |
//! | a pod that appears, goes, or is healthy otherwise than before | every budget's that selects it |
//! | a pod's labels | every budget's that selects or selected it |
//! | a Deployment, `ReplicaSet`, `StatefulSet` or `ReplicationController` that is to have more pods | every budget's that selects its template |
//! | a pod with `DisruptionTarget` | its own, in the second loop |
//!
//! The eviction subresource decides by the status alone, and writes it: an eviction takes one from `disruptionsAllowed` and puts
//! the pod into `disruptedPods`. A status that allows more than the pods do is the worst that can come of this room. Why it
//! does not:
//!
//! - A status is written by an update with the resource version that it was made from. Whoever was evicted since makes
//!   it a conflict, and the next look has the entry.
//! - A pod in `disruptedPods` is not healthy, whatever the pod cache says of it, until it is seen to go or two minutes are over.
//!   A cache of pods that is older than the entry does not see that ([`granted`]).
//! - What could not be found out closes the budget: nothing may be evicted until it is known.
//! - Pods first come as a stream of the latest state, so a new leader knows what the one before it knew, and a watch that goes on
//!   never goes back. (Only where the API server offers no such streams does the first list come from its cache, as in the
//!   original.)
//! - Controllers are cached apart from pods. One that grows wakes its budgets, so that a size that came late is not left in use.
//!
//! It never evicts or deletes, never adds to `disruptedPods`, and reads nothing live but scales and discovery.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::apps::{Deployment, ReplicaSet, StatefulSet};
use coxswain_machinery::api::core::ReplicationController;
use coxswain_machinery::api::kinds::{
    DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS,
};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, Selecting, wake,
};
use coxswain_machinery::informer::{Delta, Labeled, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod granted;
mod keys;
mod memory;
mod plan;
mod replicas;
mod stale;
#[cfg(test)]
mod tests;
mod view;

use granted::Granted;
use memory::{Overlaps, Told};
use replicas::{Sizes, is_of_deployment};
use view::View;

/// The disruption controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "disruption-controller",
    aliases: &["disruption"],
    description: "Updates the number of allowed disruptions of each PodDisruptionBudget.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("disruption-controller"),
    event_source: Some("controllermanager"),
    writes: &[
        Grant { group: "policy", resource: "poddisruptionbudgets", verbs: &["get", "list", "watch"] },
        Grant { group: "policy", resource: "poddisruptionbudgets/status", verbs: &["update"] },
        Grant { group: "apps", resource: "deployments", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "replicasets", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "statefulsets", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "replicationcontrollers", verbs: &["get", "list", "watch"] },
        Grant { group: "*", resource: "*/scale", verbs: &["get"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch", "update"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let budgets = build.watch::<PodDisruptionBudget>(&POD_DISRUPTION_BUDGETS);
    let pods = build.watch::<Pod>(&PODS);
    let deployments = build.watch::<Deployment>(&DEPLOYMENTS);
    let replica_sets = build.watch::<ReplicaSet>(&REPLICA_SETS);
    let stateful_sets = build.watch::<StatefulSet>(&STATEFUL_SETS);
    let replication_controllers = build.watch::<ReplicationController>(&REPLICATION_CONTROLLERS);
    let granted = Arc::new(Granted::default());
    let wake_ups = vec![
        budgets.wakes(own(Arc::clone(&granted))),
        pods.wakes(keys::of_pods(budgets.selecting())),
        deployments.wakes(keys::of_growth(budgets.selecting(), keys::size_of_deployment, |_| true)),
        // Where a Deployment controls a set, the Deployment's number counts.
        replica_sets.wakes(keys::of_growth(budgets.selecting(), keys::size_of_replica_set, |set| {
            !is_of_deployment(&set.metadata)
        })),
        stateful_sets.wakes(keys::of_growth(budgets.selecting(), keys::size_of_stateful_set, |_| true)),
        replication_controllers.wakes(keys::of_growth(
            budgets.selecting(),
            keys::size_of_replication_controller,
            |_| true,
        )),
    ];
    let told = Arc::new(Told::default());
    let room = Controller {
        budgets: budgets.lister(),
        selecting: budgets.selecting(),
        pods: pods.labeled(),
        sizes: Sizes {
            deployments: deployments.lister(),
            replica_sets: replica_sets.lister(),
            stateful_sets: stateful_sets.lister(),
            replication_controllers: replication_controllers.lister(),
        },
        told: Arc::clone(&told),
        granted,
    };
    let budgets_loop = Loop {
        queue: "disruption",
        kind: Some(&POD_DISRUPTION_BUDGETS),
        // A scale that a conversion webhook or an aggregated API does not answer would hold the only worker.
        settings: LoopSettings { sets_aside: true, ..LoopSettings::default() },
        wake_ups,
        reconcile: Arc::new(RoomAdapter::new(room).remembered_by(told)),
    };
    let stale_loop = Loop {
        queue: "stale_pod_disruption",
        kind: Some(&PODS),
        settings: LoopSettings::default(),
        wake_ups: vec![pods.wakes(stale::of_pods())],
        reconcile: Arc::new(RoomAdapter::new(stale::Controller { pods: pods.lister() })),
    };
    Ok(Built { loops: vec![budgets_loop, stale_loop] })
}

/// A change of a budget concerns its own key. Since when its entries are there is noted.
fn own(granted: Arc<Granted>) -> KeyMap {
    let own = wake::own();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (before, now) = delta.typed::<PodDisruptionBudget>();
        granted.note(before, now);
        own(delta, add);
    })
}

/// The room: what it reads, and what it remembers.
struct Controller {
    budgets: Lister<PodDisruptionBudget>,
    selecting: Selecting<PodDisruptionBudget>,
    pods: Labeled<Pod>,
    sizes: Sizes,
    told: Arc<Told>,
    granted: Arc<Granted>,
}

impl Room<Overlaps> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures, read))
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Overlaps> {
        plan::plan(view, now).with_note(view.overlaps.clone())
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons::reasons(view, now)
    }
}
