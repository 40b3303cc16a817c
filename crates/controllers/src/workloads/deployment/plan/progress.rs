//! Whether a roll-out advances: the condition `Progressing`, and the deadline behind it.

use std::time::Duration;

use jiff::Timestamp;

use super::bounds::deadline;
use super::conditions::{self, NEW_AVAILABLE, PROGRESSING, REPLICA_FAILURE, TIMED_OUT};
use super::draft::Draft;
use super::status;
use coxswain_machinery::api::apps::{DeploymentCondition, DeploymentStatus};

const PAUSED: &str = "DeploymentPaused";

/// How much later than the deadline to look again: by any time at all.
const JUST_AFTER: Duration = Duration::from_millis(1);

/// Notes that the Deployment was paused or resumed, so that the time it was paused does not count against the deadline.
/// One that has missed its deadline stays so until there is progress.
pub(super) fn note_pause(draft: &mut Draft<'_>) {
    if deadline(draft.spec()).is_none() {
        return;
    }
    let reason = conditions::get(&draft.status, PROGRESSING).map_or("", |held| held.reason.as_str());
    let (reason, message) = match (draft.spec().paused, reason) {
        (_, TIMED_OUT) => return,
        (true, reason) if reason != PAUSED => (PAUSED, "Deployment is paused"),
        (false, PAUSED) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    let condition = conditions::progressing("Unknown", reason, message.to_owned(), draft.now);
    conditions::set(&mut draft.status, condition);
}

/// Ends a roll-out's plan with the status: counts, progress, failures.
pub(super) fn conclude(draft: &mut Draft<'_>) {
    let before = draft.status.clone();
    let mut new = status::calculated(draft);
    let current = conditions::get(&before, PROGRESSING).cloned();
    match deadline(draft.spec()) {
        None => conditions::remove(&mut new, PROGRESSING),
        Some(_) if is_settled(&new, current.as_ref()) => {}
        Some(seconds) => judge(draft, &before, current, &mut new, seconds),
    }
    match replica_failure(draft) {
        Some(failure) => conditions::set(&mut new, failure),
        None => conditions::remove(&mut new, REPLICA_FAILURE),
    }
    draft.look_again_after = next_look(draft, &new);
    draft.status = new;
}

/// Whether the last roll-out is done and no other has begun: then there is no progress to speak of.
fn is_settled(status: &DeploymentStatus, current: Option<&DeploymentCondition>) -> bool {
    status.replicas == status.updated_replicas
        && current.is_some_and(|current| current.reason == NEW_AVAILABLE)
}

fn judge(
    draft: &Draft<'_>,
    before: &DeploymentStatus,
    current: Option<DeploymentCondition>,
    status: &mut DeploymentStatus,
    seconds: i32,
) {
    let deployment = &draft.view.deployment.metadata.name;
    let subject = draft.newest().map_or_else(
        || format!("Deployment {:?}", deployment.as_str()),
        |new| format!("ReplicaSet {:?}", new.name()),
    );
    if status::is_complete(draft.view, status) {
        let message = format!("{subject} has successfully progressed.");
        conditions::set(status, conditions::progressing("True", NEW_AVAILABLE, message, draft.now));
    } else if has_progressed(before, status) {
        let message = format!("{subject} is progressing.");
        let mut condition = conditions::progressing("True", "ReplicaSetUpdated", message, draft.now);
        // Each step forward moves `lastUpdateTime`, from which the deadline counts, even if it says the same as before.
        if let Some(current) = current.filter(|current| current.status == "True") {
            condition.last_transition_time = current.last_transition_time;
        }
        conditions::put(status, condition);
    } else if has_timed_out(status, seconds, draft.now) {
        let message = format!("{subject} has timed out progressing.");
        conditions::set(status, conditions::progressing("False", TIMED_OUT, message, draft.now));
    }
}

/// More new pods, fewer old ones, more ready ones or more available ones.
fn has_progressed(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas.saturating_sub(status.updated_replicas);
    now.updated_replicas > before.updated_replicas
        || old(now) < old(before)
        || now.ready_replicas > before.ready_replicas
        || now.available_replicas > before.available_replicas
}

fn has_timed_out(status: &DeploymentStatus, seconds: i32, now: Timestamp) -> bool {
    let Some(condition) = conditions::get(status, PROGRESSING) else { return false };
    match condition.reason.as_str() {
        // What was complete once may lose pods without being a roll-out.
        NEW_AVAILABLE => false,
        TIMED_OUT => true,
        _ => until_deadline(condition, seconds, now).is_none(),
    }
}

/// How long until the deadline has passed; `None` if it has.
fn until_deadline(condition: &DeploymentCondition, seconds: i32, now: Timestamp) -> Option<Duration> {
    let from = condition.last_update_time.map_or(0, |at| i128::from(at.seconds()));
    let left = (from + i128::from(seconds)) * 1_000_000_000 - now.as_nanosecond();
    u64::try_from(left).ok().map(Duration::from_nanos)
}

/// When to look whether the deadline has passed, since nothing else may happen by then.
fn next_look(draft: &Draft<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let seconds = deadline(draft.spec())?;
    let condition = conditions::get(status, PROGRESSING)?;
    if status::is_complete(draft.view, status)
        || [NEW_AVAILABLE, TIMED_OUT].contains(&condition.reason.as_str())
    {
        return None;
    }
    until_deadline(condition, seconds, draft.now).map(|left| left + JUST_AFTER)
}

/// The failure to create or delete pods that a ReplicaSet reports, the new one before any other.
fn replica_failure(draft: &Draft<'_>) -> Option<DeploymentCondition> {
    let sets = draft.newest().into_iter().chain(&draft.members).map(|member| &member.object);
    let failure = sets.flat_map(|set| &set.status.conditions).find(|held| held.r#type == REPLICA_FAILURE)?;
    Some(DeploymentCondition {
        r#type: failure.r#type.clone(),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_update_time: failure.last_transition_time,
        last_transition_time: failure.last_transition_time,
    })
}
