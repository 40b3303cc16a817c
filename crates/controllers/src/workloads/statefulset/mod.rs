//! StatefulSets: pods with an ordinal, a name that stays and claims of their own, made, replaced and taken away one after the
//! other, or all at once.
//!
//! The room observes a StatefulSet with its pods, their claims and its revisions ([`view`]), says which revision is the
//! present one ([`revisions`]), and decides on adoption and release, on pods and claims, on the status and on the history to
//! keep ([`plan`]). Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | a StatefulSet | its own |
//! | a pod with a managing StatefulSet, its deletion included | that StatefulSet's |
//! | a pod whose managing StatefulSet changed | the old and the new one's |
//! | a pod without a controller that appeared, was relabeled or released | every StatefulSet's that selects it |
//! | a claim that is gone | that of the StatefulSet whose claim it was, by its name; with very many templates others too |
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote. So a pod is made
//! once, and none is replaced on the strength of an old view; deletes carry the UID, for the next pod has the same name.
//!
//! It never deletes a claim, never writes a StatefulSet's spec or metadata, and reads nothing live but the StatefulSet before
//! an adoption and the documents of revisions, which no cache holds.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::apps::{ControllerRevision, StatefulSet};
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, Selecting, wake,
};
use coxswain_machinery::informer::{Delta, Dependents, Lister};
use coxswain_machinery::model::{Failure, Key, Plan, pods};

mod memory;
mod metrics;
mod plan;
mod revisions;
#[cfg(test)]
mod tests;
mod view;

use memory::Remembered;
use metrics::Metrics;
use view::{Gates, View};

/// The StatefulSet controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "statefulset-controller",
    aliases: &["statefulset"],
    description: "Creates and updates the Pods and claims of each StatefulSet in order.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("statefulset-controller"),
    event_source: None,
    writes: &[
        Grant { group: "apps", resource: "statefulsets", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "statefulsets/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement), because pods block their owner's deletion.
        Grant { group: "apps", resource: "statefulsets/finalizers", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "get", "list", "patch", "watch"] },
        // Asked for likewise, because claims block the deletion of the pods that own them.
        Grant { group: "", resource: "pods/finalizers", verbs: &["update"] },
        Grant {
            group: "apps",
            resource: "controllerrevisions",
            verbs: &["create", "delete", "get", "list", "patch", "watch"],
        },
        // To delete them is asked for likewise: whoever changes the owners of an object must be allowed to.
        Grant {
            group: "",
            resource: "persistentvolumeclaims",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let sets = build.watch::<StatefulSet>(&STATEFUL_SETS);
    let pods = build.watch::<Pod>(&PODS);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let revisions = build.watch::<ControllerRevision>(&CONTROLLER_REVISIONS);
    let wake_ups = vec![
        sets.wakes(wake::own()),
        pods.wakes(pod_keys(sets.lister(), sets.selecting())),
        claims.wakes(claim_keys(sets.lister())),
    ];
    let gates = Gates {
        max_unavailable: (build.gate)("MaxUnavailableStatefulSet"),
        semantic_revisions: (build.gate)("StatefulSetSemanticRevisionComparison"),
    };
    let memory = Arc::new(Remembered::default());
    let metrics = if gates.max_unavailable {
        Some(Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?)
    } else {
        None
    };
    let room = Controller {
        sets: sets.lister(),
        pods: pods.dependents(),
        claims: claims.lister(),
        revisions: revisions.dependents(),
        gates,
        memory: Arc::clone(&memory),
    };
    let mut reconcile = RoomAdapter::new(room).remembered_by(memory);
    if let Some(metrics) = metrics {
        reconcile = reconcile.counted_by(metrics);
    }
    Ok(Built {
        loops: vec![Loop {
            queue: "statefulset",
            kind: Some(&STATEFUL_SETS),
            settings: LoopSettings::with_workers(build.config.flags.concurrent_statefulset_syncs),
            wake_ups,
            reconcile: Arc::new(reconcile),
        }],
    })
}

/// The room: what it reads and remembers, and what is switched on.
struct Controller {
    sets: Lister<StatefulSet>,
    /// Pods by their controller.
    pods: Dependents<Pod>,
    claims: Lister<PersistentVolumeClaim>,
    /// Revisions by their controller.
    revisions: Dependents<ControllerRevision>,
    gates: Gates,
    memory: Arc<Remembered>,
}

/// What a plan tells beside its steps.
#[derive(Debug, Default)]
struct Note {
    /// A revision that means the same as its StatefulSet's template.
    same: Option<memory::Sameness>,
    /// How far the search for a free name of a revision has come.
    search: memory::Search,
    /// What metrics show of the StatefulSet.
    gauges: Option<metrics::Gauges>,
}

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, failures, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        let (plan, gauges) = plan::plan(view, now);
        plan.with_note(Note { same: view.same.clone(), search: plan::search(view), gauges })
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons::reasons(view, now)
    }
}

/// A pod concerns the StatefulSet that manages it; one that nobody manages those that select it.
fn pod_keys(sets: Lister<StatefulSet>, selecting: Selecting<StatefulSet>) -> KeyMap {
    wake::claiming(sets, selecting, pods::counts_alike)
}

/// Bytes of templates that a deleted claim has read at most. The informer of claims, which serves other controllers too, waits meanwhile.
const MOST_READ: usize = 32 << 10;

/// A claim that is gone may be one that a pod's creation waits for: `TEMPLATE-SET-ORDINAL`, where both names may have dashes. A name with
/// many dashes may be that of many StatefulSets. When [`MOST_READ`] bytes of their templates were read, the others are queued unread: a
/// reconcile without need changes nothing.
fn claim_keys(sets: Lister<StatefulSet>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let (Some(old), None) = (delta.old, delta.new) else { return };
        let meta = old.meta();
        let Some((stem, _)) = meta.name.rsplit_once('-') else { return };
        let mut budget = MOST_READ;
        for (at, _) in stem.match_indices('-') {
            let key = Key::new(meta.namespace.clone(), &stem[at + 1..]);
            let may_wait = |set: Arc<StatefulSet>| view::may_have_template(&set, &stem[..at], &mut budget);
            if sets.get(&key).is_some_and(may_wait) {
                emit(key);
            }
        }
    })
}
