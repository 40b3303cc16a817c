//! A Job that is to go, some day.

use std::sync::Arc;

use super::Controller;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Time;

/// The Job, and when it has finished.
#[derive(Debug)]
pub(super) struct View {
    pub(super) job: Arc<Job>,
    /// `None` if it does not say.
    pub(super) finished_at: Option<Time>,
    pub(super) ttl_seconds: i32,
    /// Whether the Job was read live, after the delete of the cached one met a conflict.
    pub(super) is_live: bool,
}

/// Whether it has finished, is to be deleted after a while, and is not being deleted.
pub(super) fn is_to_go(job: &Job) -> bool {
    !job.metadata.is_deleting() && job.spec.ttl_seconds_after_finished.is_some() && job.end().is_some()
}

pub(super) fn observe(room: &Controller, key: &Key) -> Option<View> {
    of_job(room.jobs.get(key)?, false)
}

/// The view of a Job that was read live.
pub(super) fn of_live(job: Arc<Job>) -> Option<View> {
    of_job(job, true)
}

fn of_job(job: Arc<Job>, is_live: bool) -> Option<View> {
    if !is_to_go(&job) {
        return None;
    }
    let finished_at = job.end()?.last_transition_time;
    let ttl_seconds = job.spec.ttl_seconds_after_finished?;
    Some(View { job, finished_at, ttl_seconds, is_live })
}
