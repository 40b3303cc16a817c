//! Which volume a claim gets, and why one does not suit. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::{
    attributes_of, class_of_claim, class_of_volume, is_meant_for, requested, same_mode, size,
};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::model::selector::{Selector, SelectorError};
use coxswain_machinery::wire::Str;

/// Why a volume that a claim names does not suit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    Deleting,
    Size,
    Class,
    Attributes,
    Mode,
    Access,
}

impl Mismatch {
    /// As the event has it.
    pub(super) fn text(self, volume: &str) -> String {
        match self {
            Self::Deleting => format!("the volume is marked for deletion {volume:?}"),
            Self::Size => "requested PV is too small".to_owned(),
            Self::Class => "storageClassName does not match".to_owned(),
            Self::Attributes => "volumeAttributesClassName does not match".to_owned(),
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
    let selector = claim.spec.selector.as_deref().map(Selector::compile).transpose()?;
    let class = class_of_claim(claim);
    let wanted = requested(claim);
    let mut groups: BTreeMap<(usize, Vec<&Str>), Group<'_>> = BTreeMap::new();
    for volume in candidates {
        let is_meant = is_meant_for(volume, &claim.metadata);
        let is_out = volume.spec.claim_ref.is_some() && !is_meant
            || wanted.exceeds(size(volume))
            || !same_mode(volume, claim)
            || attributes_of(volume) != claim.spec.volume_attributes_class_name.as_str()
            || volume.metadata.is_deleting()
            || !offers(volume, claim);
        let is_free = || {
            !waits
                && volume.status.phase == "Available"
                && *class_of_volume(volume) == class
                && selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
        };
        if is_out || !is_meant && !is_free() {
            continue;
        }
        let mut modes: Vec<&Str> = volume.spec.access_modes.iter().collect();
        modes.sort_unstable_by_key(|mode| mode.as_str());
        modes.dedup();
        groups.entry((modes.len(), modes)).or_default().take(volume, is_meant);
    }
    Ok(groups.into_values().next().and_then(Group::winner))
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
