//! What is to be done about one StatefulSet. Pure.
//!
//! A plan holds what the original does in one sync, in its order: the revision, pods and claims ([`sync`]), the status, and what
//! goes of the history. Adoptions and releases come first, in a plan of their own, and so does a revision that is to be
//! created. The next pass of the same reconcile goes by their answers: it repeats none of them, also where a release was refused
//! and the refusal is tolerated. When something failed, the plan after it says so in events and in the status
//! ([`failures`]), and the retry starts over.
//!
//! | module | decides on |
//! |---|---|
//! | [`members`] | which pods and revisions are taken over or let go |
//! | [`ordinals`] | nothing: it says which ordinals and names there are |
//! | [`sync`] | pods: which are made, seen to, deleted |
//! | [`owners`] | whose the claims of a pod are |
//! | [`pods`] | nothing: it says what state a pod is in |
//! | [`status`] | the status |
//! | [`failures`] | what is told when a write failed |
//! | [`reasons`] | nothing: it says in words why |
//! | [`bodies`] | nothing: it puts the bodies of the writes together |

use std::time::Duration;

use coxswain_machinery::random::HashSet;
use jiff::Timestamp;

use super::memory::{Search, Stopped};
use super::metrics::Gauges;
use super::revisions::Present;
use super::view::{View, revision_of};
use coxswain_machinery::api::kinds::STATEFUL_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{EventSpec, Regarding, Tolerate};
use coxswain_machinery::model::revisions::{self, Counted, HASH_LABEL, NewRevision};
use coxswain_machinery::model::{Plan, Step, Write};

mod bodies;
mod failures;
mod members;
pub(super) mod ordinals;
mod owners;
mod pods;
pub(super) mod reasons;
mod status;
mod sync;

use members::Members;
use sync::Sync;

pub(super) use sync::makes_old_pods;

/// Limit of names of revisions that one reconcile tries: four passes with the one of adoptions. The fifth acts on the result.
/// Users who may create ControllerRevisions can take many names.
const NAMES_OF_A_RECONCILE: usize = 3;

pub(super) fn plan(view: &View, now: Timestamp) -> (Plan, Option<Gauges>) {
    let members = Members::of(view);
    let is_deleting = view.set.metadata.is_deleting();
    if !view.failures.is_empty() {
        return (failures::record(view, &members, now), None);
    }
    if is_deleting && members.lost_revisions() {
        // It was orphaned: what it says of its pods stays.
        return (Plan::default(), None);
    }
    if !is_deleting && members.change() {
        return (Plan { steps: members.steps(view), look_again: true, ..Plan::default() }, None);
    }
    // Also for a set in deletion, as in kube-controller-manager: its status names the revision.
    if let Present::Missing(number) = view.present {
        let plan =
            if view.taken < NAMES_OF_A_RECONCILE { create_revision(view, number) } else { search_later() };
        return (plan, None);
    }
    let mut sync = Sync::new(view, &members.kept, now);
    if !is_deleting {
        sync.run();
    }
    let Sync { steps, replaced, retry, gauges, .. } = sync;
    let mut plan = Plan { retry, ..Plan::default() };
    if let Present::Renumbered(revision, number) = &view.present {
        plan.steps.push(Step::Write(revisions::renumber(revision, *number)));
    }
    plan.steps.extend(steps);
    finish(view, &members.kept, replaced, now, &mut plan);
    (plan, gauges)
}

/// The status, when to look again, and the history.
fn finish(view: &View, kept: &[&Pod], replaced: usize, now: Timestamp, plan: &mut Plan) {
    let status = status::of(view, kept, replaced, now);
    match status::write(view, &status) {
        Ok(write) => plan.write_status(write),
        Err(error) => plan.retry = Some(format!("status: {error}")),
    }
    if let Some(wait) = status::next_look(view, kept, &status, now) {
        plan.look_again_after(wait);
    }
    cut_history(view, kept, plan);
}

/// Deletes the revisions that nobody needs any more.
fn cut_history(view: &View, kept: &[&Pod], plan: &mut Plan) {
    let present = view.present.revision().map(|revision| revision.metadata.name.as_str());
    let current = view.current().map(|revision| revision.metadata.name.as_str());
    let of_pods: HashSet<&str> = kept.iter().filter_map(|pod| revision_of(pod)).map(AsRef::as_ref).collect();
    let is_used = |name: &str| {
        present == Some(name) || current == Some(name) || of_pods.contains(&*revisions::label_value(name))
    };
    let limit = view.set.spec.revision_history_limit;
    let surplus = revisions::surplus(&view.revisions, limit, Counted::Unused, |revision| {
        is_used(revision.metadata.name.as_str())
    });
    plan.steps.extend(surplus.into_iter().map(|revision| Step::Write(revisions::delete(revision))));
}

/// Makes the present revision. When the name is taken, the next look tells by what.
fn create_revision(view: &View, number: i64) -> Plan {
    let set = &view.set.metadata;
    let hash = view.document.hash(view.collisions);
    // As the original has it: the label is that of the first name tried.
    let first = view.document.hash(view.known_collisions());
    let revision = NewRevision {
        owner: set,
        kind: &STATEFUL_SETS,
        name: &revisions::cut_name(&set.name, &hash),
        labels: view.template_labels.with(HASH_LABEL, &first),
        document: &view.document,
        number,
    };
    let create = Write { tolerate: Tolerate { exists: true, ..Tolerate::default() }, ..revision.create() };
    Plan { steps: vec![Step::Write(create)], look_again: true, ..Plan::default() }
}

/// Ends a reconcile that has met the limit of taken names. The next reconcile continues with the next name ([`search`]) after other keys
/// of the queue. The search ends with a free name only, as in kube-controller-manager.
fn search_later() -> Plan {
    Plan { requeue_after: Some(Duration::ZERO), has_more: true, ..Plan::default() }
}

/// Returns how far the search for a free name has come, for the memory.
pub(super) fn search(view: &View) -> Search {
    if view.present.revision().is_some() {
        return Search::Ended;
    }
    if view.taken == 0 {
        return Search::Unchanged;
    }
    let (set, template) = (view.set.metadata.uid.clone(), view.document.hash(0).as_str().to_owned());
    Search::Stopped(Stopped { set, template, collisions: view.collisions })
}

/// An event on the StatefulSet.
fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    let regarding = Regarding::of(&STATEFUL_SETS, &view.set.metadata);
    EventSpec { regarding, warning, reason, message }
}

/// The event of a pod that could not be made.
fn not_created(view: &View, pod: &str, error: &str) -> EventSpec {
    let set = &view.set.metadata.name;
    event(view, true, "FailedCreate", format!("Create Pod {pod} in StatefulSet {set} failed error: {error}"))
}

/// Joins errors as kube-controller-manager does: one error unchanged, several in brackets.
fn joined(mut errors: Vec<String>) -> String {
    match errors.len() {
        0 | 1 => errors.pop().unwrap_or_default(),
        _ => format!("[{}]", errors.join(", ")),
    }
}
