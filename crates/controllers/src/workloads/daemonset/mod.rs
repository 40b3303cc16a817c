//! DaemonSets: one pod of a template on every node that fits it.
//!
//! The room observes a DaemonSet with its pods and revisions, those that it could adopt, and all nodes ([`view`]), and decides
//! on adoption and release, on the revision of the present template, on the pods of each node, on the roll-out of a template,
//! on the history to keep and on the status ([`plan`]). It decides on nodes; the scheduler binds each pod to the one that
//! the pod's affinity names. Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | a DaemonSet | its own |
//! | a pod with a managing DaemonSet, its deletion included | that DaemonSet's |
//! | a pod whose managing DaemonSet changed | the old and the new one's |
//! | a pod without a controller that appeared, was relabeled or released | every DaemonSet's that selects it |
//! | a revision, but for one that appears | as a pod |
//! | a node that is new or gone, or has other labels or taints | every DaemonSet's that it fits otherwise than before |
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote. The only thing
//! that it remembers is how long failed pods are left alone ([`memory`]).
//!
//! It never writes a DaemonSet but its status, binds no pod, decodes of a template no more than where its pods may run, and
//! reads nothing live but the DaemonSet itself before an adoption, and the revision that bears the name of one it wanted to
//! create.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Dependents, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod memory;
mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod tolerations;
mod view;

use memory::{FailedPods, Note};
use metrics::Metrics;
use view::{Gates, View};

/// For how long a DaemonSet waits for its pods to be seen where `StaleControllerConsistencyDaemonSet` is off, as in the
/// original.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The DaemonSet controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "daemonset-controller",
    aliases: &["daemonset"],
    description: "Runs one Pod of each DaemonSet on every matching Node.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("daemon-set-controller"),
    event_source: None,
    writes: &[
        Grant { group: "apps", resource: "daemonsets", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "daemonsets/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): pods and revisions block their owner's deletion.
        Grant { group: "apps", resource: "daemonsets/finalizers", verbs: &["update"] },
        Grant {
            group: "apps",
            resource: "controllerrevisions",
            verbs: &["create", "delete", "get", "list", "patch", "watch"],
        },
        Grant { group: "", resource: "nodes", verbs: &["list", "watch"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let daemon_sets = build.watch::<DaemonSet>(&DAEMON_SETS);
    let pods = build.watch::<Pod>(&PODS);
    let revisions = build.watch::<ControllerRevision>(&CONTROLLER_REVISIONS);
    let nodes = build.watch::<Node>(&NODES);
    let gates = Gates { comparing_tolerations: (build.gate)("TaintTolerationComparisonOperators") };
    let waits_without_end = (build.gate)("StaleControllerConsistencyDaemonSet");
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let wake_ups = vec![
        daemon_sets.wakes(coxswain_machinery::framework::wake::own()),
        pods.wakes(keys::of_pods(daemon_sets.lister(), daemon_sets.selecting())),
        revisions.wakes(keys::of_revisions(daemon_sets.lister(), daemon_sets.selecting())),
        nodes.wakes(keys::of_nodes(daemon_sets.lister(), gates)),
    ];
    let failed_pods = Arc::new(FailedPods::default());
    let room = Controller {
        daemon_sets: daemon_sets.lister(),
        pods: pods.dependents(),
        revisions: revisions.dependents(),
        nodes: nodes.lister(),
        failed_pods: Arc::clone(&failed_pods),
        gates,
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "daemonset",
            kind: Some(&DAEMON_SETS),
            settings: LoopSettings {
                longest_wait: (!waits_without_end).then_some(LONGEST_WAIT),
                withholds_refused_creates: true,
                ..LoopSettings::with_workers(build.config.flags.concurrent_daemonset_syncs)
            },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics).remembered_by(failed_pods)),
        }],
    })
}

/// The room: what it reads, and what is switched on.
struct Controller {
    daemon_sets: Lister<DaemonSet>,
    /// Pods by their controller.
    pods: Dependents<Pod>,
    /// Revisions by their controller.
    revisions: Dependents<ControllerRevision>,
    nodes: Lister<Node>,
    failed_pods: Arc<FailedPods>,
    gates: Gates,
}

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures)?.into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons::reasons(view, now)
    }
}
