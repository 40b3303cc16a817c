//! How a Job ends: by which condition, and why.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::member;
use super::super::view::View;
use super::counts::Counts;
use super::indexes::Indexes;
use super::members::Members;
use super::policy::{self, Action};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::wire::{Str, Time};

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) is_success: bool,
    pub(super) reason: Str,
    pub(super) message: Str,
}

impl End {
    fn success(reason: &str, message: impl Into<Str>) -> Self {
        Self { is_success: true, reason: reason.into(), message: message.into() }
    }

    fn failure(reason: &str, message: impl Into<Str>) -> Self {
        Self { is_success: false, reason: reason.into(), message: message.into() }
    }

    /// The condition that is written first, when the end is decided.
    pub(super) fn decided(&self) -> &'static str {
        if self.is_success { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    /// The condition that is written when all pods are gone.
    pub(super) fn reached(&self) -> &'static str {
        if self.is_success { "Complete" } else { "Failed" }
    }
}

/// The end that a Job comes to whatever is done about its pods; the first that holds.
pub(super) fn before_managing(
    view: &View,
    members: &Members<'_>,
    indexes: Option<&Indexes>,
    counts: Counts,
    now: Timestamp,
) -> Option<End> {
    let job = &view.job;
    decided(job)
        .or_else(|| by_policy(members))
        .or_else(|| by_backoff_limit(view, members, counts))
        .or_else(|| by_deadline(job, now))
        .or_else(|| indexes.and_then(|indexes| by_indexes(job, indexes)))
}

/// The end that was decided already.
fn decided(job: &Job) -> Option<End> {
    let told = |kind: &str, is_success| {
        let held = job.condition(kind).filter(|held| held.status == "True")?;
        Some(End { is_success, reason: held.reason.clone(), message: held.message.clone() })
    };
    told("SuccessCriteriaMet", true).or_else(|| told("FailureTarget", false))
}

fn by_policy(members: &Members<'_>) -> Option<End> {
    members.kept.iter().find_map(|member| match &member.action {
        Some(Action::FailJob(message)) => Some(End::failure("PodFailurePolicy", message.as_str())),
        _ => None,
    })
}

fn by_backoff_limit(view: &View, members: &Members<'_>, counts: Counts) -> Option<End> {
    let limit = u64::try_from(view.job.spec.backoff_limit.unwrap_or(6)).unwrap_or(0);
    let runs = |phase: &str| phase == "Running" || phase == "Pending";
    let restarts = || -> i64 {
        let running = members.kept.iter().filter(|member| runs(&member.pod.status.phase));
        running.map(|member| member::restarts(member.pod)).sum()
    };
    let too_many = || restarts() >= i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
    let is_exceeded = counts.failed > limit || view.restarts_in_place && too_many();
    is_exceeded.then(|| End::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

fn by_deadline(job: &Job, now: Timestamp) -> Option<End> {
    (until_deadline(job, now)? == Duration::ZERO)
        .then(|| End::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// How long the Job may still be active; `None` if for ever, or if it is not active.
pub(super) fn until_deadline(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.active_deadline_seconds?;
    // One that is resumed just now starts anew.
    if job.spec.suspend || is_suspended(job) {
        return None;
    }
    let started = job.status.start_time.unwrap_or(Time::from(now));
    let deadline = Timestamp::from(started.plus_seconds(seconds));
    let left: SignedDuration = deadline.duration_since(now);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// Whether the status says that the Job is suspended.
pub(super) fn is_suspended(job: &Job) -> bool {
    job.condition("Suspended").is_some_and(|held| held.status == "True")
}

fn by_indexes(job: &Job, indexes: &Indexes) -> Option<End> {
    let succeeded = &indexes.succeeded;
    if let Some(failed) = &indexes.failed {
        let most = job.spec.max_failed_indexes.map(|most| u64::try_from(most).unwrap_or(0));
        if most.is_some_and(|most| failed.len() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(End::failure("MaxFailedIndexesExceeded", message));
        }
        let ended = failed.len() + succeeded.len();
        if !failed.is_empty() && ended >= u64::from(indexes.completions) {
            return Some(End::failure("FailedIndexes", "Job has failed indexes"));
        }
    }
    let rule = policy::success(job, succeeded, indexes.completions)?;
    Some(End::success("SuccessPolicy", format!("Matched rules at index {rule}")))
}

/// The end of a Job that has run as it should: enough pods have succeeded, and none is left.
pub(super) fn after_managing(job: &Job, active: usize, counts: Counts) -> Option<End> {
    let enough = match job.spec.completions {
        Some(completions) => counts.succeeded >= u64::try_from(completions).unwrap_or(0),
        None => counts.succeeded > 0,
    };
    (active == 0 && enough)
        .then(|| End::success("CompletionsReached", "Reached expected number of succeeded pods"))
}
