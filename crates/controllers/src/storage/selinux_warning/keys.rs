//! Which pods a change concerns.

use std::sync::Arc;

use super::record::Record;
use super::view::has_ended;
use crate::storage::claims::claim_key;
use coxswain_machinery::api::pod::selinux::SelinuxPod;
use coxswain_machinery::api::storage::{CsiDriver, PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::api::{Index, IndexKeys, Object, distinct};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Pods by the claims that they name.
pub(super) static BY_CLAIM: Index = Index { name: "claim", keys: by_claim };

fn by_claim(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(pod) = any.downcast_ref::<SelinuxPod>() else { return IndexKeys::new() };
    let meta = &pod.metadata;
    let key = |name: Str| claim_key(&Key::new(meta.namespace.clone(), name));
    distinct(pod.claims.iter().map(|volume| key(volume.claim_name(&meta.name))))
}

/// A pod that comes, ends, goes, or takes the place of another of its name.
pub(super) fn own() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let concerns = match delta.typed::<SelinuxPod>() {
            (Some(old), Some(new)) => {
                old.metadata.uid != new.metadata.uid || has_ended(new) && !has_ended(old)
            }
            _ => true,
        };
        if let Some(pod) = delta.latest().filter(|_| concerns) {
            add(Key::of(pod.meta()));
        }
    })
}

/// A claim with another volume or phase concerns the pods that name it.
pub(super) fn of_claims(pods: Indexed<SelinuxPod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolumeClaim>();
        let Some(claim) = new.filter(|claim| !claim.spec.volume_name.is_empty()) else { return };
        let is_alike = |old: &PersistentVolumeClaim| {
            old.spec.volume_name == claim.spec.volume_name && old.status.phase == claim.status.phase
        };
        if !old.is_some_and(is_alike) {
            tell(&pods, &Key::of(&claim.metadata), add);
        }
    })
}

/// A volume with another claim concerns the pods that name that.
pub(super) fn of_volumes(pods: Indexed<SelinuxPod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolume>();
        let claim =
            |volume: &PersistentVolume| volume.spec.claim_ref.clone().filter(|claim| !claim.uid.is_empty());
        let Some(now) = new.and_then(claim) else { return };
        if old.and_then(claim).is_none_or(|before| before.uid != now.uid) {
            tell(&pods, &Key::new(now.namespace.clone(), now.name.clone()), add);
        }
    })
}

/// A CSI driver that begins or ceases to mount with labels concerns the pods that were seen with its volumes.
pub(super) fn of_drivers(record: Arc<Record>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<CsiDriver>();
        let mounts = |driver: &CsiDriver| driver.spec.se_linux_mount == Some(true);
        if old.is_some_and(mounts) != new.is_some_and(mounts)
            && let Some(driver) = delta.latest()
        {
            record.with_driver(&driver.meta().name).into_iter().for_each(add);
        }
    })
}

fn tell(pods: &Indexed<SelinuxPod>, claim: &Key, add: &mut dyn FnMut(Key)) {
    for pod in pods.filed(&claim_key(claim)) {
        add(Key::of(&pod.metadata));
    }
}
