//! A pod, and the claims of its ephemeral volumes. Decides nothing.

use std::sync::Arc;

use super::{Controller, needs_claims};
use coxswain_machinery::api::pod::{Pod, PodClaimSource};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Raw, Str};

/// A pod that is to have claims made for it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) pod: Arc<Pod>,
    /// Its ephemeral volumes, in the order of its spec.
    pub(super) volumes: Vec<EphemeralVolume>,
}

/// An ephemeral volume.
#[derive(Debug)]
pub(super) struct EphemeralVolume {
    /// Its name.
    pub(super) name: Str,
    /// Name of its claim.
    pub(super) claim: Str,
    /// What its claim is made from.
    pub(super) template: Raw,
    /// What there is of the claim.
    pub(super) found: Found,
}

/// What there is under the name of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The pod's claim.
    Ours,
    /// A claim of somebody else, or of nobody.
    Stranger,
}

pub(super) fn observe(room: &Controller, key: &Key) -> Option<View> {
    let pod = room.pods.get(key).filter(|pod| needs_claims(pod))?;
    let mut volumes = Vec::new();
    for volume in pod.claims.iter() {
        let PodClaimSource::Ephemeral(template) = &volume.source else { continue };
        let claim = volume.claim_name(&key.name);
        let found = match room.claims.get(&Key::new(key.namespace.clone(), claim.clone())) {
            None => Found::Nothing,
            Some(held) if held.metadata.is_controlled_by(&pod.metadata) => Found::Ours,
            Some(_) => Found::Stranger,
        };
        volumes.push(EphemeralVolume {
            name: volume.volume.clone(),
            claim,
            template: template.clone(),
            found,
        });
    }
    Some(View { pod, volumes })
}
