//! What is to be done about one Deployment. Pure.
//!
//! A plan holds everything that the original does in one sync, and the order of its writes is the original's: release
//! and adopt, then the new ReplicaSet and the sizes of all, then what is deleted of the history, then the status. Where
//! the original writes an object several times in a row (a ReplicaSet's annotations and then its size; the status with
//! one condition, then with all), a plan writes it once, with the last of these states. Differs: one-write-per-object. In detail:
//!
//! | module | decides on |
//! |---|---|
//! | [`claims`] | which ReplicaSets are the Deployment's |
//! | [`draft`], [`member`] | nothing: they are the plan in the making, which the others change |
//! | [`admitted`] | whether a ReplicaSet is the new one although admission changed its template |
//! | [`revisions`] | the new ReplicaSet, its annotations and revision |
//! | [`rollback`] | the template, where an annotation asks for an earlier one |
//! | [`scale`] | sizes when the Deployment's own size changed, or it is paused |
//! | [`rolling`], [`recreate`] | sizes while a template is rolled out |
//! | [`cleanup`] | old ReplicaSets that are no longer kept |
//! | [`status`], [`conditions`], [`progress`] | the status |
//! | [`failures`] | what is recorded when a write failed |
//! | [`pauses`] | the pause before the next name, if ReplicaSets did not stay as created |
//! | [`reasons`] | nothing: it says in words why |
//! | [`bytes`] | nothing: it puts the bodies of the writes together |

use jiff::Timestamp;

use super::view::{RECREATE, View};
use coxswain_machinery::model::Plan;

mod admitted;
mod annotations;
mod bounds;
mod bytes;
mod claims;
mod cleanup;
mod conditions;
mod draft;
mod error;
mod failures;
mod member;
mod pauses;
mod progress;
pub(super) mod reasons;
mod recreate;
mod revisions;
mod rollback;
mod rolling;
mod scale;
mod status;

#[cfg(test)]
pub(super) use bounds::Bounds;
#[cfg(test)]
pub(super) use scale::{Share, distribute};

use claims::Claims;
use draft::Draft;
use error::Unplannable;
use failures::Verdict;

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    decide(view, now).unwrap_or_else(|error| Plan {
        retry: Some(format!("reconcile Deployment: {error}")),
        ..Plan::default()
    })
}

fn decide(view: &View, now: Timestamp) -> Result<Plan, Unplannable> {
    let deployment = &view.deployment;
    if view.selector.is_empty() {
        return status::refuse_to_select_all(view);
    }
    let claims = Claims::of(view);
    if claims.adopts() && view.failures.is_empty() {
        // An adopted ReplicaSet has another resource version than the one at hand, so nothing else is planned now.
        return Ok(claims.plan(view));
    }
    let mut draft = Draft::new(view, &claims, now)?;
    if deployment.metadata.is_deleting() {
        return if view.failures.is_empty() { status_only(draft) } else { Ok(Plan::default()) };
    }
    progress::note_pause(&mut draft);
    match failures::judge(&draft)? {
        Verdict::GoOn => {}
        Verdict::Leave => return Ok(Plan::default()),
        Verdict::Unscaled => return failures::record_unscaled(draft),
        Verdict::Collision => return failures::count_collision(draft),
        Verdict::CreateFailed(failure) => return failures::record_create(draft, failure),
        Verdict::Paused(failure, pause) => return failures::record_pause(draft, failure, pause),
    }
    revisions::settle(&mut draft);
    if !deployment.spec.paused
        && let Some(to) = rollback::wanted(&draft)
    {
        return rollback::roll_back(draft, to);
    }
    if deployment.spec.paused || scale::is_due(&draft) {
        scale::scale(&mut draft);
        // The revision that is asked for may be one that the history does not keep.
        if deployment.spec.paused && rollback::wanted(&draft).is_none() {
            cleanup::clean_up(&mut draft);
        }
        draft.status = status::calculated(&draft);
    } else {
        match deployment.spec.strategy.r#type.as_str() {
            "RollingUpdate" => rolling::roll_out(&mut draft),
            RECREATE => recreate::roll_out(&mut draft),
            other => return Err(Unplannable::Strategy(format!("unknown type {other:?}"))),
        }
        progress::conclude(&mut draft);
    }
    draft.into_plan()
}

/// A Deployment that is being deleted rolls out nothing any more.
fn status_only(mut draft: Draft<'_>) -> Result<Plan, Unplannable> {
    revisions::settle(&mut draft);
    draft.status = status::calculated(&draft);
    draft.into_plan()
}
