//! Which claims and volumes a change concerns, beside its own object.

use std::sync::Arc;

use super::facts::{BIND_COMPLETED, has, same_mode};
use super::recycler::volume_of;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Claims by the name of the volume that they name and are not bound to.
pub(super) static NAMING: Index = Index { name: "naming", keys: naming };

fn naming(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let is_open = |claim: &&PersistentVolumeClaim| {
        !claim.spec.volume_name.is_empty() && !has(&claim.metadata, BIND_COMPLETED)
    };
    let claim = any.downcast_ref::<PersistentVolumeClaim>().filter(is_open);
    claim.map(|claim| naming_key(&claim.spec.volume_name)).into_iter().collect()
}

fn naming_key(volume: &str) -> Str {
    format!("naming/{volume}").into()
}

/// The claim that a volume was bound to, when the volume is gone; and the one that it is linked to, with or without its UID, as long as that
/// does not name it; and claims that name the volume and are not bound. kube-controller-manager finds the latter with the next resync.
/// Differs: named-volumes-at-once.
pub(super) fn claims_of_volumes(
    claims: Lister<PersistentVolumeClaim>,
    naming: Indexed<PersistentVolumeClaim>,
) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolume>();
        let Some(volume) = new else {
            let held = old.and_then(|volume| volume.spec.claim_ref.as_ref());
            if let Some(held) = held {
                add(Key::new(held.namespace.clone(), held.name.clone()));
            }
            return;
        };
        for claim in naming.filed(&naming_key(&volume.metadata.name)) {
            add(Key::of(&claim.metadata));
        }
        let Some(held) = volume.spec.claim_ref.as_ref() else { return };
        let key = Key::new(held.namespace.clone(), held.name.clone());
        let waits =
            |claim: &PersistentVolumeClaim| claim.spec.volume_name.is_empty() && same_mode(volume, claim);
        if claims.get(&key).is_some_and(|claim| waits(&claim)) {
            add(key);
        }
    })
}

/// The volume of a claim that is gone. kube-controller-manager finds it with the next resync if the next claim of the name is there before
/// its worker of claims has looked. Differs: released-at-once.
pub(super) fn volumes_of_claims() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (Some(claim), None) = delta.typed::<PersistentVolumeClaim>() else { return };
        if !claim.spec.volume_name.is_empty() {
            add(Key::new("", claim.spec.volume_name.clone()));
        }
    })
}

/// The volume that a Pod empties, when the Pod has ended or is gone.
pub(super) fn volumes_of_recyclers() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let Some(pod) = new.or(old) else { return };
        let is_over = new.is_none_or(Pod::is_finished);
        if let Some(volume) = volume_of(&pod.metadata.name).filter(|_| is_over && !delta.resync) {
            add(Key::new("", volume));
        }
    })
}
