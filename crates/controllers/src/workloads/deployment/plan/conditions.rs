//! Conditions of a Deployment and how they change.
//!
//! A condition that says the same as before, by status and reason, stays as it is, message and times included. One that
//! changes goes to the end of the list, and its `lastTransitionTime` moves only with its status.

use jiff::Timestamp;

use coxswain_machinery::api::apps::{DeploymentCondition, DeploymentStatus};
use coxswain_machinery::wire::{Str, Time};

/// Reason of the condition and of the event about a refused create.
pub(super) const CREATE_ERROR: &str = "ReplicaSetCreateError";
/// Enough pods are available.
pub(super) const AVAILABLE: &str = "Available";
/// The roll-out advances, or is done.
pub(super) const PROGRESSING: &str = "Progressing";
/// Pods cannot be created or deleted.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The roll-out is done.
pub(super) const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
/// The roll-out has made no progress for too long.
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// The condition of this type.
pub(super) fn get<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().find(|held| held.r#type == kind)
}

/// A condition that begins now.
pub(super) fn new(
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    let at = Some(Time::from(now));
    DeploymentCondition {
        r#type: Str::interned(kind),
        status: Str::interned(status),
        reason: Str::interned(reason),
        message: message.into(),
        last_update_time: at,
        last_transition_time: at,
    }
}

/// `Progressing`, beginning now.
pub(super) fn progressing(
    status: &'static str,
    reason: &'static str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    new(PROGRESSING, status, reason, message, now)
}

/// Sets a condition.
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(held) = get(status, &condition.r#type)
        && held.status == condition.status
    {
        if held.reason == condition.reason {
            return;
        }
        condition.last_transition_time = held.last_transition_time;
    }
    put(status, condition);
}

/// Puts a condition in place of any other of its type, whatever that says.
pub(super) fn put(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    remove(status, &condition.r#type);
    status.conditions.push(condition);
}

/// Removes the condition of this type.
pub(super) fn remove(status: &mut DeploymentStatus, kind: &str) {
    status.conditions.retain(|held| held.r#type != kind);
}
