//! What the second pass records when the first one's plan failed.
//!
//! The creation of a ReplicaSet is the first write of its plan (but for releases), so what was observed still holds. Where a size
//! was refused, the pause, the ReplicaSet that was found and the revision are shown: kube-controller-manager writes these before
//! it scales.
//! Differs: no.

use std::time::Duration;

use super::super::view::in_the_way;
use super::admitted::{Names, admitted_from};
use super::draft::Draft;
use super::error::Unplannable;
use super::{bounds, conditions, pauses, revisions};
use coxswain_machinery::api::kinds::{DEPLOYMENTS, REPLICA_SETS};
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::{Failure, Plan, Step};

/// What a failure means.
pub(super) enum Verdict<'a> {
    /// There was none; or the ReplicaSet that was to be created is there, as it should be.
    GoOn,
    /// Nothing is to be recorded.
    Leave,
    /// A ReplicaSet could not be resized or deleted, and the status was not written either.
    Unscaled,
    /// The name belongs to something else.
    Collision,
    /// The ReplicaSet could not be created.
    CreateFailed(&'a Failure),
    /// The name is taken, as the last names were. The next name is tried after this pause.
    Paused(&'a Failure, Duration),
}

pub(super) fn judge<'a>(draft: &Draft<'a>) -> Result<Verdict<'a>, Unplannable> {
    let failures = &draft.view.failures;
    if failures.is_empty() {
        return Ok(Verdict::GoOn);
    }
    let is_creation = |failure: &&Failure| failure.kind == &REPLICA_SETS && failure.verb == "create";
    let Some(failure) = failures.iter().find(is_creation) else {
        let is_of_size =
            |failure: &Failure| failure.kind == &REPLICA_SETS && matches!(failure.verb, "update" | "delete");
        let unscaled = failures.iter().all(is_of_size) && !draft.view.has_written_status;
        return Ok(if unscaled { Verdict::Unscaled } else { Verdict::Leave });
    };
    if failure.is_already_exists() {
        // If it can't be told what is there, the next try will tell.
        let Some(existing) = in_the_way(failure) else { return Ok(Verdict::Leave) };
        let collisions = draft.view.deployment.status.collision_count;
        let names = Names::of(&draft.template, collisions);
        let is_ours = existing.metadata.is_controlled_by(&draft.view.deployment.metadata)
            && (draft.template.is_same_as(&existing.spec.template)?
                || admitted_from(&names, &existing)?.is_some());
        if is_ours {
            return Ok(Verdict::GoOn);
        }
        let pause = pauses::before_next_name(&names, draft, &existing)?;
        return Ok(pause.map_or(Verdict::Collision, |pause| Verdict::Paused(failure, pause.unsigned_abs())));
    }
    Ok(if is_namespace_going(failure) { Verdict::Leave } else { Verdict::CreateFailed(failure) })
}

/// Whether the namespace is being deleted: the ReplicaSet would go with it. Its cause says so too, but a failure holds
/// only the message.
fn is_namespace_going(failure: &Failure) -> bool {
    failure.code == 403 && failure.message.ends_with("because it is being terminated")
}

/// Shows what was settled before the sizes were.
pub(super) fn record_unscaled(mut draft: Draft<'_>) -> Result<Plan, Unplannable> {
    let before = draft.status.clone();
    revisions::settle(&mut draft);
    let is_refused = |name: &str| draft.view.failures.iter().any(|failure| failure.key.name == *name);
    if draft.newest().is_some_and(|new| new.is_changed() && is_refused(new.name())) {
        // Its annotations may be what was refused, and they come first.
        draft.status = before;
    }
    draft.into_status()
}

/// The next name is another one.
pub(super) fn count_collision(mut draft: Draft<'_>) -> Result<Plan, Unplannable> {
    let collisions = draft.status.collision_count.unwrap_or(0);
    draft.status.collision_count = Some(collisions.saturating_add(1));
    draft.into_plan()
}

/// Records that the ReplicaSet could not be created, and retries at the end of the pause.
pub(super) fn record_pause(
    draft: Draft<'_>,
    failure: &Failure,
    pause: Duration,
) -> Result<Plan, Unplannable> {
    let mut plan = record_create(draft, failure)?;
    plan.look_again_after(pause);
    Ok(Plan { end: true, ..plan })
}

/// Says that the ReplicaSet could not be created, and why.
pub(super) fn record_create(mut draft: Draft<'_>, failure: &Failure) -> Result<Plan, Unplannable> {
    let name = failure.key.name.as_str();
    let message = format!("Failed to create new replica set {name:?}: {}", failure.message);
    if bounds::deadline(draft.spec()).is_some() {
        let failed = conditions::progressing("False", conditions::CREATE_ERROR, message.clone(), draft.now);
        conditions::set(&mut draft.status, failed);
    }
    let regarding = Regarding::of(&DEPLOYMENTS, &draft.view.deployment.metadata);
    let mut plan = draft.into_plan()?;
    // Before the status, of which a conflict ends the plan.
    plan.steps.insert(
        0,
        Step::Emit(EventSpec { regarding, warning: true, reason: conditions::CREATE_ERROR, message }),
    );
    Ok(plan)
}
