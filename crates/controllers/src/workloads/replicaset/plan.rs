//! What is to be done about one ReplicaSet: who is claimed, how many pods are made or deleted and which, what the
//! status says. Pure.
//!
//! The order is the original's: release and adopt, then create or delete, then the status, which counts the pods as
//! they were observed. If that counts none that the status does not, and there are some now, nothing is written: those pods
//! bring the ReplicaSet back in a moment, and what is said then is said once. When a create or delete failed, the second
//! pass only records that in the status; when something else failed, it does nothing, and the retry starts over. Each
//! release, adoption and delete is tried whatever becomes of the others; but as long as a claim fails nothing is made or
//! deleted.

use std::cmp::Ordering;

use bytes::Bytes;
use jiff::Timestamp;

use super::status::{self, Scaling};
use super::view::View;
use crate::live_reads::REPLICA_SET_ADOPTION;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{self, Claim, claim, controller_reference};
use coxswain_machinery::model::plan::{EventSpec, Expect, Regarding, Tolerate, Verb, Verify};
use coxswain_machinery::model::pods::{self, Ranking};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, WireError};

/// Pods that are made or deleted in one go; the rest follows when these have been seen.
pub(super) const BURST: usize = 500;

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let claims = Claims::of(view);
    let mut plan = Plan::default();
    let mut is_scaled = false;
    let scaling = if view.failures.is_empty() {
        claims.write(view, &mut plan);
        if !view.replica_set.metadata.is_deleting() {
            match scale(view, &claims.kept, now) {
                Ok(step) => {
                    // Of a larger crowd the status tells while it comes or goes.
                    is_scaled = step.is_some() && claims.kept.len().abs_diff(view.desired()) <= BURST;
                    plan.steps.extend(step);
                }
                Err(error) => {
                    plan.retry = Some(format!("template: {error}"));
                    return plan;
                }
            }
        }
        Scaling::Succeeded
    } else if let Some(scaling) = view.failures.iter().find_map(failed_scaling) {
        scaling
    } else {
        // Only adoptions need a live owner.
        if view.failures.iter().any(|failure| failure.is_check_of(view.kind)) {
            plan.steps.extend(claims.releases(view));
        }
        return plan;
    };
    let status = status::of(view, &claims.kept, &scaling, now);
    if let Some(wait) = status::next_look(view, &claims.kept, &status, now) {
        plan.look_again_after(wait);
    }
    if is_scaled && status.is_counted_by(&view.replica_set) {
        return plan;
    }
    match status::write(view, &status) {
        Ok(write) => plan.write_status(write),
        Err(error) => plan.retry = Some(format!("status: {error}")),
    }
    plan
}

/// Whether it was a create or a delete of a pod that failed, and how.
fn failed_scaling(failure: &Failure) -> Option<Scaling> {
    if failure.kind != &PODS {
        return None;
    }
    match failure.verb {
        "create" => Some(Scaling::CreateFailed(failure.message.clone())),
        "delete" => Some(Scaling::DeleteFailed(failure.message.clone())),
        _ => None,
    }
}

/// The active pods that count for the ReplicaSet.
pub(super) fn kept(view: &View) -> Vec<&Pod> {
    Claims::of(view).kept
}

/// Who belongs to the ReplicaSet once its claims are made.
pub(super) struct Claims<'a> {
    /// Active pods that count: already ours, or about to be.
    pub(super) kept: Vec<&'a Pod>,
    /// Those of `kept` that are about to be.
    pub(super) adopted: Vec<&'a Pod>,
    /// Active pods that are ours and not selected any more.
    pub(super) released: Vec<&'a Pod>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let mut claims = Self { kept: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        for pod in view.pods.iter().map(AsRef::as_ref).filter(|pod| pods::is_active(pod)) {
            let matches = view.selector.matches(&pod.metadata.labels);
            match claim(&view.replica_set.metadata, &pod.metadata, matches) {
                Claim::Keep => claims.kept.push(pod),
                Claim::Adopt => {
                    claims.kept.push(pod);
                    claims.adopted.push(pod);
                }
                Claim::Release => claims.released.push(pod),
                Claim::Ignore => {}
            }
        }
        claims
    }

    /// Returns the releases without the check and the adoptions.
    fn releases(&self, view: &View) -> Option<Step> {
        let owner = &view.replica_set.metadata;
        let released: Vec<Write> = self.released.iter().map(|pod| release(owner, pod)).collect();
        (!released.is_empty()).then_some(Step::Each(released))
    }

    /// The check comes first, because its failure ends the plan; the releases follow in the plan for that failure.
    fn write(&self, view: &View, plan: &mut Plan) {
        let owner = &view.replica_set.metadata;
        if !self.adopted.is_empty() {
            plan.steps.push(Step::Verify(Verify {
                read: &REPLICA_SET_ADOPTION,
                kind: view.kind,
                key: Key::of(owner),
                expect: Expect::Alive(owner.uid.clone()),
            }));
        }
        let released = self.released.iter().map(|pod| release(owner, pod));
        let claims: Vec<Write> = released.chain(self.adopted.iter().map(|pod| adopt(view, pod))).collect();
        if !claims.is_empty() {
            plan.steps.push(Step::Each(claims));
        }
    }
}

/// Nothing is tolerated here: a pod that is gone or taken would be counted, so the plan has to be made again.
fn adopt(view: &View, pod: &Pod) -> Write {
    let patch = owners::adoption(&view.replica_set.metadata, view.kind, &pod.metadata);
    Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
}

/// A pod that is gone, or whose name another pod bears by now, needs no release.
fn release(owner: &ObjectMeta, pod: &Pod) -> Write {
    Write {
        tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(owners::release(owner, &pod.metadata)))
    }
}

/// The creates or deletes that bring `kept` to, or by one burst nearer to, the number asked for.
fn scale(view: &View, kept: &[&Pod], now: Timestamp) -> Result<Option<Step>, WireError> {
    let desired = view.desired();
    match kept.len().cmp(&desired) {
        Ordering::Equal => Ok(None),
        Ordering::Less => create(view, (desired - kept.len()).min(BURST)).map(Some),
        Ordering::Greater => {
            let surplus = (kept.len() - desired).min(BURST);
            let chosen = choose(view, kept, surplus, now);
            // One that is refused is in nobody's way.
            Ok(Some(Step::Each(chosen.into_iter().map(|pod| delete(view, pod)).collect())))
        }
    }
}

fn create(view: &View, count: usize) -> Result<Step, WireError> {
    let owner = &view.replica_set.metadata;
    let body: Bytes = pods::from_template(
        &view.replica_set.spec.template,
        &owner.namespace,
        &pods::generate_name(&owner.name),
        &controller_reference(owner, view.kind),
    )?;
    let write = Write {
        // Whatever is made there goes with the namespace.
        tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulCreate", "Created pod: {name}".to_owned())),
        on_failure: Some(event(view, true, "FailedCreate", "Error creating: {error}".to_owned())),
        ..Write::new(&PODS, Key::new(owner.namespace.clone(), Str::EMPTY), Verb::Create(body))
    };
    Ok(Step::Batch(vec![write; count]))
}

fn delete(view: &View, pod: &Pod) -> Write {
    let verb = Verb::delete(pod.metadata.uid.clone());
    let deleted = format!("Deleted pod: {}", pod.metadata.name);
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulDelete", deleted)),
        on_failure: Some(event(view, true, "FailedDelete", "Error deleting: {error}".to_owned())),
        ..Write::new(&PODS, Key::of(&pod.metadata), verb)
    }
}

fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    let regarding = Regarding::of(view.kind, &view.replica_set.metadata);
    EventSpec { regarding, warning, reason, message }
}

/// The `count` pods of `kept` whose loss hurts least.
pub(super) fn choose<'a>(view: &View, kept: &[&'a Pod], count: usize, now: Timestamp) -> Vec<&'a Pod> {
    let mut chosen = kept.to_vec();
    if count < chosen.len() {
        let crowd = colocated(view);
        let on_node = |pod: &Pod| crowd.get(&pod.spec.node_name).copied().unwrap_or(0);
        let ranking = Ranking { now, by_cost: view.gates.deletion_cost };
        chosen.sort_by_cached_key(|pod| ranking.rank(pod, on_node(pod)));
        chosen.truncate(count);
    }
    chosen
}

/// How many related pods each node runs. A rolling update should not leave all of a Deployment's pods on one node,
/// so those of the old and the new ReplicaSet count together.
fn colocated(view: &View) -> HashMap<Str, usize> {
    let mut crowd = HashMap::default();
    for pod in view.related.iter().filter(|pod| pods::is_active(pod)) {
        *crowd.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    crowd
}
