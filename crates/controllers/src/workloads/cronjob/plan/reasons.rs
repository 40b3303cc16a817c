//! Why a Job is started or not, in words. Decides nothing.

use jiff::Timestamp;

use super::super::view::View;
use super::{Status, Turn, history, jobs, requeue, turn};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::model::words::{count, names, time, verb};

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let status = Status::of(view);
    let spec = &view.cron_job.spec;
    let mut told = Vec::new();
    let turn = turn(view, &status, now, &mut told);
    let mut reasons = Vec::new();
    match turn {
        Turn::Start(at) => {
            let name = jobs::name(&view.cron_job, at);
            reasons.push(format!("The run scheduled for {at} is due; the Job {name} is created."));
            if spec.concurrency_policy == "Replace" && !status.is_idle() {
                let replaced = names(status.active().map(|(held, _)| held.name.clone()));
                reasons.push(format!("The concurrencyPolicy is Replace; {replaced} is deleted first."));
            }
        }
        _ if view.cron_job.metadata.is_deleting() => {
            reasons.push("The CronJob is being deleted; no Job is created.".to_owned());
        }
        Turn::End if spec.suspend => reasons.push("The CronJob is suspended; no Job is created.".to_owned()),
        Turn::End => reasons.push("No Job is created until the CronJob changes.".to_owned()),
        Turn::ComeBack => {
            let wait = requeue(view, None, now).map(time);
            reasons.push(wait.map_or_else(
                || "No scheduled run is due.".to_owned(),
                |wait| format!("No scheduled run is due now; the next run is due in {wait}."),
            ));
        }
    }
    let last = view.cron_job.status.last_schedule_time.filter(|last| Timestamp::from(*last) > now);
    reasons.extend(last.map(|last| {
        format!("status.lastScheduleTime {last} is in the future; no Job is created until then. If the time is wrong, \
             remove it from the status.")
    }));
    // What users are told by events says the rest.
    reasons.extend(told.into_iter().map(|(_, reason, message)| format!("{reason}: {message}")));
    reasons.extend(running(&status));
    let surplus: Vec<&Job> = history::surplus(view);
    if !surplus.is_empty() {
        let (goes, all) =
            (verb(surplus.len(), "is", "are"), names(surplus.iter().map(|job| &job.metadata.name)));
        reasons.push(format!("{all} {goes} deleted; the history limits keep fewer finished Jobs."));
    }
    reasons
}

fn running(status: &Status<'_>) -> Option<String> {
    let running: Vec<_> = status.active().map(|(held, _)| held.name.clone()).collect();
    let number = running.len();
    (number > 0).then(|| {
        format!("{} {} running: {}.", count(number, "Job"), verb(number, "is", "are"), names(running))
    })
}
