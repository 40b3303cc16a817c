//! Who owns the claims of a pod, as `spec.persistentVolumeClaimRetentionPolicy` has it: when an owner goes, the garbage
//! collector deletes what it owns.

use bytes::Bytes;

use super::super::view::{ClaimTemplate, View};
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Message as _, Str, Value, WireError, field, path};

/// The retention policy of a StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) deletes_when_scaled: bool,
    pub(super) deletes_when_deleted: bool,
}

impl Policy {
    pub(super) fn of(view: &View) -> Self {
        let policy = view.set.spec.persistent_volume_claim_retention_policy.as_deref();
        Self {
            deletes_when_scaled: policy.is_some_and(|policy| policy.when_scaled == "Delete"),
            deletes_when_deleted: policy.is_some_and(|policy| policy.when_deleted == "Delete"),
        }
    }
}

/// Whose claims are seen to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder<'a> {
    /// Name of the pod.
    pub(super) name: &'a str,
    /// The pod, if it is there.
    pub(super) pod: Option<&'a Pod>,
    pub(super) ordinal: i32,
    /// Whether it is one too many.
    pub(super) is_surplus: bool,
}

/// What becomes of the claims of a pod.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// The updates of those whose owners are to be others.
    pub(super) updates: Vec<Write>,
    /// The names of those for which the policy is ignored, because another object controls them. They may need no update.
    pub(super) conflicting: Vec<Str>,
}

/// The claims of a pod, among those that are there.
pub(super) fn ownership(view: &View, holder: Holder<'_>) -> Result<Ownership, WireError> {
    let set = &view.set.metadata;
    let name = |template: &ClaimTemplate| template.claim_name(&set.name, holder.ordinal);
    let claims = view.templates.iter().filter_map(|template| view.claims.get(&name(template)));
    let mut ownership = Ownership::default();
    for claim in claims {
        let wanted = wanted(view, holder, claim);
        if wanted.is_foreign {
            ownership.conflicting.push(claim.metadata.name.clone());
        }
        if let Some(owners) = wanted.owners {
            ownership.updates.push(update(set, holder.name, claim, &owners)?);
        }
    }
    Ok(ownership)
}

/// Whether a claim of a pod that is not there refers to a pod of its name: it was the previous one's, and goes with it.
pub(super) fn is_stale(policy: Policy, pod: &str, claim: &PersistentVolumeClaim) -> bool {
    policy.deletes_when_scaled && claim.metadata.owner_references.iter().any(|owner| is_pod(owner, pod))
}

fn is_set(owner: &OwnerReference, set: &str) -> bool {
    owner.api_version == "apps/v1" && owner.kind == STATEFUL_SETS.kind && owner.name == set
}

fn is_pod(owner: &OwnerReference, pod: &str) -> bool {
    owner.api_version == "v1" && owner.kind == PODS.kind && owner.name == pod
}

/// What a claim is to be.
struct Wanted {
    /// The references to set and pod that it is to have; `None` if it is left alone.
    owners: Option<Vec<OwnerReference>>,
    /// Whether another object controls it and the policy is ignored.
    is_foreign: bool,
}

fn wanted(view: &View, holder: Holder<'_>, claim: &PersistentVolumeClaim) -> Wanted {
    let set = &view.set.metadata;
    let policy = Policy::of(view);
    let deletes = policy.deletes_when_scaled || policy.deletes_when_deleted;
    let pod = holder.pod.map(|pod| &pod.metadata);
    let is_ours = |owner: &&OwnerReference| is_set(owner, &set.name) || is_pod(owner, holder.name);
    let (ours, others): (Vec<&OwnerReference>, Vec<&OwnerReference>) =
        claim.metadata.owner_references.iter().partition(is_ours);
    let is_of_another = |owner: &&OwnerReference| {
        if is_set(owner, &set.name) {
            owner.uid != set.uid
        } else {
            pod.is_none_or(|pod| owner.uid != pod.uid)
        }
    };
    if ours.iter().any(is_of_another) {
        return Wanted { owners: None, is_foreign: deletes };
    }
    if deletes && others.iter().any(|owner| owner.controller == Some(true)) {
        return Wanted { owners: (!ours.is_empty()).then(Vec::new), is_foreign: true };
    }
    let by_pod = policy.deletes_when_scaled && holder.is_surplus;
    let by_set = policy.deletes_when_deleted && !by_pod;
    let mut wanted = Vec::new();
    wanted.extend(by_set.then(|| controller_reference(set, &STATEFUL_SETS)));
    wanted.extend(pod.filter(|_| by_pod).map(|pod| controller_reference(pod, &PODS)));
    // Linear: two are wanted at most.
    let same = ours.len() == wanted.len()
        && ours
            .iter()
            .all(|held| held.controller == Some(true) && wanted.iter().any(|wanted| wanted.uid == held.uid));
    Wanted { owners: (!same).then_some(wanted), is_foreign: false }
}

/// The claim in its own bytes, with `owners` in place of those that are the set and the pod.
fn update(
    set: &ObjectMeta,
    pod: &str,
    claim: &PersistentVolumeClaim,
    owners: &[OwnerReference],
) -> Result<Write, WireError> {
    const METADATA: coxswain_machinery::wire::Path = path!(PersistentVolumeClaim, metadata);
    let metadata = get(&claim.raw, METADATA)?.map(Value::bytes).transpose()?.unwrap_or_default();
    let kept = retain_items(metadata, field!(PersistentVolumeClaim, metadata.ownerReferences), |owner| {
        OwnerReference::decode(&Bytes::copy_from_slice(owner))
            .is_ok_and(|owner| !is_set(&owner, &set.name) && !is_pod(&owner, pod))
    })?;
    let push = |owner: &OwnerReference| {
        Edit::Push(path!(PersistentVolumeClaim, metadata.ownerReferences), owner.to_bytes())
    };
    let edits: Vec<Edit> =
        std::iter::once(Edit::SetBytes(METADATA, kept)).chain(owners.iter().map(push)).collect();
    let object = edit(&claim.raw, &edits)?;
    let key = Key::of(&claim.metadata);
    Ok(Write::new(&PERSISTENT_VOLUME_CLAIMS, key, Verb::Update(object.into())))
}
