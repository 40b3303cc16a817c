//! A claim: who uses it still, and what becomes of it when nobody does. Observes and plans.
//!
//! | consumers left | finalizer of the scheduler | what is done |
//! |---|---|---|
//! | fewer, some | any | the others leave the status |
//! | fewer, none | there | they and the allocation leave the status, then the finalizer goes |
//! | fewer, none | not there | they leave the status |
//! | none, as before | there, and the claim is being deleted | the allocation leaves the status, then the finalizer goes |
//! | as before | any | nothing |
//!
//! So an allocation that nobody has used yet stays. A claim that was made for a pod goes when nobody uses it and the pod is done or
//! another one has its name by now; where the pod is gone garbage collection has it.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::departed::Departed;
use crate::live_reads::DEVICE_CONSUMER;
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS, RESOURCE_CLAIMS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{ResourceClaim, ResourceClaimConsumer, ResourceClaimStatus};
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::framework::{DeclaredRead, Observation, ObserveError, Read, Reads, Room};
use coxswain_machinery::informer::{Lister, downcast};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::{count, names, verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Uid, Value, WireError, field, path};

/// What keeps an allocated claim, as the scheduler puts it on.
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// Whether a pod needs its claims no more: it has come to its end, or is being deleted and was never bound.
pub(super) fn is_done(pod: &Pod) -> bool {
    pod.is_finished() || pod.metadata.is_deleting() && pod.spec.node_name.is_empty()
}

/// The room: what it reads.
pub(super) struct Controller {
    pub(super) claims: Lister<ResourceClaim>,
    pub(super) pods: Lister<Pod>,
    /// `None` where PodGroups have no claims.
    pub(super) groups: Option<Lister<PodGroup>>,
    pub(super) departed: Arc<Departed>,
}

/// A claim and what is known of those for whom it is.
#[derive(Debug)]
pub(super) struct View {
    pub(super) claim: Arc<ResourceClaim>,
    /// Whether it is still used, by consumer, in the order of the status.
    pub(super) is_used: Vec<bool>,
    /// What became of the pod that it was made for.
    pub(super) owner: Owner,
}

/// What became of the pod that a claim was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It was made for no pod.
    None,
    /// The pod may need it.
    Needs,
    /// It is done.
    Done,
    /// Another pod has its name.
    Replaced,
    /// It is gone.
    Gone,
}

/// What is at the place of an object that was named with its UID.
enum Named<T> {
    /// It, as the cache has it, or by a live read: the cache may not know it yet.
    Found(Arc<T>),
    /// Another one.
    Another,
    /// None.
    Nothing,
    /// It must be read live first.
    Unread,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let Some(claim) = self.claims.get(key) else { return Ok(Observation::Nothing) };
        let mut needs = Vec::new();
        let mut is_used = Vec::with_capacity(claim.status.reserved_for.len());
        for consumer in &claim.status.reserved_for {
            is_used.push(self.uses(key, consumer, read, &mut needs)?);
        }
        let owner =
            if is_used.contains(&true) { Owner::Needs } else { self.owner(&claim, read, &mut needs)? };
        if needs.is_empty() {
            Ok(Observation::View(View { claim, is_used, owner }))
        } else {
            Ok(Observation::Needs(needs))
        }
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        plan(view).unwrap_or_else(|error| Plan {
            retry: Some(format!("reconcile ResourceClaim: {error}")),
            ..Plan::default()
        })
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        reasons(view)
    }
}

impl Controller {
    /// Whether a consumer still needs the claim. Nobody knows of sorts that this controller does not.
    fn uses(
        &self,
        claim: &Key,
        consumer: &ResourceClaimConsumer,
        read: &Reads,
        needs: &mut Vec<DeclaredRead>,
    ) -> Result<bool, ObserveError> {
        let key = Key::new(claim.namespace.clone(), consumer.name.clone());
        let uid = Uid::from(&consumer.uid);
        match (consumer.api_group.as_str(), consumer.resource.as_str(), &self.groups) {
            ("", "pods", _) => Ok(match self.pod(&key, &uid, read, needs)? {
                Named::Found(pod) => !is_done(&pod),
                Named::Unread => true,
                Named::Another | Named::Nothing => false,
            }),
            ("scheduling.k8s.io", "podgroups", Some(groups)) => {
                let cached = groups.get(&key).filter(|group| group.metadata.uid == uid);
                let found = self.named(cached, (&POD_GROUPS, &key, &uid), read, needs)?;
                Ok(matches!(found, Named::Found(_) | Named::Unread))
            }
            _ => Ok(true),
        }
    }

    fn pod(
        &self,
        key: &Key,
        uid: &Uid,
        read: &Reads,
        needs: &mut Vec<DeclaredRead>,
    ) -> Result<Named<Pod>, ObserveError> {
        let cached = self.pods.get(key).filter(|pod| pod.metadata.uid == *uid);
        self.named(cached, (&PODS, key, uid), read, needs)
    }

    /// What became of the pod that controls a claim. A pod that the cache has not is left to garbage collection.
    fn owner(
        &self,
        claim: &ResourceClaim,
        read: &Reads,
        needs: &mut Vec<DeclaredRead>,
    ) -> Result<Owner, ObserveError> {
        let Some(owner) = claim.metadata.controller().filter(|owner| is_pod(owner)) else {
            return Ok(Owner::None);
        };
        let key = Key::new(claim.metadata.namespace.clone(), owner.name.clone());
        if self.pods.get(&key).is_none() {
            return Ok(Owner::Gone);
        }
        Ok(match self.pod(&key, &owner.uid, read, needs)? {
            Named::Found(pod) if is_done(&pod) => Owner::Done,
            Named::Found(_) | Named::Unread => Owner::Needs,
            Named::Another => Owner::Replaced,
            // The cache has another one.
            Named::Nothing if self.departed.has(&owner.uid) => Owner::Replaced,
            Named::Nothing => Owner::Gone,
        })
    }

    /// What is at a place. Where the cache has it not, the API server is asked: the cache may be late.
    fn named<T: Object>(
        &self,
        cached: Option<Arc<T>>,
        (kind, key, uid): (&'static Kind, &Key, &Uid),
        read: &Reads,
        needs: &mut Vec<DeclaredRead>,
    ) -> Result<Named<T>, ObserveError> {
        if let Some(cached) = cached {
            return Ok(Named::Found(cached));
        }
        if self.departed.has(uid) {
            return Ok(Named::Nothing);
        }
        match read.object(kind, key) {
            Some(Ok(Some(found))) if found.meta().uid == *uid => downcast(Arc::clone(found))
                .map(Named::Found)
                .ok_or_else(|| ObserveError::Terminal(format!("{kind} {key}: it is of another type"))),
            Some(Ok(Some(_))) => Ok(Named::Another),
            Some(Ok(None)) => Ok(Named::Nothing),
            Some(Err(error)) => Err(ObserveError::Retry(format!("{kind} {key}: {error}"))),
            None => {
                needs.push(DEVICE_CONSUMER.of(Read::Object(kind, key.clone())));
                Ok(Named::Unread)
            }
        }
    }
}

fn is_pod(owner: &OwnerReference) -> bool {
    owner.api_version == "v1" && owner.kind == "Pod"
}

fn plan(view: &View) -> Result<Plan, WireError> {
    let ResourceClaim { metadata, status, .. } = &*view.claim;
    let mut plan = Plan::default();
    let left = view.is_used.iter().filter(|is_used| **is_used).count();
    let is_protected = metadata.finalizers.iter().any(|held| held == PROTECTION);
    let has_changed = left < view.is_used.len();
    if has_changed || left == 0 && is_protected && metadata.is_deleting() {
        let frees = left == 0 && is_protected && status.allocation.is_some();
        if has_changed || frees {
            let update = Verb::Update(reduced(view, frees)?);
            plan.steps
                .push(Step::Write(Write::new(&RESOURCE_CLAIMS, Key::of(metadata), update).on("status")));
        }
        if left == 0 && is_protected {
            let release = release(metadata);
            let release = if plan.steps.is_empty() {
                Verb::Update(Bytes::from(edit(&view.claim.raw, &release)?))
            } else {
                Verb::UpdateLast(release)
            };
            plan.steps.push(Step::Write(Write::new(&RESOURCE_CLAIMS, Key::of(metadata), release)));
        }
    }
    if left == 0 && matches!(view.owner, Owner::Done | Owner::Replaced) && !metadata.is_deleting() {
        // What was written above has made a version of its own, and said that nobody uses it.
        let delete = if plan.steps.is_empty() {
            Verb::delete_as_seen(metadata)
        } else {
            Verb::delete(metadata.uid.clone())
        };
        let delete = Write {
            tolerate: Tolerate { absent: true, ..Tolerate::default() },
            ..Write::new(&RESOURCE_CLAIMS, Key::of(metadata), delete)
        };
        plan.steps.push(Step::Write(delete));
    }
    Ok(plan)
}

/// The claim with the consumers that are left, and with its allocation or without.
fn reduced(view: &View, frees: bool) -> Result<Bytes, WireError> {
    const CONSUMERS: u32 = field!(ResourceClaimStatus, reservedFor);
    let claim = &view.claim.raw;
    let status = get(claim, path!(ResourceClaim, status))?.map(Value::bytes).transpose()?;
    let mut is_used = view.is_used.iter();
    let kept = retain_items(status.unwrap_or_default(), CONSUMERS, |_| is_used.next() == Some(&true))?;
    let mut edits = vec![Edit::SetBytes(path!(ResourceClaim, status), kept)];
    if frees {
        edits.push(Edit::Clear(path!(ResourceClaim, status.allocation)));
    }
    edit(claim, &edits).map(Bytes::from)
}

/// Takes the finalizer off, and leaves the others in their order.
fn release(metadata: &ObjectMeta) -> Vec<Edit> {
    let finalizers = path!(ResourceClaim, metadata.finalizers);
    let others = metadata.finalizers.iter().filter(|held| *held != PROTECTION);
    let mut edits = vec![Edit::Clear(finalizers)];
    edits.extend(others.map(|held| Edit::push_text(finalizers, held)));
    edits
}

fn reasons(view: &View) -> Vec<String> {
    let ResourceClaim { metadata, status, .. } = &*view.claim;
    let (used, left): (Vec<_>, Vec<_>) =
        status.reserved_for.iter().zip(&view.is_used).partition(|(_, is_used)| **is_used);
    let told = |consumers: &[(&ResourceClaimConsumer, &bool)]| {
        let all: Vec<_> = consumers.iter().map(|(consumer, _)| &consumer.name).collect();
        names(all)
    };
    let mut reasons = Vec::new();
    if !used.is_empty() {
        let is = verb(used.len(), "uses", "use");
        reasons.push(format!("{} {is} the claim; it is not changed.", told(&used)));
    }
    if !left.is_empty() {
        reasons.push(format!(
            "The claim is reserved for {} that {} finished or deleted ({}); the reservation is removed.",
            count(left.len(), "consumer"),
            verb(left.len(), "is", "are"),
            told(&left)
        ));
    }
    let is_allocated = status.allocation.is_some();
    if used.is_empty() {
        reasons.push(match (is_allocated, left.is_empty(), metadata.is_deleting()) {
            (false, ..) => "No consumer uses the claim, and no device is allocated for it.".to_owned(),
            (true, true, false) => {
                "Devices are allocated for the claim, and it has had no consumer yet; the allocation is kept."
                    .to_owned()
            }
            _ => "No consumer uses the claim; its devices are deallocated.".to_owned(),
        });
        reasons.extend(owned(view));
    }
    reasons
}

/// What follows from what became of the pod that it was made for.
fn owned(view: &View) -> Option<String> {
    let owner = &view.claim.metadata.controller().filter(|owner| is_pod(owner))?.name;
    match view.owner {
        Owner::None => None,
        Owner::Needs => Some(format!("The claim was created for the pod {owner}, which needs it.")),
        Owner::Done => Some(format!(
            "The claim was created for the pod {owner}, which has finished; the claim is deleted."
        )),
        Owner::Replaced => Some(format!(
            "The claim was created for an earlier pod {owner}, which no longer exists; the claim is deleted."
        )),
        Owner::Gone => Some(format!(
            "The claim was created for the pod {owner}, which no longer exists; the garbage collector deletes \
                 the claim."
        )),
    }
}
