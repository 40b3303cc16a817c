//! A Job that is to go, some day.

use std::sync::Arc;

use coxswain_machinery::api::batch::Job;
use coxswain_machinery::wire::Time;

/// The Job, and when it has finished.
#[derive(Debug)]
pub(super) struct View {
    pub(super) job: Arc<Job>,
    /// `None` if it does not say.
    pub(super) finished_at: Option<Time>,
    pub(super) ttl_seconds: i32,
    /// Whether the delete of the cached Job met a conflict in this reconcile; then the Job was read live.
    pub(super) has_failed: bool,
}

/// Whether it has finished, is to be deleted after a while, and is not being deleted.
pub(super) fn is_to_go(job: &Job) -> bool {
    !job.metadata.is_deleting() && job.spec.ttl_seconds_after_finished.is_some() && job.end().is_some()
}

/// The view of a Job, cached or live; `has_failed`: the delete of the cached one met a conflict in this reconcile.
pub(super) fn of_job(job: Arc<Job>, has_failed: bool) -> Option<View> {
    if !is_to_go(&job) {
        return None;
    }
    let finished_at = job.end()?.last_transition_time;
    let ttl_seconds = job.spec.ttl_seconds_after_finished?;
    Some(View { job, finished_at, ttl_seconds, has_failed })
}
