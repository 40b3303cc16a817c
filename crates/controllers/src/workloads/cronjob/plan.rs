//! What is to be done about a CronJob now.
//!
//! If an activation is due, its Job is made and another look follows, which knows the Job's UID. The last plan of a reconcile writes
//! the status ([`status`]), tells what it records, and deletes what the history has too much ([`history`]).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::memory::Note;
use super::schedule::Schedule;
use super::timing::{Missed, missed, next_look};
use super::view::{Failed, Made, View};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::CRON_JOBS;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::wire::{Str, Time, WireError};

mod history;
mod jobs;
mod reasons;
mod status;

pub(super) use reasons::reasons;
use status::Status;

const UNSUPPORTED: &str = "is not officially supported, see \
    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

/// When the history is seen to again after a failure, if nothing else calls for a look: as long as any controller waits at most. (The
/// original waits for its caches to be synced anew, half a day or more.)
/// Differs: failed-history-deletes.
const WITHOUT_NEXT_LOOK: Duration = Duration::from_secs(1000);

/// What becomes of the schedule now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing, until something changes.
    End,
    /// Nothing, until the next activation.
    ComeBack,
    /// This activation is due.
    Start(Timestamp),
}

/// An event that a reconcile tells.
type Told = (bool, &'static str, String);

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    decide(view, now).unwrap_or_else(|error| {
        let key = Key::of(&view.cron_job.metadata);
        let retry = Some(format!("CronJob {key} is malformed: {error}"));
        Plan { retry, ..Plan::default() }.with_note(Note::default())
    })
}

fn decide(view: &View, now: Timestamp) -> Result<Plan<Note>, WireError> {
    let mut status = Status::of(view);
    if let Some(plan) = after_failures(view, &mut status, now)? {
        return Ok(plan);
    }
    if let Some(made) = &view.made {
        let at = created_for(view, &status, made, now).unwrap_or(now);
        status.add(&made.job, at);
        let skew = made.job.metadata.creation_timestamp.filter(|_| !made.existed);
        let skew = skew.map(|created| (created.seconds() - at.as_second()) as f64);
        let requeue_after = requeue(view, Some(at), now);
        return Ok(Plan { requeue_after, ..finish(view, &status, &[], None)? }.with_note(note(view, skew)));
    }
    let mut told = Vec::new();
    let turn = turn(view, &status, now, &mut told);
    if let Turn::Start(at) = turn {
        if let Some((job, of)) = forgotten(view, &status, at) {
            status.add(job, of);
            let plan = finish(view, &status, &[], Some(&job.metadata.name))?;
            return Ok(Plan { requeue_after: Some(Duration::ZERO), ..plan }.with_note(note(view, None)));
        }
        let name = jobs::name(&view.cron_job, at);
        let Some(found) = view.jobs.iter().find(|job| job.metadata.name == name) else {
            return Ok(start(view, &status, at, &told)?.with_note(Note::default()));
        };
        // Somebody made it, and could not say so any more.
        status.add(found, at);
        let requeue_after = requeue(view, Some(at), now);
        let plan = finish(view, &status, &told, Some(&found.metadata.name))?;
        return Ok(Plan { requeue_after, ..plan }.with_note(note(view, None)));
    }
    let requeue_after = if turn == Turn::ComeBack { requeue(view, None, now) } else { None };
    Ok(Plan { requeue_after, ..finish(view, &status, &told, None)? }.with_note(note(view, None)))
}

/// Returns the activation for which this reconcile created a Job, or met one of the name.
fn created_for(view: &View, status: &Status<'_>, made: &Made, now: Timestamp) -> Option<Timestamp> {
    if !made.existed {
        return jobs::of_own_create(&view.cron_job, &made.job);
    }
    match turn(view, status, now, &mut Vec::new()) {
        Turn::Start(at) if jobs::name(&view.cron_job, at) == made.job.metadata.name => Some(at),
        // Another activation has come due meanwhile.
        _ => jobs::of_own_create(&view.cron_job, &made.job),
    }
}

/// Returns a running Job of another activation that the status does not list, beside which `at` must not start: the answer to its
/// create was lost. Its activation may be later than `at`, if a clock was ahead. kube-controller-manager goes by the status alone
/// and starts a second Job.
/// Differs: unlisted-jobs.
fn forgotten<'a>(view: &'a View, status: &Status<'_>, at: Timestamp) -> Option<(&'a Job, Timestamp)> {
    if !matches!(&*view.cron_job.spec.concurrency_policy, "Forbid" | "Replace") {
        return None;
    }
    let others = view.jobs.iter().filter_map(|job| {
        let of = jobs::started(view, job).filter(|of| *of != at)?;
        let runs = job.end().is_none() && !job.metadata.is_deleting();
        (runs && !status.lists(&job.metadata.name)).then_some((job.as_ref(), of))
    });
    others.min_by_key(|(_, of)| *of)
}

/// What this plan tells if it is the last one.
fn note(view: &View, skew: Option<f64>) -> Note {
    Note { rescheduled: view.rescheduled, skew }
}

/// The plan that follows a failure: the status says what was done all the same. `None` if nothing has failed.
fn after_failures(
    view: &View,
    status: &mut Status<'_>,
    now: Timestamp,
) -> Result<Option<Plan<Note>>, WireError> {
    let is_replaced = |name: &Str| status.lists(name);
    let plan = match view.failed.as_slice() {
        [] => return Ok(None),
        failed if failed.contains(&Failed::Status) => Plan::default(),
        // Of the history: all else is done, and it is not retried before the next look.
        failed if failed.iter().all(|each| matches!(each, Failed::Delete(name) if !is_replaced(name))) => {
            let at = view.made.as_ref().and_then(|made| created_for(view, status, made, now));
            let turn = turn(view, status, now, &mut Vec::new());
            let comes_back = at.is_some() || turn != Turn::End;
            Plan {
                requeue_after: requeue(view, at, now).filter(|_| comes_back).or(Some(WITHOUT_NEXT_LOOK)),
                end: true,
                ..Plan::default()
            }
        }
        [.., Failed::Taken { settled }] => {
            let at = view.made.as_ref();
            let at = at.and_then(|made| Some((&made.job, created_for(view, status, made, now)?)));
            if let Some((job, at)) = at {
                status.add(job, at);
            }
            let requeue_after = at.and_then(|(_, at)| requeue(view, Some(at), now));
            let end = *settled || at.is_some();
            Plan { requeue_after, end, ..finish(view, status, &[], None)? }
        }
        [.., Failed::Create(error)] => {
            let refused = (true, "FailedCreate", format!("Error creating job: {error}"));
            finish(view, status, &[refused], None)?
        }
        _ => finish(view, status, &[], None)?,
    };
    Ok(Some(plan.with_note(Note::default())))
}

/// Whether an activation is due, by schedule and policy. Why not, if people are to know, is `told`.
fn turn(view: &View, status: &Status<'_>, now: Timestamp, told: &mut Vec<Told>) -> Turn {
    let spec = &view.cron_job.spec;
    if view.cron_job.metadata.is_deleting() {
        return Turn::End;
    }
    if let Some(zone) = view.unknown_zone() {
        told.push((
            true,
            "UnknownTimeZone",
            format!("invalid timeZone: \"{zone}\": unknown time zone {zone}"),
        ));
        return Turn::End;
    }
    if spec.suspend {
        return Turn::End;
    }
    let text = &spec.schedule;
    let schedule = match (&view.schedule, view.rescheduled) {
        (Ok(schedule), _) => schedule,
        (Err(_), Some(_)) => {
            let message = format!("unparseable schedule for cronjob: {text}");
            told.push((true, "UnParseableCronJobSchedule", message));
            return Turn::End;
        }
        (Err(error), None) => {
            told.push((true, "UnparseableSchedule", format!("unparseable schedule: \"{text}\" : {error}")));
            return Turn::End;
        }
    };
    if text.contains("TZ") {
        let message = format!("CRON_TZ or TZ used in schedule \"{text}\" {UNSUPPORTED}");
        told.push((true, "UnsupportedSchedule", message));
    }
    let at = match due(view, schedule, now) {
        Missed::Never => {
            let why = "time difference between two schedules is less than 1 second";
            told.push((true, "InvalidSchedule", format!("invalid schedule: {text} : {why}")));
            return Turn::End;
        }
        // A new schedule waits for its next activation.
        _ if view.rescheduled.is_some() => return Turn::ComeBack,
        Missed::Nothing | Missed::Forgotten => return Turn::ComeBack,
        Missed::Last { at, many } => {
            if many {
                let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check \
                               clock skew";
                told.push((true, "TooManyMissedTimes", message.to_owned()));
            }
            at
        }
    };
    let is_done = view.cron_job.status.last_schedule_time == Some(Time::from(at));
    if is_done || status.lists(&jobs::name(&view.cron_job, at)) {
        return Turn::ComeBack;
    }
    if spec.concurrency_policy == "Forbid" && !status.is_idle() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        told.push((false, "JobAlreadyActive", message.to_owned()));
        return Turn::ComeBack;
    }
    Turn::Start(at)
}

/// Returns what was missed and may still be started.
fn due(view: &View, schedule: &Schedule, now: Timestamp) -> Missed {
    let since = since(view);
    let deadline = view.cron_job.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let Some((deadline, bound)) =
        deadline.and_then(|deadline| Some((deadline, now.checked_sub(deadline).ok()?)))
    else {
        return missed(schedule, since, now);
    };
    match schedule {
        // The first one after the bound would always lie in the future: kube-controller-manager never starts such a Job.
        // Differs: every-with-short-deadline.
        Schedule::Every(seconds) if deadline.as_secs() < *seconds => match missed(schedule, since, now) {
            Missed::Last { at, .. } if at <= bound => Missed::Nothing,
            // Activations before the deadline do not count as missed.
            Missed::Last { at, .. } => Missed::Last { at, many: false },
            missed => missed,
        },
        _ => missed(schedule, since.max(bound), now),
    }
}

/// When it was started last, or made.
fn since(view: &View) -> Timestamp {
    let since = view.cron_job.status.last_schedule_time.or(view.cron_job.metadata.creation_timestamp);
    since.map(Timestamp::from).unwrap_or_default()
}

/// When it is to be looked at again, `started` being the activation that was started just now.
fn requeue(view: &View, started: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let schedule = view.schedule.as_ref().ok()?;
    next_look(schedule, started.unwrap_or_else(|| since(view)), now)
}

/// Makes the Job of an activation, once those are deleted that it replaces.
fn start(view: &View, status: &Status<'_>, at: Timestamp, told: &[Told]) -> Result<Plan, WireError> {
    let mut steps = emits(view, told);
    if view.cron_job.spec.concurrency_policy == "Replace" {
        let replaced: Vec<_> =
            status.active().map(|(held, uid)| jobs::delete(view, &held.name, &uid)).collect();
        if !replaced.is_empty() {
            steps.push(Step::Each(replaced));
        }
    }
    steps.push(Step::Write(jobs::create(view, at)?));
    Ok(Plan { steps, look_again: true, ..Plan::default() })
}

/// The last plan of a reconcile: the status, what it records, and the history but for the Job of this name.
fn finish(view: &View, status: &Status<'_>, told: &[Told], kept: Option<&Str>) -> Result<Plan, WireError> {
    let mut steps: Vec<Step> = status.write(view)?.into_iter().map(Step::Write).collect();
    steps.extend(emits(view, status.told()));
    steps.extend(emits(view, told));
    let surplus = history::surplus(view).into_iter().filter(|job| kept != Some(&job.metadata.name));
    let deletes: Vec<_> = surplus.map(|job: &Job| history::delete(view, job)).collect();
    if !deletes.is_empty() {
        steps.push(Step::Each(deletes));
    }
    Ok(Plan { steps, ..Plan::default() })
}

fn emits(view: &View, told: &[Told]) -> Vec<Step> {
    let emit = |(warning, reason, message): &Told| Step::Emit(event(view, *warning, reason, message.clone()));
    told.iter().map(emit).collect()
}

fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    EventSpec { regarding: Regarding::of(&CRON_JOBS, &view.cron_job.metadata), warning, reason, message }
}
