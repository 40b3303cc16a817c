//! What is to be done about one DaemonSet. Pure.
//!
//! A plan holds everything that the original does in one sync, and the order of its writes is the original's: revisions, then
//! release and adoption of pods, creates and deletes, what is not kept of the history, the status. In detail:
//!
//! | module | decides on |
//! |---|---|
//! | [`revisions`] | the revision of the present template, and what is not kept of the others |
//! | [`claims`] | which pods are the DaemonSet's |
//! | [`daemons`] | nothing: nodes, how they fit, and the pods on them |
//! | [`placing`] | the pods that each node should have |
//! | [`rolling`] | which pods give way to the present template |
//! | [`status`] | the status, and when to look again |
//! | [`failures`] | what is left to do when a write failed |
//! | [`reasons`] | nothing: it says in words why |
//! | [`writes`] | nothing: it puts the writes together |
//!
//! As long as placing has something to do nothing is rolled.

use jiff::Timestamp;

use super::memory::Note;
use super::view::View;
use coxswain_machinery::api::kinds::DAEMON_SETS;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::revisions::{Numbers, TemplateDocument};
use coxswain_machinery::model::{Plan, Step};
use coxswain_machinery::wire::WireError;

mod bounds;
mod claims;
mod daemons;
mod failures;
mod placing;
pub(super) mod reasons;
mod revisions;
mod rolling;
mod status;
mod writes;

#[cfg(test)]
pub(super) use bounds::Bounds;

use claims::Claims;
use daemons::Daemons;
use failures::Remains;

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let mut note = Note::default();
    let plan = decide(view, now, &mut note).unwrap_or_else(|error| Plan {
        retry: Some(format!("reconcile DaemonSet: {error}")),
        ..Plan::default()
    });
    plan.with_note(note)
}

fn decide(view: &View, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    let mut plan = Plan::default();
    if view.selector.is_empty() {
        if view.failures.is_empty() {
            plan.steps.push(Step::Emit(refusal_to_select_all(view)));
        }
        return Ok(plan);
    }
    // What a deleted one leaves behind is the garbage collector's, or stays for who comes after it.
    if view.daemon_set.metadata.is_deleting() {
        return Ok(plan);
    }
    let document = TemplateDocument::of(&view.daemon_set.spec.template, Numbers::Exact)?;
    let remains = failures::judge(view, &document);
    match remains {
        Remains::Nothing => {
            // Only adoptions need a live DaemonSet.
            if view.failures.iter().any(|failure| failure.is_check_of(&DAEMON_SETS)) {
                plan.steps.extend(Claims::of(view).releases(view));
            }
            return Ok(plan);
        }
        Remains::Collision => {
            plan.write_status(status::collided(view)?);
            return Ok(plan);
        }
        // What is there need not be made: that it could not be is no failure.
        Remains::All => plan.end = !view.failures.is_empty(),
        Remains::Deletes | Remains::Status => {}
    }
    let claims = Claims::of(view);
    let present = revisions::settle(view, &claims, &document)?;
    if remains == Remains::All {
        plan.steps.clone_from(&present.steps);
        claims.write(view, &mut plan);
    }
    // What is placed and rolled depends on the labels that pods are about to have.
    let relabeled = present.relabeled(view);
    let view = relabeled.as_ref().unwrap_or(view);
    let claims = Claims::of(view);
    let daemons = Daemons::of(view, &claims.kept);
    let mut changes = placing::place(view, &daemons, &present.hash, now);
    if changes.is_empty() {
        rolling::roll(view, &daemons, &present.hash, now, &mut changes);
    }
    let scales = !changes.is_empty();
    if remains == Remains::All {
        plan.steps.extend(changes.creates(view, &present.hash)?);
    }
    if matches!(remains, Remains::All | Remains::Deletes) {
        plan.steps.extend(changes.deletes(view, note));
    }
    if remains == Remains::All {
        plan.steps.extend(revisions::clean_up(view, &claims, &present.old));
    }
    if let Some(wait) = changes.look_again {
        plan.look_again_after(wait);
    }
    let status = status::of(view, &daemons, &present.hash, now);
    if let Some(wait) = status::next_look(view, &claims.kept, &status, now) {
        plan.look_again_after(wait);
    }
    // Pods that come and go bring the DaemonSet back in a moment, and what is said then is said once.
    if scales && remains == Remains::All && status.is_counted_by(&view.daemon_set) {
        return Ok(plan);
    }
    plan.write_status(status::write(view, &status)?);
    Ok(plan)
}

fn refusal_to_select_all(view: &View) -> EventSpec {
    EventSpec {
        regarding: Regarding::of(&DAEMON_SETS, &view.daemon_set.metadata),
        warning: true,
        reason: "SelectingAll",
        message: "This daemon set is selecting all pods. A non-empty selector is required.".to_owned(),
    }
}
