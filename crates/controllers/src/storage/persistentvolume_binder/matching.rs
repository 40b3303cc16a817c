//! Which volume a claim gets, and why one does not suit. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::{
    attributes_of, class_of_claim, class_of_volume, is_meant_for, requested, same_mode, size,
};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::model::selector::{Selector, SelectorError};
use coxswain_machinery::wire::Str;

/// Why a volume that a claim names does not suit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    Deleting,
    Size,
    Class,
    Attributes,
    /// One of both has a class of attributes, and the gate `VolumeAttributesClass` is off.
    AttributesDisabled,
    Mode,
    Access,
}

/// Error about a class of attributes while the gate `VolumeAttributesClass` is off.
pub(super) const NO_ATTRIBUTES: &str =
    "volumeAttributesClassName is not supported when the feature-gate VolumeAttributesClass is disabled";

impl Mismatch {
    /// As the event has it.
    pub(super) fn text(self, volume: &str) -> String {
        match self {
            Self::Deleting => format!("the volume is marked for deletion {volume:?}"),
            Self::Size => "requested PV is too small".to_owned(),
            Self::Class => "storageClassName does not match".to_owned(),
            Self::Attributes => "volumeAttributesClassName does not match".to_owned(),
            Self::AttributesDisabled => NO_ATTRIBUTES.to_owned(),
            Self::Mode => "incompatible volumeMode".to_owned(),
            Self::Access => "incompatible accessMode".to_owned(),
        }
    }
}

/// Whether a volume that a claim names suits it; the first thing that does not.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Mismatch> {
    let table = [
        (volume.metadata.is_deleting(), Mismatch::Deleting),
        (requested(claim).rounded_up().exceeds(size(volume).rounded_up()), Mismatch::Size),
        (*class_of_volume(volume) != class_of_claim(claim), Mismatch::Class),
        (attributes_of(volume) != claim.spec.volume_attributes_class_name.as_str(), Mismatch::Attributes),
        (!same_mode(volume, claim), Mismatch::Mode),
        (!offers(volume, claim), Mismatch::Access),
    ];
    table.into_iter().find_map(|(fails, why)| fails.then_some(why))
}

/// Whether a volume can be used in all the ways that a claim asks for.
fn offers(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    // Linear: administrators make volumes, and there are four modes.
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

/// The volume among these that a claim gets; `None` if it gets none. Where the claim `waits` for its first consumer, only one that
/// is meant for it. Volumes are grouped by how they can be used, and the group that offers least decides; of equals the first by
/// name wins.
///
/// # Errors
/// The claim's selector makes no sense.
pub(super) fn best(
    claim: &PersistentVolumeClaim,
    waits: bool,
    candidates: &[Arc<PersistentVolume>],
) -> Result<Option<Arc<PersistentVolume>>, SelectorError> {
    let wish = Wish::of(claim)?;
    let mut groups: BTreeMap<AccessModes, Group<'_>> = BTreeMap::new();
    for volume in candidates {
        let is_meant = is_meant_for(volume, &claim.metadata);
        let suits = if is_meant { wish.suits_meant(volume) } else { !waits && wish.suits_free(volume) };
        if suits {
            groups.entry(AccessModes::of(volume)).or_default().take(volume, is_meant);
        }
    }
    Ok(groups.into_values().next().and_then(Group::winner))
}

/// What a claim wishes of its volume.
pub(super) struct Wish<'a> {
    claim: &'a PersistentVolumeClaim,
    selector: Option<Selector>,
    class: Str,
    size: Quantity,
}

impl<'a> Wish<'a> {
    /// # Errors
    /// The claim's selector makes no sense.
    pub(super) fn of(claim: &'a PersistentVolumeClaim) -> Result<Self, SelectorError> {
        let selector = claim.spec.selector.as_deref().map(Selector::compile).transpose()?;
        Ok(Self { claim, selector, class: class_of_claim(claim), size: requested(claim) })
    }

    pub(super) fn claim(&self) -> &PersistentVolumeClaim {
        self.claim
    }

    pub(super) fn class(&self) -> &str {
        &self.class
    }

    pub(super) fn size(&self) -> Quantity {
        self.size
    }

    /// Whether a volume that is meant for the claim suits it, whatever its class, labels and phase.
    fn suits_meant(&self, volume: &PersistentVolume) -> bool {
        !self.size.exceeds(size(volume))
            && same_mode(volume, self.claim)
            && attributes_of(volume) == self.claim.spec.volume_attributes_class_name.as_str()
            && !volume.metadata.is_deleting()
            && offers(volume, self.claim)
    }

    /// Whether a volume is free and suits the claim.
    fn suits_free(&self, volume: &PersistentVolume) -> bool {
        volume.spec.claim_ref.is_none()
            && volume.status.phase == "Available"
            && self.may_be(volume)
            && self.suits_meant(volume)
    }

    /// Whether a free volume may suit the claim, by what the binder never writes: an older state of the volume says the same.
    pub(super) fn may_be(&self, volume: &PersistentVolume) -> bool {
        same_mode(volume, self.claim)
            && attributes_of(volume) == self.claim.spec.volume_attributes_class_name.as_str()
            && *class_of_volume(volume) == self.class
            && self.selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
    }

    /// Whether the claim may get this volume: one that is free, or one that is meant for it.
    pub(super) fn suits(&self, volume: &PersistentVolume) -> bool {
        if is_meant_for(volume, &self.claim.metadata) {
            self.suits_meant(volume)
        } else {
            self.suits_free(volume)
        }
    }
}

/// How a volume can be used, in order: what offers less comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AccessModes(usize, Vec<Str>);

impl AccessModes {
    pub(super) fn of(volume: &PersistentVolume) -> Self {
        let mut modes: Vec<Str> = volume.spec.access_modes.clone();
        modes.sort_unstable();
        modes.dedup();
        Self(modes.len(), modes)
    }

    /// Whether a volume with these can be used in all the ways that a claim asks for.
    pub(super) fn offer(&self, claim: &PersistentVolumeClaim) -> bool {
        claim.spec.access_modes.iter().all(|mode| self.1.binary_search(mode).is_ok())
    }
}

/// The best of the volumes that can be used alike.
#[derive(Default)]
struct Group<'a> {
    meant: Option<&'a Arc<PersistentVolume>>,
    smallest: Option<&'a Arc<PersistentVolume>>,
}

impl<'a> Group<'a> {
    fn take(&mut self, volume: &'a Arc<PersistentVolume>, is_meant: bool) {
        let name = |held: &Arc<PersistentVolume>| held.metadata.name.clone();
        if is_meant {
            let is_first = self.meant.is_none_or(|held| name(volume) < name(held));
            self.meant = if is_first { Some(volume) } else { self.meant };
            return;
        }
        let is_better = self.smallest.is_none_or(|held| {
            let (ours, theirs) = (size(volume), size(held));
            theirs.exceeds(ours) || ours.equals(theirs) && name(volume) < name(held)
        });
        self.smallest = if is_better { Some(volume) } else { self.smallest };
    }

    fn winner(self) -> Option<Arc<PersistentVolume>> {
        self.meant.or(self.smallest).cloned()
    }
}
