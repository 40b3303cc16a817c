//! What claims and volumes say of themselves: classes, sizes, modes, and what annotations stand for. Pure.

use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::wire::{Quantities, Str};

/// On a claim: it was bound, and is never bound anew.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: the binder made the link, and may take it back.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: the provisioner that made it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim or a volume: the CSI driver that took over what it was made by.
pub(super) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a claim: the provisioner that is to make its volume.
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, by its older name.
pub(super) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: the node that the scheduler chose for the first pod.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim or a volume: its class, as it was said before there was a field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a volume that grew: how much its claim had before.
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// On a class: claims without a class get this one.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

const STORAGE: &str = "storage";

/// The class that a claim asks for; empty for none.
pub(super) fn class_of_claim(claim: &PersistentVolumeClaim) -> Str {
    let said = claim.metadata.annotations.get(BETA_CLASS).or(claim.spec.storage_class_name.as_ref());
    said.cloned().unwrap_or_default()
}

/// Whether a claim says its class, be it that it has none.
pub(super) fn has_class(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.contains_key(BETA_CLASS) || claim.spec.storage_class_name.is_some()
}

/// The class of a volume; empty for none.
pub(super) fn class_of_volume(volume: &PersistentVolume) -> &Str {
    volume.metadata.annotations.get(BETA_CLASS).unwrap_or(&volume.spec.storage_class_name)
}

/// The class of attributes of a volume; empty for none.
pub(super) fn attributes_of(volume: &PersistentVolume) -> &str {
    volume.spec.volume_attributes_class_name.as_ref().map_or("", Str::as_str)
}

/// A volume mode, which is `Filesystem` where nothing is said.
pub(super) fn mode(said: Option<&Str>) -> &str {
    said.map_or("Filesystem", Str::as_str)
}

/// Whether a volume and a claim are of one mode.
pub(super) fn same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    mode(volume.spec.volume_mode.as_ref()) == mode(claim.spec.volume_mode.as_ref())
}

/// How much storage a claim asks for.
pub(super) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    amount(&claim.spec.resources.requests)
}

/// How large a volume is.
pub(super) fn size(volume: &PersistentVolume) -> Quantity {
    amount(&volume.spec.capacity)
}

/// How large a volume says it is; `None` if it does not.
pub(super) fn storage(amounts: &Quantities) -> Option<&Str> {
    amounts.get(STORAGE)
}

/// How much the claim of a volume had before the volume grew, if that can be read.
pub(super) fn before_resize(volume: &PersistentVolume) -> Option<&Str> {
    volume.metadata.annotations.get(PRE_RESIZE)
}

/// What the API server stores can be read; what cannot counts as nothing.
fn amount(amounts: &Quantities) -> Quantity {
    storage(amounts).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// An annotation that is there and not empty.
pub(super) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a Str> {
    meta.annotations.get(name).filter(|value| !value.is_empty())
}

/// Whether an object has an annotation, whatever it says.
pub(super) fn has(meta: &ObjectMeta, name: &str) -> bool {
    meta.annotations.contains_key(name)
}

/// Whether a volume is meant for this very claim: by namespace and name, and by UID if it says one.
pub(super) fn is_meant_for(volume: &PersistentVolume, claim: &ObjectMeta) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|held| {
        held.namespace == claim.namespace
            && held.name == claim.name
            && (held.uid.is_empty() || held.uid == claim.uid)
    })
}

/// The claim that a volume was bound to, if it says which one: by UID.
pub(super) fn claimed_by(volume: &PersistentVolume) -> Option<Key> {
    let held = volume.spec.claim_ref.as_ref().filter(|held| !held.uid.is_empty())?;
    Some(Key::new(held.namespace.clone(), held.name.clone()))
}

/// Whether a volume was made for its claim, and goes with it.
pub(super) fn is_dynamic(volume: &PersistentVolume) -> bool {
    has(&volume.metadata, PROVISIONED_BY) && volume.spec.persistent_volume_reclaim_policy == "Delete"
}

/// Whether volumes of a class are bound when the first pod is scheduled. A class that is not there does not wait.
pub(super) fn waits_for_consumer(class: Option<&StorageClass>) -> bool {
    let mode = class.and_then(|class| class.volume_binding_mode.as_ref());
    mode.is_some_and(|mode| mode == "WaitForFirstConsumer")
}

/// The class that claims without one get: of several the newest, then the first by name.
pub(super) fn default_class<'a>(classes: impl IntoIterator<Item = &'a StorageClass>) -> Option<Str> {
    let is_default = |class: &&StorageClass| {
        let says = |name: &&str| class.metadata.annotations.get(name).is_some_and(|said| said == "true");
        DEFAULT_CLASS.iter().any(says)
    };
    let order = |class: &&StorageClass| {
        (std::cmp::Reverse(class.metadata.creation_timestamp), class.metadata.name.clone())
    };
    classes.into_iter().filter(is_default).min_by_key(order).map(|class| class.metadata.name.clone())
}
