//! Makes a PersistentVolumeClaim, owned by the pod, for every generic ephemeral volume of a pod. See "Ephemeral Volumes" in the
//! Kubernetes documentation. What becomes of the claim is for others: it is bound, protected, and collected with its pod.
//!
//! | change of | keys |
//! |---|---|
//! | a pod that is new, is not being deleted and has such a volume | its own |
//! | a claim that is gone | such pods that name it |
//!
//! What it rests on: a claim of that name is the pod's if the pod, by its UID, is its controller. One of anybody else stays as it is,
//! and the pod waits. A create of a claim that the cache does not know yet is refused by the API server.
//!
//! It never changes, adopts or deletes a claim, and never writes a pod.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS};
use coxswain_machinery::api::pod::{Pod, PodClaimSource};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

use super::claims::{BY_CLAIM, claim_key};

mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use metrics::Metrics;
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ephemeral-volume-controller",
    aliases: &["ephemeral-volume"],
    description: "Creates the PersistentVolumeClaims of ephemeral volumes in Pods.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("ephemeral-volume-controller"),
    event_source: Some("ephemeral_volume"),
    writes: &[
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        // For `blockOwnerDeletion`, where admission asks for it.
        Grant { group: "", resource: "pods/finalizers", verbs: &["update"] },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["create", "list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<Pod>(&PODS);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let room = Controller { pods: pods.lister(), claims: claims.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "ephemeral_volume",
            kind: Some(&PODS),
            settings: LoopSettings::with_workers(build.config.flags.concurrent_ephemeralvolume_syncs),
            wake_ups: vec![pods.wakes(new_pods()), claims.wakes(pods_of_claims(pods.index(&BY_CLAIM)))],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// Whether a pod is to have claims made for it.
fn needs_claims(pod: &Pod) -> bool {
    let is_ephemeral = |source: &PodClaimSource| matches!(source, PodClaimSource::Ephemeral(_));
    !pod.metadata.is_deleting() && pod.claims.iter().any(|volume| is_ephemeral(&volume.source))
}

/// A pod that appears, or takes the place of another of its name.
fn new_pods() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let is_new = |pod: &&Pod| old.is_none_or(|old| old.metadata.uid != pod.metadata.uid);
        if let Some(pod) = new.filter(is_new).filter(|pod| needs_claims(pod)) {
            add(Key::of(&pod.metadata));
        }
    })
}

/// A claim that is gone, or whose place another has taken, concerns the pods that name it.
fn pods_of_claims(pods: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolumeClaim>();
        let is_gone =
            |old: &&PersistentVolumeClaim| new.is_none_or(|new| new.metadata.uid != old.metadata.uid);
        let Some(gone) = old.filter(is_gone) else { return };
        for pod in pods.filed(&claim_key(&Key::of(&gone.metadata))) {
            if needs_claims(&pod) {
                add(Key::of(&pod.metadata));
            }
        }
    })
}

/// The room: what it reads.
struct Controller {
    pods: Lister<Pod>,
    claims: Lister<PersistentVolumeClaim>,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key).into())
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
