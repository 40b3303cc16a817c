//! What is done about an object: let it be, let it go, or cut it loose.
//!
//! Follows "Garbage Collection", "Owners and Dependents" and "Use Cascading Deletion" of the Kubernetes documentation.
//!
//! Owner references and finalizers of built-in objects are removed with strategic merge patches, as kube-controller-manager
//! does. The API server applies other patches to the object's JSON, which replaces each byte of the object that is not UTF-8.
//!
//! Custom and aggregated resources know no strategic merge patches, and two references may have one UID. For these the plan
//! has JSON patches. They first test what is at the position, so they change exactly the reference meant and are refused (422)
//! when the list has changed meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::graph::{Blocker, HeldDependent, ObjectFacts, ObjectIdentity};
use super::view::{Owner, Subject, View, describe};
use coxswain_machinery::api::meta::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectMeta, OwnerReference};
use coxswain_machinery::model::Plan;
use coxswain_machinery::model::plan::{
    EventSpec, Patch, Propagation, Regarding, Step, Tolerate, Verb, Write,
};
use coxswain_machinery::wire::text::raw_bytes;
use coxswain_machinery::wire::{Str, Uid};

/// Delay between two live reads of a blocking dependent that no watch shows. Equals the period of discovery.
const UNSEEN: Duration = Duration::from_secs(30);
/// Delay until an orphaning owner is looked at again whose API group has just returned.
const SETTLING: Duration = Duration::from_secs(1);
/// Limit of the delay between two searches for an owner that no watch shows. The delay is [`UNSEEN`], or the time for which the owner
/// has been known: a kind that cannot be watched may have thousands of owners.
const LONGEST_UNSEEN: Duration = Duration::from_secs(1000);

/// Decides.
pub fn plan(view: &View) -> Plan {
    match &view.subject {
        // Keys that wait in the queue are reconciled first.
        Subject::Search(_) | Subject::Virtual { is_outdated: true, .. } => {
            Plan { requeue_after: Some(Duration::ZERO), has_more: true, ..Plan::default() }
        }
        Subject::Virtual { there, unknown, is_long, known_for, .. } => {
            unseen(*there, unknown.as_ref(), *is_long, *known_for)
        }
        Subject::Candidate { facts, live, owners, is_restless } => {
            candidate(facts, live.meta(), owners, *is_restless)
        }
        Subject::Doomed { facts, awaited } => doomed(facts, *awaited),
        Subject::Released { identity, at } => released(identity, *at),
        Subject::Blocked { found, .. } => blocked(found),
        Subject::Waiting { facts, live } => waiting(facts, live.meta()),
        Subject::Settling => {
            let mut plan = Plan::default();
            plan.look_again_after(SETTLING);
            plan
        }
        Subject::Orphaning { owner, live, dependents } => orphaning(owner, live.meta(), dependents),
    }
}

/// An owner that is there without having been observed may go without that being observed: between two lists of its
/// kind, say. Until it is, it is looked at again and again.
///
/// After a search of several reconciles, a place that could not be read has the same delay: the backoff of the key ends with each
/// reconcile that succeeds, so retries would repeat the search all the time.
fn unseen(there: bool, unknown: Option<&String>, is_long: bool, known_for: Duration) -> Plan {
    let mut plan = unlookable(unknown.filter(|_| !is_long));
    if there || (is_long && unknown.is_some()) {
        plan.look_again_after(known_for.clamp(UNSEEN, LONGEST_UNSEEN));
    }
    plan
}

fn unlookable(reason: Option<&String>) -> Plan {
    let retry = reason.map(|reason| format!("read owner: {reason}"));
    Plan { retry, ..Plan::default() }
}

fn candidate(facts: &ObjectFacts, live: &ObjectMeta, owners: &[Owner], is_restless: bool) -> Plan {
    let unknown = owners.iter().find_map(|owner| match owner {
        Owner::Unknown(reason) => Some(reason),
        _ => None,
    });
    if let Some(reason) = unknown {
        return unlookable(Some(reason));
    }
    let mut plan = Plan { steps: invalid_namespaces(facts, live, owners), ..Plan::default() };
    if owners.is_empty() {
        return plan;
    }
    let write = if owners.iter().any(|owner| matches!(owner, Owner::Solid | Owner::OutOfReach)) {
        let lost = |owner: &Owner| matches!(owner, Owner::Absent { .. } | Owner::Waiting);
        let positions: Vec<usize> = (0..owners.len()).filter(|at| lost(&owners[*at])).collect();
        if positions.is_empty() {
            return plan;
        }
        without_references(&facts.identity, live, &positions)
    } else {
        let version = (!is_restless).then(|| live.resource_version.clone());
        delete(facts, version, &live.finalizers, owners.contains(&Owner::Waiting))
    };
    plan.steps.push(Step::Write(write));
    plan
}

/// The deletion of an object that has no owner any more, or only such as wait for it (`awaited`), as its finalizers ask: in
/// this version alone, by whose references its owners were judged; without one in whatever version it has by then.
fn delete(facts: &ObjectFacts, version: Option<Str>, finalizers: &[Str], awaited: bool) -> Write {
    let has = |finalizer: &str| finalizers.iter().any(|held| held == finalizer);
    let propagation = if awaited && facts.has_dependents {
        // An owner waits for it, so it waits for its own dependents: the whole tree goes from its leaves.
        Propagation::Foreground
    } else if has(ORPHAN_FINALIZER) {
        Propagation::Orphan
    } else if has(FOREGROUND_FINALIZER) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let uid = facts.identity.uid.clone();
    let verb =
        Verb::Delete { uid, resource_version: version, propagation: Some(propagation), grace_period: None };
    write(&facts.identity, verb)
}

/// The deletion of an object that has no owner any more, as it was last observed, and none of the finalizers that say
/// what becomes of its own dependents.
fn doomed(facts: &ObjectFacts, awaited: bool) -> Plan {
    let write = delete(facts, Some(facts.version.to_string().into()), &[], awaited);
    Plan { steps: vec![Step::Write(write)], ..Plan::default() }
}

/// An object that waited for its dependents, and has its finalizer at this position.
fn released(identity: &ObjectIdentity, at: usize) -> Plan {
    let write = without_finalizer_at(identity, at, FOREGROUND_FINALIZER);
    Plan { steps: vec![Step::Write(write)], ..Plan::default() }
}

/// Plans the next check of an owner that waits for a dependent without a watch. The owner is checked again while the dependent exists or
/// its API may return.
fn blocked(found: &Blocker) -> Plan {
    let mut plan = Plan::default();
    match found {
        Blocker::There(_) | Blocker::NotServed => plan.look_again_after(UNSEEN),
        Blocker::Unreadable(why) | Blocker::Unknown(why) => plan.retry = Some(why.clone()),
        Blocker::Gone => {}
    }
    plan
}

/// An object that waited for its dependents: nobody blocks it, or it and its owners block each other.
fn waiting(facts: &ObjectFacts, live: &ObjectMeta) -> Plan {
    let write = if facts.blocking == 0 {
        without_finalizer(&facts.identity, live, FOREGROUND_FINALIZER)
    } else {
        facts.deadlocked.then(|| unblocking(&facts.identity, live)).flatten()
    };
    Plan { steps: write.into_iter().map(Step::Write).collect(), ..Plan::default() }
}

fn orphaning(owner: &ObjectIdentity, live: &ObjectMeta, dependents: &[HeldDependent]) -> Plan {
    let release = |held: &HeldDependent| {
        if takes_strategic_patches(&held.identity) {
            return strategic(&held.identity, json!({ "ownerReferences": [removal(&live.uid.to_str())] }));
        }
        let mut patch = Tested::of(&held.identity.uid);
        patch.remove_references(held.positions.iter().map(|at| (*at, live.uid.clone())));
        patch.write(&held.identity)
    };
    let mut steps = Vec::new();
    if !dependents.is_empty() {
        steps.push(Step::Each(dependents.iter().map(release).collect()));
    }
    steps.extend(without_finalizer(owner, live, ORPHAN_FINALIZER).map(Step::Write));
    Plan { steps, ..Plan::default() }
}

fn invalid_namespaces(facts: &ObjectFacts, live: &ObjectMeta, owners: &[Owner]) -> Vec<Step> {
    let astray = |owner: &Owner| matches!(owner, Owner::Absent { elsewhere: true } | Owner::OutOfReach);
    let references = live.owner_references.iter().zip(owners).filter(|(_, owner)| astray(owner));
    let event = |(reference, _)| {
        Step::Emit(EventSpec {
            regarding: Regarding {
                kind: facts.identity.kind,
                key: facts.identity.key.clone(),
                uid: live.uid.clone(),
                resource_version: Str::EMPTY,
            },
            warning: true,
            reason: "OwnerRefInvalidNamespace",
            message: describe(reference, &facts.identity.key.namespace),
        })
    };
    references.map(event).collect()
}

fn without_references(identity: &ObjectIdentity, live: &ObjectMeta, positions: &[usize]) -> Write {
    let references = positions.iter().filter_map(|at| Some((*at, live.owner_references.get(*at)?)));
    let removed: BTreeSet<Str> = references.clone().map(|(_, reference)| reference.uid.to_str()).collect();
    let all = live.owner_references.iter().filter(|reference| removed.contains(&reference.uid.to_str()));
    // A strategic patch removes every reference of a UID.
    if takes_strategic_patches(identity) && all.count() == positions.len() {
        let removals: Vec<Value> = removed.iter().map(removal).collect();
        return strategic(identity, json!({ "ownerReferences": removals }));
    }
    let mut patch = Tested::of(&live.uid);
    for (at, reference) in references.clone() {
        // Another reference may have the same UID.
        patch.test(&format!("/metadata/ownerReferences/{at}/name"), &reference.name);
    }
    patch.remove_references(references.map(|(at, reference)| (at, reference.uid.clone())));
    patch.write(identity)
}

fn without_finalizer(identity: &ObjectIdentity, live: &ObjectMeta, finalizer: &str) -> Option<Write> {
    let at = live.finalizers.iter().position(|held| held == finalizer)?;
    Some(without_finalizer_at(identity, at, finalizer))
}

fn without_finalizer_at(identity: &ObjectIdentity, at: usize, finalizer: &str) -> Write {
    if takes_strategic_patches(identity) {
        return strategic(identity, json!({ "$deleteFromPrimitiveList/finalizers": [finalizer] }));
    }
    let path = format!("/metadata/finalizers/{at}");
    let mut patch = Tested::of(&identity.uid);
    patch.test(&path, finalizer);
    patch.operations.push(json!({"op": "remove", "path": path}));
    patch.write(identity)
}

/// Makes the object's owners wait for it no longer.
fn unblocking(identity: &ObjectIdentity, live: &ObjectMeta) -> Option<Write> {
    let mut uids = BTreeSet::new();
    let is_unique = live.owner_references.iter().all(|reference| uids.insert(reference.uid.to_str()));
    let blocks = |reference: &&OwnerReference| reference.block_owner_deletion == Some(true);
    if takes_strategic_patches(identity) && is_unique {
        // JSON cannot carry a UID that is not UTF-8: the patch would add a reference.
        let is_text =
            |reference: &&OwnerReference| std::str::from_utf8(&raw_bytes(&reference.uid.to_str())).is_ok();
        let blocking = live.owner_references.iter().filter(blocks).filter(is_text);
        let changes: Vec<Value> =
            blocking.map(|reference| json!({ "uid": reference.uid, "blockOwnerDeletion": false })).collect();
        return (!changes.is_empty()).then(|| strategic(identity, json!({ "ownerReferences": changes })));
    }
    let mut patch = Tested::of(&live.uid);
    for (at, reference) in live.owner_references.iter().enumerate() {
        if blocks(&reference) {
            let path = format!("/metadata/ownerReferences/{at}");
            patch.test(&format!("{path}/uid"), &reference.uid.to_str());
            let path = format!("{path}/blockOwnerDeletion");
            patch.operations.push(json!({"op": "replace", "path": path, "value": false}));
        }
    }
    (patch.operations.len() > 1).then(|| patch.write(identity))
}

/// API groups that kube-apiserver serves itself. It takes strategic merge patches of all their resources.
const BUILT_IN_GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Whether the API server takes strategic merge patches of an object.
fn takes_strategic_patches(identity: &ObjectIdentity) -> bool {
    BUILT_IN_GROUPS.contains(&identity.kind.group)
}

/// A strategic merge patch of the metadata of the object with this UID alone.
fn strategic(identity: &ObjectIdentity, mut metadata: Value) -> Write {
    metadata["uid"] = json!(identity.uid);
    write(identity, Verb::Patch(Patch::Strategic(json!({ "metadata": metadata }))))
}

/// The removal of all references with a UID from a list of owner references.
fn removal(uid: &Str) -> Value {
    json!({ "$patch": "delete", "uid": uid })
}

/// A JSON patch that is refused unless what it rests on is still there.
struct Tested {
    operations: Vec<Value>,
}

impl Tested {
    /// A patch of the object with this UID alone.
    fn of(uid: &Uid) -> Self {
        let mut patch = Self { operations: Vec::new() };
        patch.test("/metadata/uid", &uid.to_str());
        patch
    }

    fn test(&mut self, path: &str, value: &str) {
        self.operations.push(json!({"op": "test", "path": path, "value": value}));
    }

    /// Takes out references: position, ascending, and UID of each.
    fn remove_references(&mut self, references: impl DoubleEndedIterator<Item = (usize, Uid)>) {
        let mut removals = Vec::new();
        // From the last, so that the positions of the others hold.
        for (at, uid) in references.rev() {
            let path = format!("/metadata/ownerReferences/{at}");
            self.test(&format!("{path}/uid"), &uid.to_str());
            removals.push(json!({"op": "remove", "path": path}));
        }
        self.operations.append(&mut removals);
    }

    fn write(self, identity: &ObjectIdentity) -> Write {
        write(identity, Verb::Patch(Patch::Json(Value::Array(self.operations))))
    }
}

fn write(identity: &ObjectIdentity, verb: Verb) -> Write {
    let mut write = Write::new(identity.kind, identity.key.clone(), verb);
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    write
}
