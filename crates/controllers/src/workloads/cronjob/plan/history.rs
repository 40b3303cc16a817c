//! Finished Jobs of which there are more than are to be kept.

use super::super::view::View;
use super::jobs;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::model::Write;
use coxswain_machinery::model::plan::Tolerate;

/// The oldest beyond the limits, of which those that are being deleted already count.
pub(super) fn surplus(view: &View) -> Vec<&Job> {
    let spec = &view.cron_job.spec;
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let beyond = limits.into_iter().filter_map(|(end, limit)| Some((end, usize::try_from(limit?).ok()?)));
    beyond.flat_map(|(end, limit)| oldest(view, end, limit)).collect()
}

fn oldest<'a>(view: &'a View, end: &str, limit: usize) -> impl Iterator<Item = &'a Job> {
    let has_ended = |job: &&Job| job.end().is_some_and(|held| held.r#type == end);
    let mut ended: Vec<&Job> = view.jobs.iter().map(AsRef::as_ref).filter(has_ended).collect();
    ended.sort_by_key(|job| {
        let start = job.status.start_time;
        (start.is_none(), start, job.metadata.name.clone())
    });
    let surplus = ended.len().saturating_sub(limit);
    ended.into_iter().take(surplus).filter(|job| !job.metadata.is_deleting())
}

/// Deletes a surplus Job. A rejection emits an event and does not stop the plan. After a conflict, the CronJob is reconciled again.
pub(super) fn delete(view: &View, job: &Job) -> Write {
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Write { keep_going: true, tolerate, ..jobs::delete(view, &job.metadata.name, &job.metadata.uid) }
}
