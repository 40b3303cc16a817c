//! A pod, how it mounts its volumes, and who else mounts them. Decides nothing.

use std::sync::Arc;

use super::Controller;
use super::conflict::Mounted;
use super::mounts::{Mount, Mounts, mounts};
use coxswain_machinery::api::kinds::SELINUX_PODS;
use coxswain_machinery::api::pod::selinux::SelinuxPod;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Regarding;
use coxswain_machinery::wire::Str;

/// A pod.
#[derive(Debug)]
pub(super) struct View {
    /// The pod; `None` if it is gone or has ended.
    pub(super) pod: Option<Arc<SelinuxPod>>,
    /// The volumes that its containers mount with several labels, by their names in the pod.
    pub(super) several: Vec<Str>,
    /// Why others cannot be told of now.
    pub(super) unresolved: Vec<String>,
    /// The others.
    pub(super) volumes: Vec<Shared>,
}

/// A volume that the pod mounts.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mount: Mount,
    /// Whether that was seen before, and told.
    pub(super) is_told: bool,
    /// The other pods that mount it.
    pub(super) others: Vec<Other>,
}

/// Another pod that mounts a volume.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) key: Key,
    pub(super) mounted: Mounted,
    /// How to tell of it; `None` if it is gone.
    pub(super) regarding: Option<Regarding>,
}

/// Whether a pod has come to its end.
pub(super) fn has_ended(pod: &SelinuxPod) -> bool {
    pod.status.phase == "Failed" || pod.status.phase == "Succeeded"
}

pub(super) fn observe(room: &Controller, key: &Key) -> View {
    let Some(pod) = room.pods.get(key).filter(|pod| !has_ended(pod)) else {
        return View { pod: None, several: Vec::new(), unresolved: Vec::new(), volumes: Vec::new() };
    };
    let Mounts { known, several, unresolved } = mounts(room, &pod);
    let shared = |mount: Mount| {
        let seen = room.record.seen(key, &pod.metadata.uid, &mount.unique);
        let others = room.record.others(key, &mount.unique).into_iter().map(|(key, mounted)| {
            let regarding = room.pods.get(&key).map(|pod| Regarding::of(&SELINUX_PODS, &pod.metadata));
            Other { key, mounted, regarding }
        });
        Shared { is_told: seen.as_ref() == Some(&mount.mounted), others: others.collect(), mount }
    };
    let volumes = known.into_iter().map(shared).collect();
    View { pod: Some(pod), several, unresolved, volumes }
}
