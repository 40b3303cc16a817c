//! Which claims and volumes a change concerns, beside its own object.

use std::sync::Arc;

use super::facts::{claimed_by, same_mode};
use super::recycler::volume_of;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::Key;

/// The claim that a volume was bound to, when the volume is gone; and the one that it is linked to, as long as that does not name it.
pub(super) fn claims_of_volumes(claims: Lister<PersistentVolumeClaim>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolume>();
        let Some(volume) = new else {
            let held = old.and_then(|volume| volume.spec.claim_ref.as_ref());
            if let Some(held) = held {
                add(Key::new(held.namespace.clone(), held.name.clone()));
            }
            return;
        };
        let Some(key) = claimed_by(volume) else { return };
        let waits =
            |claim: &PersistentVolumeClaim| claim.spec.volume_name.is_empty() && same_mode(volume, claim);
        if claims.get(&key).is_some_and(|claim| waits(&claim)) {
            add(key);
        }
    })
}

/// The volume of a claim that is gone.
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
