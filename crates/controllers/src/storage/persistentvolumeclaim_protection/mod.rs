//! Keeps a PersistentVolumeClaim from being deleted while a pod uses it, by a finalizer. See "Storage Object in Use Protection"
//! in the Kubernetes documentation. With the gate `PersistentVolumeClaimUnusedSinceTime` it also says since when a claim has
//! been unused (KEP-5541).
//!
//! | change of | keys |
//! |---|---|
//! | a claim that is being deleted with the finalizer, or is there without it | its own |
//! | a pod that is gone, has ended, or is not bound | the claims that it names and for which that may decide something |
//!
//! With the gate claims that say nothing yet and all changes of pods count, too.
//!
//! What it rests on: users are looked for in the cache, where one is enough; that there is none is what a live list of the
//! namespace's pods says. Claims that are looked at together share a list (`framework::reads`), so a namespace with thousands
//! of claims costs few: that is what the many workers are for.
//!
//! It never writes a pod or a volume.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::{Pod, PodClaimSource};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, UnheardNote, UnheardUsers,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::finalizers::{Due, due};
use coxswain_machinery::model::{Failure, Key, Plan};

use super::claims::{BY_CLAIM, claims, volumes_of};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::View;

/// What keeps a claim.
const FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The condition that says since when a claim has been unused.
const UNUSED: &str = "Unused";
/// Claims that may wait for one live list together. The original takes all that are queued; this many writes take far longer
/// than the list.
const WORKERS: usize = 64;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolumeclaim-protection-controller",
    aliases: &["pvc-protection"],
    description: "Prevents deletion of a PersistentVolumeClaim while a Pod uses it.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("pvc-protection-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "list", "update", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let pods = build.watch::<Pod>(&PODS);
    let tells_use = (build.gate)("PersistentVolumeClaimUnusedSinceTime");
    let unheard = Arc::new(UnheardUsers::default());
    let room = Controller {
        claims: claims.lister(),
        pods: pods.index(&BY_CLAIM),
        unheard: Arc::clone(&unheard),
        tells_use,
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "pvcprotection",
            kind: Some(&PERSISTENT_VOLUME_CLAIMS),
            settings: LoopSettings { workers: WORKERS, ..LoopSettings::default() },
            wake_ups: vec![
                claims.wakes(claims_to_decide(tells_use)),
                pods.wakes(claims_of_pods(claims.lister(), tells_use)),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(unheard)),
        }],
    })
}

/// A change of a claim concerns its own key, if there is something to decide.
fn claims_to_decide(tells_use: bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let Some(claim) = delta.typed::<PersistentVolumeClaim>().1 else { return };
        let is_untold = || tells_use && !claim.metadata.is_deleting() && condition(claim).is_none();
        if due(&claim.metadata, FINALIZER).is_some() || is_untold() {
            add(Key::of(&claim.metadata));
        }
    })
}

/// A change of a pod concerns the claims that it names and may use no longer; with the gate all that it names. Claims for which
/// there is nothing to decide are passed over: they bring their own keys when there is.
fn claims_of_pods(known: Lister<PersistentVolumeClaim>, tells_use: bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let hangs_on_pods =
            |meta: &ObjectMeta| due(meta, FINALIZER) == Some(Due::Take) || tells_use && !meta.is_deleting();
        let mut tell = |pod: &Pod| {
            let known =
                claims(pod).filter(|key| known.get(key).is_some_and(|claim| hangs_on_pods(&claim.metadata)));
            known.for_each(&mut *add);
        };
        let (old, new) = delta.typed::<Pod>();
        // One that was replaced under its name is gone.
        let gone = old.filter(|old| new.is_none_or(|new| new.metadata.uid != old.metadata.uid));
        gone.into_iter().for_each(&mut tell);
        let lets_go = |pod: &&Pod| {
            tells_use || pod.spec.node_name.is_empty() || pod.has_ended() || has_been_ended(&pod.metadata)
        };
        new.into_iter().filter(lets_go).for_each(&mut tell);
    })
}

/// Whether the kubelet is done with a pod, or it was deleted by force.
fn has_been_ended(pod: &ObjectMeta) -> bool {
    pod.is_deleting() && pod.deletion_grace_period_seconds == Some(0)
}

/// Whether no finalizer but that of a foreground deletion keeps a pod.
fn only_waits_for_dependents(pod: &ObjectMeta) -> bool {
    pod.finalizers.iter().all(|finalizer| finalizer == "foregroundDeletion")
}

/// Whether a pod keeps a claim from being deleted. One that is not bound does not: no kubelet starts a pod whose claim is being
/// deleted. A claim that is controlled by the pod does not wait for one that is ended and has finalizers left, for the pod may wait
/// for the claim: one that was made for an ephemeral volume, and one of a StatefulSet that deletes it with the pod, if only its foreground
/// deletion keeps the pod. With a finalizer of others, a pod that was deleted by force may still run on a node that is cut off. (The original
/// lets the first go alone: of the second both stay for ever if the set is deleted in the foreground.)
/// Differs: claims-of-ended-pods.
fn holds(pod: &Pod, claim: &ObjectMeta) -> bool {
    let may_hold = |source: &PodClaimSource| {
        let goes_with_it = match source {
            PodClaimSource::Named(_) => {
                claim.is_controlled_by(&pod.metadata) && only_waits_for_dependents(&pod.metadata)
            }
            PodClaimSource::Ephemeral(_) => true,
        };
        !(goes_with_it && has_been_ended(&pod.metadata))
    };
    !pod.spec.node_name.is_empty() && volumes_of(pod, claim).any(|volume| may_hold(&volume.source))
}

/// Whether a claim is in use, as the condition tells it: by a pod that has not ended, bound or not.
fn uses(pod: &Pod, claim: &ObjectMeta) -> bool {
    !pod.has_ended() && volumes_of(pod, claim).next().is_some()
}

/// What a claim says of its use.
fn condition(claim: &PersistentVolumeClaim) -> Option<&str> {
    let held = claim.status.conditions.iter().find(|held| held.r#type == UNUSED);
    held.map(|held| held.status.as_str())
}

/// The room: what it reads.
struct Controller {
    claims: Lister<PersistentVolumeClaim>,
    pods: Indexed<Pod>,
    unheard: Arc<UnheardUsers>,
    /// Whether claims say since when they have been unused.
    tells_use: bool,
}

impl Room<UnheardNote> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<UnheardNote> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
