//! A claim and its volume, and how far this reconcile has come with them. Decides nothing.

use std::sync::Arc;

use super::Controller;
use crate::live_reads::EXPANDER_VOLUME;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::wire::{Quantities, Str};

/// What is grown.
const STORAGE: &str = "storage";

/// A claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// Its volume, if it is bound to one.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    /// Whether this reconcile has begun to grow it: the next steps are for the node.
    pub(super) has_begun: bool,
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let answered = read.answer(&PERSISTENT_VOLUME_CLAIMS, key).cloned().and_then(downcast);
    let has_begun = answered.is_some();
    let Some(claim) = answered.or_else(|| room.claims.get(key)) else { return Ok(Observation::Nothing) };
    if !is_bound(&claim) {
        return Ok(Observation::View(View { claim, volume: None, has_begun }));
    }
    let name = &claim.spec.volume_name;
    let at = Key::new("", name.clone());
    let answered = read.answer(&PERSISTENT_VOLUMES, &at).cloned().and_then(downcast);
    let cached = answered.or_else(|| room.volumes.get(&at)).filter(|volume| is_of(volume, &claim));
    if let Some(volume) = cached {
        return Ok(Observation::View(View { claim, volume: Some(volume), has_begun }));
    }
    let retry = |why: String| Err(ObserveError::Retry(why));
    match read.object(&PERSISTENT_VOLUMES, &at) {
        None => Ok(Observation::Needs(vec![EXPANDER_VOLUME.of(Read::Object(&PERSISTENT_VOLUMES, at))])),
        Some(Err(error)) => retry(format!("failed to get PV {name:?}: {}", error.message())),
        Some(Ok(None)) => retry(format!("failed to get PV {name:?}: persistentvolumes {name:?} not found")),
        Some(Ok(Some(live))) => match downcast::<PersistentVolume>(live.clone()) {
            Some(volume) if is_of(&volume, &claim) => {
                Ok(Observation::View(View { claim, volume: Some(volume), has_begun }))
            }
            _ => retry(format!("volume {name} of claim {key} is not bound to the claim")),
        },
    }
}

/// Whether a claim is bound.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.phase == "Bound"
}

/// Whether a volume is this very claim's.
fn is_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let is_it =
        |uid: &_, namespace: &Str| *uid == claim.metadata.uid && *namespace == claim.metadata.namespace;
    volume.spec.claim_ref.as_ref().is_some_and(|held| is_it(&held.uid, &held.namespace))
}

/// How much a claim asks for.
pub(super) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    amount(&claim.spec.resources.requests)
}

/// How much a claim has.
pub(super) fn capacity(claim: &PersistentVolumeClaim) -> Quantity {
    amount(&claim.status.capacity)
}

/// How large a volume is.
pub(super) fn size(volume: &PersistentVolume) -> Quantity {
    amount(&volume.spec.capacity)
}

/// How much storage there is among these, as it is written; `0` if none is.
pub(super) fn text(amounts: &Quantities) -> Str {
    amounts.get(STORAGE).cloned().unwrap_or_else(|| "0".into())
}

/// What the API server stores can be read; what cannot counts as nothing.
fn amount(amounts: &Quantities) -> Quantity {
    amounts.get(STORAGE).and_then(|text| text.parse().ok()).unwrap_or_default()
}
