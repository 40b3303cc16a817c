//! Owner references and who may manage what: the rules of adoption, release and ignoring.
//!
//! See "Owners and dependents" in the Kubernetes documentation. Decisions only; the writes are a plan's steps.

use serde_json::json;

use super::Patch;
use crate::api::Kind;
use crate::api::meta::{ObjectMeta, OwnerReference};

/// The reference by which `owner` manages an object: controller, blocking its owner's foreground deletion.
pub fn controller_reference(owner: &ObjectMeta, kind: &Kind) -> OwnerReference {
    OwnerReference {
        kind: kind.kind.into(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        api_version: kind.api_version().into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What a controller should do with an object that it came across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours and matches.
    Keep,
    /// Nobody's, it matches: add our reference, after a live check that the owner still exists and isn't deleting.
    Adopt,
    /// It is ours and no longer matches: remove our reference.
    Release,
    /// Not ours to touch.
    Ignore,
}

/// Decides about `object` for `owner`; `matches`: whether the owner's selector selects it.
pub fn claim(owner: &ObjectMeta, object: &ObjectMeta, matches: bool) -> Claim {
    match object.controller() {
        Some(reference) if reference.uid != owner.uid => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        // A deleting owner leaves its dependents to the garbage collector.
        Some(_) if owner.is_deleting() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if owner.is_deleting() || !matches || object.is_deleting() => Claim::Ignore,
        None if owner.namespace != object.namespace => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// The patch by which `owner` takes `object` over. It carries the object's UID: another one of its name is not touched.
pub fn adoption(owner: &ObjectMeta, kind: &Kind, object: &ObjectMeta) -> Patch {
    let reference = controller_reference(owner, kind);
    Patch::Strategic(json!({"metadata": {
        "uid": object.uid,
        "ownerReferences": [{
            "apiVersion": reference.api_version,
            "kind": reference.kind,
            "name": reference.name,
            "uid": reference.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    }}))
}

/// The patch by which `owner` lets go of `object`. It is refused as not found when the object is gone, and as invalid when
/// another one bears its name by now; either way there is nothing left to let go of.
pub fn release(owner: &ObjectMeta, object: &ObjectMeta) -> Patch {
    Patch::Strategic(json!({"metadata": {
        "uid": object.uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.uid}],
    }}))
}
