//! A Deployment's conditions: how one is found, made, replaced. Pure.

use crate::api::apps::{DeploymentCondition, ReplicaSetCondition};
use crate::wire::Time;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of `Progressing` that later decisions rest on.
pub(super) const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const PAUSED: &str = "DeploymentPaused";

/// A condition that is new now.
pub(super) fn new(
    r#type: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Time,
) -> DeploymentCondition {
    DeploymentCondition {
        r#type: r#type.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into().into(),
        last_update_time: Some(now),
        last_transition_time: Some(now),
    }
}

/// A condition `Progressing` that is new now.
pub(super) fn progressing(status: &str, reason: &str, message: String, now: Time) -> DeploymentCondition {
    new(PROGRESSING, status, reason, message, now)
}

/// The failure that a ReplicaSet reports, as its Deployment reports it.
pub(super) fn replica_failure(failure: &ReplicaSetCondition) -> DeploymentCondition {
    DeploymentCondition {
        r#type: failure.r#type.clone(),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_update_time: failure.last_transition_time,
        last_transition_time: failure.last_transition_time,
    }
}

/// The condition of this type.
pub(super) fn find<'a>(held: &'a [DeploymentCondition], r#type: &str) -> Option<&'a DeploymentCondition> {
    held.iter().find(|condition| condition.r#type == r#type)
}

/// Puts `condition` in the place of the one of its type, at the end. One that has the same status and reason stays as
/// it is; one that has the same status lends its transition time.
pub(super) fn set(held: &mut Vec<DeploymentCondition>, mut condition: DeploymentCondition) {
    if let Some(current) = find(held, &condition.r#type)
        && current.status == condition.status
    {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time;
    }
    replace(held, condition);
}

/// Puts `condition` in the place of the one of its type, at the end, whatever that says.
pub(super) fn replace(held: &mut Vec<DeploymentCondition>, condition: DeploymentCondition) {
    remove(held, &condition.r#type);
    held.push(condition);
}

/// Takes the condition of this type away.
pub(super) fn remove(held: &mut Vec<DeploymentCondition>, r#type: &str) {
    held.retain(|condition| condition.r#type != r#type);
}
