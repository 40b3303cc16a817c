//! Owner references and who may manage what: the rules of adoption, release and ignoring.
//!
//! See "Owners and dependents" in the Kubernetes documentation. Decisions only; the writes are a plan's steps.

use serde_json::json;

use super::Patch;
use crate::api::Kind;
use crate::api::meta::{ObjectMeta, OwnerReference};
use crate::wire::Uid;

/// A controller as its dependents name it: by kind, name and UID, in their own namespace. It is made of an object or of a reference
/// in one and has no other constructor, so `Dependents` look none up by a UID alone: a user writes references, and copies them to
/// other namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerKey<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a Uid,
    kind: &'a str,
    name: &'a str,
}

impl<'a> ControllerKey<'a> {
    /// The key of a namespaced object: the dependents of one without a namespace may be in any.
    pub fn of(object: &'a ObjectMeta, kind: &Kind) -> Self {
        debug_assert!(kind.namespaced, "{kind} is cluster-scoped");
        Self { namespace: &object.namespace, uid: &object.uid, kind: kind.kind, name: &object.name }
    }

    /// The key of the controller that an object names.
    pub fn named_by(object: &'a ObjectMeta) -> Option<Self> {
        let named = object.controller()?;
        Some(Self { namespace: &object.namespace, uid: &named.uid, kind: &named.kind, name: &named.name })
    }

    /// Whether an object names it, by kind, name and UID.
    pub fn is_named_by(&self, object: &ObjectMeta) -> bool {
        ControllerKey::named_by(object).is_some_and(|named| named == *self)
    }

    /// Whether an object names it, by its UID and under whatever kind and name.
    pub fn has_uid_in(&self, object: &ObjectMeta) -> bool {
        ControllerKey::named_by(object)
            .is_some_and(|named| (named.namespace, named.uid) == (self.namespace, self.uid))
    }
}

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

/// Whose an object is, as its controller reference says.
enum Holder {
    Us,
    Nobody,
    Other,
}

/// Decides about `object` for `owner`; `matches`: whether the owner's selector selects it.
///
/// | whose | selected | the owner goes | what to do |
/// |---|---|---|---|
/// | ours | yes | either | keep it, even when it goes itself |
/// | ours | no | no | release it |
/// | nobody's | yes | no | adopt it, if it does not go itself |
///
/// All else is ignored, and so is every object of another namespace than the owner's, whatever its references are: a user writes
/// these. What a deleting owner leaves behind is the garbage collector's.
pub fn claim(owner: &ObjectMeta, object: &ObjectMeta, matches: bool) -> Claim {
    let holder = match object.controller() {
        _ if !object.is_in_reach_of(owner) => Holder::Other,
        None => Holder::Nobody,
        Some(reference) if reference.uid == owner.uid => Holder::Us,
        Some(_) => Holder::Other,
    };
    match (holder, matches, owner.is_deleting()) {
        (Holder::Us, true, _) => Claim::Keep,
        (Holder::Us, false, false) => Claim::Release,
        (Holder::Nobody, true, false) if !object.is_deleting() => Claim::Adopt,
        _ => Claim::Ignore,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Time;

    fn meta(uid: &str, namespace: &str, is_deleting: bool) -> ObjectMeta {
        ObjectMeta {
            uid: uid.into(),
            namespace: namespace.into(),
            deletion_timestamp: if is_deleting { Time::from_seconds(1) } else { None },
            ..ObjectMeta::default()
        }
    }

    fn referring_to(uid: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference { uid: uid.into(), controller, ..OwnerReference::default() }
    }

    /// Whether the owner's selector selects the object, and whether owner and object go.
    const STATES: [(bool, bool, bool); 8] = [
        (true, false, false),
        (true, false, true),
        (true, true, false),
        (true, true, true),
        (false, false, false),
        (false, false, true),
        (false, true, false),
        (false, true, true),
    ];

    #[test]
    fn every_case_of_a_claim() {
        use Claim::{Adopt, Ignore, Keep, Release};
        let ours = referring_to("owner", Some(true));
        let another = referring_to("another", Some(true));
        // We own it without being its controller.
        let (plain, denied) = (referring_to("owner", None), referring_to("owner", Some(false)));
        let kept = [Keep, Keep, Keep, Keep, Release, Release, Ignore, Ignore];
        let free = [Adopt, Ignore, Ignore, Ignore, Ignore, Ignore, Ignore, Ignore];
        for (references, reached) in [
            (vec![ours.clone()], kept),
            (vec![another.clone(), plain.clone()], [Ignore; 8]),
            (vec![plain.clone(), ours], kept),
            (vec![], free),
            (vec![plain], free),
            (vec![denied], free),
        ] {
            // A user writes the references of an object, so references from another namespace do not count.
            for (namespace, owner_namespace, expected) in
                [("here", "here", reached), ("elsewhere", "here", [Ignore; 8]), ("here", "", reached)]
            {
                for ((matches, owner_goes, object_goes), expected) in STATES.into_iter().zip(expected) {
                    let owner = meta("owner", owner_namespace, owner_goes);
                    let object = ObjectMeta {
                        owner_references: references.clone(),
                        ..meta("object", namespace, object_goes)
                    };
                    assert_eq!(
                        claim(&owner, &object, matches),
                        expected,
                        "{references:?} {namespace} of {owner_namespace:?} selected: {matches} deleting: {owner_goes} {object_goes}"
                    );
                }
            }
        }
    }
}
