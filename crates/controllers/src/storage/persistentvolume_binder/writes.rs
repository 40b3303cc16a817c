//! The bodies of what is written. Each is spliced from an object's own bytes, or from the answer to the write before, and carries the
//! resource version of that. Pure.

use super::facts::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, attributes_of, before_resize, has, is_meant_for, storage,
};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use coxswain_machinery::api::meta::{ObjectMeta, QuantityText};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::model::metadata::annotation_edit;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::model::{Key, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, Path, Str, WireError, path};

const YES: &str = "yes";

/// The writes of one plan about one object: each builds on the answer of the one before.
pub(super) struct Chain<'a> {
    kind: &'static Kind,
    object: &'a dyn Object,
    steps: Vec<Step>,
}

impl<'a> Chain<'a> {
    pub(super) fn of_volume(volume: &'a PersistentVolume) -> Self {
        Self { kind: &PERSISTENT_VOLUMES, object: volume, steps: Vec::new() }
    }

    pub(super) fn of_claim(claim: &'a PersistentVolumeClaim) -> Self {
        Self { kind: &PERSISTENT_VOLUME_CLAIMS, object: claim, steps: Vec::new() }
    }

    /// The object is written with these edits, if there are any: itself, or its status.
    pub(super) fn then(mut self, subresource: &'static str, edits: Vec<Edit>) -> Result<Self, WireError> {
        if edits.is_empty() {
            return Ok(self);
        }
        let verb = if self.steps.is_empty() {
            Verb::Update(edit(&self.object.raw(), &edits)?.into())
        } else {
            Verb::UpdateLast(edits)
        };
        let key = Key::of(self.object.meta());
        self.steps.push(Step::Write(Write::new(self.kind, key, verb).on(subresource)));
        Ok(self)
    }

    pub(super) fn steps(self) -> Vec<Step> {
        self.steps
    }
}

/// How a volume is linked to a claim.
pub(super) fn volume_link(volume: &PersistentVolume, claim: &ObjectMeta) -> Vec<Edit> {
    let held = volume.spec.claim_ref.as_deref();
    let was_named = is_meant_for(volume, claim);
    let mut edits = Vec::new();
    if !(was_named && held.is_some_and(|held| held.uid == claim.uid)) {
        let reference = ObjectReference {
            kind: PERSISTENT_VOLUME_CLAIMS.kind.into(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.to_str(),
            api_version: "v1".into(),
            resource_version: claim.resource_version.clone(),
            ..ObjectReference::default()
        };
        edits.push(Edit::SetBytes(path!(PersistentVolume, spec.claimRef), reference.to_bytes()));
    }
    if !was_named && !has(&volume.metadata, BOUND_BY_CONTROLLER) {
        edits.push(annotation_edit(BOUND_BY_CONTROLLER, Some(YES.to_owned())));
    }
    edits
}

/// How a volume is taken from its claim. A link that a user made stays, without the claim's UID.
pub(super) fn volume_unlink(volume: &PersistentVolume) -> Vec<Edit> {
    if has(&volume.metadata, BOUND_BY_CONTROLLER) {
        let link = Edit::Clear(path!(PersistentVolume, spec.claimRef));
        vec![link, annotation_edit(BOUND_BY_CONTROLLER, None)]
    } else {
        vec![Edit::Clear(path!(PersistentVolume, spec.claimRef.uid))]
    }
}

/// How a volume's status becomes this one; nothing if it is in that phase.
pub(super) fn volume_phase(volume: &PersistentVolume, phase: &str, message: &str) -> Vec<Edit> {
    if volume.status.phase == phase {
        return Vec::new();
    }
    let at = path!(PersistentVolume, status.message);
    let told = if message.is_empty() { Edit::Clear(at) } else { Edit::set_text(at, message) };
    vec![Edit::set_text(path!(PersistentVolume, status.phase), phase), told]
}

/// How a claim is linked to a volume.
pub(super) fn claim_link(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Edit> {
    let mut edits = Vec::new();
    if claim.spec.volume_name != volume.metadata.name {
        edits.push(Edit::set_text(path!(PersistentVolumeClaim, spec.volumeName), &volume.metadata.name));
        if !has(&claim.metadata, BOUND_BY_CONTROLLER) {
            edits.push(annotation_edit(BOUND_BY_CONTROLLER, Some(YES.to_owned())));
        }
    }
    if !has(&claim.metadata, BIND_COMPLETED) {
        edits.push(annotation_edit(BIND_COMPLETED, Some(YES.to_owned())));
    }
    edits
}

/// How the status of a claim becomes that of one that is bound to a volume; `None` if the volume does not say how large it is. How much a
/// bound claim has is the resizer's to say. `knows_attributes` is the gate `VolumeAttributesClass`.
pub(super) fn claim_bound(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    knows_attributes: bool,
) -> Option<Vec<Edit>> {
    let status = &claim.status;
    let mut edits = Vec::new();
    if status.access_modes != volume.spec.access_modes {
        let at = path!(PersistentVolumeClaim, status.accessModes);
        edits.push(Edit::Clear(at));
        edits.extend(volume.spec.access_modes.iter().map(|mode| Edit::push_text(at, mode)));
    }
    if status.phase == "Bound" {
        return Some(edits);
    }
    let phase = path!(PersistentVolumeClaim, status.phase);
    edits.push(Edit::set_text(phase, "Bound"));
    let size = storage(&volume.spec.capacity)?;
    let at = path!(PersistentVolumeClaim, status.capacity);
    if let Some(before) = before_resize(volume) {
        let is_amount = before.parse::<Quantity>().is_ok();
        edits.push(amount(at, "storage", if is_amount { before } else { size }));
    } else if storage(&status.capacity).is_none_or(|held| !alike(held, size)) {
        edits.push(Edit::Clear(at));
        edits.extend(volume.spec.capacity.iter().map(|(resource, held)| amount(at, resource, held)));
    }
    let attributes = attributes_of(volume);
    let is_other = knows_attributes && status.current_volume_attributes_class_name != attributes;
    if status.phase == "Pending" && is_other {
        let at = path!(PersistentVolumeClaim, status.currentVolumeAttributesClassName);
        edits.push(if attributes.is_empty() { Edit::Clear(at) } else { Edit::set_text(at, attributes) });
    }
    Some(edits)
}

/// How the status of a claim becomes that of one without a volume, in this phase.
pub(super) fn claim_without_volume(claim: &PersistentVolumeClaim, phase: &str) -> Vec<Edit> {
    let status = &claim.status;
    let is_bare = status.access_modes.is_empty()
        && status.capacity.is_empty()
        && status.current_volume_attributes_class_name.is_empty();
    if status.phase == phase && is_bare {
        return Vec::new();
    }
    vec![
        Edit::set_text(path!(PersistentVolumeClaim, status.phase), phase),
        Edit::Clear(path!(PersistentVolumeClaim, status.accessModes)),
        Edit::Clear(path!(PersistentVolumeClaim, status.capacity)),
        Edit::Clear(path!(PersistentVolumeClaim, status.currentVolumeAttributesClassName)),
    ]
}

/// How a claim gets a class.
pub(super) fn claim_class(class: &Str) -> Vec<Edit> {
    let at = path!(PersistentVolumeClaim, spec.storageClassName);
    vec![Edit::set_text(at, class)]
}

fn amount(at: Path, resource: &str, amount: &str) -> Edit {
    let quantity = QuantityText { string: amount.into() };
    Edit::MapSetBytes(at, resource.to_owned(), quantity.to_bytes())
}

fn alike(one: &str, other: &str) -> bool {
    match (one.parse::<Quantity>(), other.parse::<Quantity>()) {
        (Ok(one), Ok(other)) => one.equals(other),
        _ => one == other,
    }
}
