//! What a Deployment's status should say: counts, availability, progress, failure. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::conditions::{
    self, AVAILABLE, NEW_REPLICA_SET_AVAILABLE, PROGRESSING, REPLICA_FAILURE, TIMED_OUT,
};
use super::draft::{Draft, Set};
use crate::api::apps::{Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet};
use crate::wire::Time;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Seconds without progress after which a rollout counts as failed; `None` when it never does, which is also written
/// as the largest number.
pub(super) fn deadline(spec: &DeploymentSpec) -> Option<i64> {
    spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX).map(i64::from)
}

/// Whether `status` says that the present template is rolled out.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = deployment.spec.replicas.unwrap_or(1);
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
        && status.observed_generation >= deployment.metadata.generation
}

/// The counts, and the condition `Available`.
pub(super) fn counted(draft: &Draft<'_>, now: Timestamp) -> DeploymentStatus {
    let sum = |count: &dyn Fn(&ReplicaSet) -> i32| {
        draft.sets.iter().map(|set| i64::from(count(&set.object))).sum::<i64>()
    };
    let deployment = &draft.view.deployment;
    let available = sum(&|set| set.status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: narrow(sum(&|set| set.status.replicas)),
        updated_replicas: draft.new_set().map_or(0, |set| set.object.status.replicas),
        ready_replicas: narrow(sum(&|set| set.status.ready_replicas)),
        available_replicas: narrow(available),
        unavailable_replicas: narrow((draft.total() - available).max(0)),
        collision_count: deployment.status.collision_count,
        terminating_replicas: if draft.view.terminating_replicas { terminating(&draft.sets) } else { None },
        conditions: draft.conditions.clone(),
    };
    let condition = if available >= draft.fenceposts.least() {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let (is, reason, message) = condition;
    conditions::set(&mut status.conditions, conditions::new(AVAILABLE, is, reason, message, Time::from(now)));
    status
}

fn narrow(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(if count < 0 { i32::MIN } else { i32::MAX })
}

/// Unknown as long as one ReplicaSet has not told.
fn terminating(sets: &[Set]) -> Option<i32> {
    let told = sets.iter().map(|set| set.object.status.terminating_replicas.map(i64::from));
    told.sum::<Option<i64>>().map(narrow)
}

/// The status during and after a rollout: the counts, and how it gets on.
pub(super) fn of_rollout(draft: &Draft<'_>, now: Timestamp) -> DeploymentStatus {
    let mut status = counted(draft, now);
    match deadline(&draft.view.deployment.spec) {
        None => conditions::remove(&mut status.conditions, PROGRESSING),
        Some(deadline) => progress(draft, &mut status, deadline, now),
    }
    match replica_failure(draft) {
        Some(failure) => conditions::set(&mut status.conditions, failure),
        None => conditions::remove(&mut status.conditions, REPLICA_FAILURE),
    }
    status
}

fn progress(draft: &Draft<'_>, status: &mut DeploymentStatus, deadline: i64, now: Timestamp) {
    let deployment = &draft.view.deployment;
    let current = conditions::find(&draft.conditions, PROGRESSING);
    // Once complete, only another rollout starts the account of progress anew.
    let was_complete = current.is_some_and(|current| current.reason == NEW_REPLICA_SET_AVAILABLE);
    if was_complete && status.replicas == status.updated_replicas {
        return;
    }
    let subject = match draft.new_set() {
        Some(set) => format!("ReplicaSet {:?}", set.object.metadata.name),
        None => format!("Deployment {:?}", deployment.metadata.name),
    };
    let at = Time::from(now);
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        let condition = conditions::progressing("True", NEW_REPLICA_SET_AVAILABLE, message, at);
        conditions::set(&mut status.conditions, condition);
    } else if has_progressed(&deployment.status, status) {
        let message = format!("{subject} is progressing.");
        let mut condition = conditions::progressing("True", "ReplicaSetUpdated", message, at);
        if let Some(current) = current.filter(|current| current.status == "True") {
            condition.last_transition_time = current.last_transition_time;
        }
        // Each bit of progress counts: its time is what the deadline is measured from.
        conditions::replace(&mut status.conditions, condition);
    } else if current.is_some_and(|current| has_timed_out(current, deadline, now)) {
        let message = format!("{subject} has timed out progressing.");
        conditions::set(&mut status.conditions, conditions::progressing("False", TIMED_OUT, message, at));
    }
}

/// More new pods, fewer old ones, more ready or more available ones.
fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| i64::from(status.replicas) - i64::from(status.updated_replicas);
    after.updated_replicas > before.updated_replicas
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

fn has_timed_out(current: &DeploymentCondition, deadline: i64, now: Timestamp) -> bool {
    match current.reason.as_str() {
        NEW_REPLICA_SET_AVAILABLE => false,
        TIMED_OUT => true,
        _ => nanos_left(current, deadline, now) < 0,
    }
}

/// Time until the deadline; negative when it is over. A condition without a time is as old as time itself.
fn nanos_left(current: &DeploymentCondition, deadline: i64, now: Timestamp) -> i128 {
    let since = current.last_update_time.map_or(i64::MIN / 2, Time::seconds);
    i128::from(since.saturating_add(deadline)) * NANOS_PER_SECOND - now.as_nanosecond()
}

/// When to look again although nothing happens: a second after the deadline of a rollout that is not complete.
pub(super) fn next_look(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = deadline(&deployment.spec)?;
    let current = conditions::find(&status.conditions, PROGRESSING)?;
    // Neither of these is ever late, nor late again.
    if is_complete(deployment, status)
        || [TIMED_OUT, NEW_REPLICA_SET_AVAILABLE].contains(&current.reason.as_str())
    {
        return None;
    }
    let left = nanos_left(current, deadline, now).max(0);
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)).saturating_add(Duration::from_secs(1)))
}

/// The failure that the new ReplicaSet reports, or else an old one.
fn replica_failure(draft: &Draft<'_>) -> Option<DeploymentCondition> {
    let sets = draft.new_set().into_iter().chain(draft.old_sets());
    let mut failures =
        sets.flat_map(|set| &set.object.status.conditions).filter(|held| held.r#type == REPLICA_FAILURE);
    failures.next().map(conditions::replica_failure)
}
