//! A CronJob, its Jobs, and what this reconcile has done already.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::Controller;
use super::schedule::{Schedule, ScheduleError};
use crate::live_reads::{CRON_JOB_ITSELF, CRON_JOB_MISSING_JOB};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, Uid};

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) cron_job: Arc<CronJob>,
    /// Its Jobs, by name, without those that this reconcile has deleted or made.
    pub(super) jobs: Vec<Arc<Job>>,
    /// Jobs of the status that are not there any more.
    pub(super) missing: HashSet<Uid>,
    /// Jobs of the status, read live, that have ended and that the CronJob no longer controls.
    pub(super) disowned: Vec<Arc<Job>>,
    /// Jobs that this reconcile has deleted.
    pub(super) deleted: HashSet<Uid>,
    /// The Job of an activation that this reconcile has made, or found.
    pub(super) made: Option<Made>,
    pub(super) failed: Vec<Failed>,
    /// The time zone that it names; `None` if it names none or one that nobody knows.
    pub(super) zone: Option<TimeZone>,
    pub(super) schedule: Result<Schedule, ScheduleError>,
    /// The generation with a new schedule that no plan has heeded yet.
    pub(super) rescheduled: Option<i64>,
}

/// The Job of an activation.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) job: Arc<Job>,
    /// Whether it was there before.
    pub(super) existed: bool,
}

/// What this reconcile has failed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// To write the status.
    Status,
    /// To make a Job, and why.
    Create(String),
    /// To make a Job, as another one bears its name; whether it is known that it is no Job of ours, or one that the status has.
    Taken { settled: bool },
    /// To make a Job, as the namespace is being deleted.
    Terminating,
    /// To delete a Job of this name.
    Delete(Str),
}

impl View {
    /// The time zone that it names, if nobody knows that.
    pub(super) fn unknown_zone(&self) -> Option<&str> {
        self.cron_job.spec.time_zone.as_deref().filter(|_| self.zone.is_none())
    }
}

/// Whether two states of a Job are the same to its CronJob.
pub(super) fn alike(before: &Job, now: &Job) -> bool {
    let seen = |job: &Job| {
        let end = job.end().map(|end| end.r#type.clone());
        (job.metadata.is_deleting(), job.status.start_time, job.status.completion_time, end)
    };
    before.metadata.uid == now.metadata.uid
        && before.metadata.controller() == now.metadata.controller()
        && seen(before) == seen(now)
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<View>, ObserveError> {
    let Some(mut cron_job) = room.cron_jobs.get(key) else { return Ok(Observation::Nothing) };
    let uid = cron_job.metadata.uid.clone();
    let deleted: HashSet<Uid> = deleted(read);
    let made = made(read, failures, &cron_job);
    let mut jobs = room.jobs.with_uid_of(ControllerKey::of(&cron_job.metadata, &CRON_JOBS));
    jobs.retain(|job| {
        // The kind of the reference does not matter, as in kube-controller-manager.
        job.metadata.controller().is_some_and(|named| named.name == key.name)
            && !deleted.contains(&job.metadata.uid)
            && made.as_ref().is_none_or(|made| made.job.metadata.uid != job.metadata.uid)
    });
    jobs.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));

    let mut needs = Vec::new();
    let active: HashSet<Uid> = listed(&cron_job).map(|(_, uid)| uid).collect();
    if jobs.iter().any(|job| job.end().is_none() && !active.contains(&job.metadata.uid)) {
        // Somebody may have written a status that the cache does not have yet.
        match read.object(&CRON_JOBS, key) {
            None => needs.push(CRON_JOB_ITSELF.of(Read::Object(&CRON_JOBS, key.clone()))),
            Some(Err(error)) => return Err(ObserveError::Retry(format!("get CronJob {key}: {error}"))),
            Some(Ok(found)) => cron_job = live(key, &uid, found.cloned())?,
        }
    }
    let present: HashSet<Uid> = jobs.iter().map(|job| job.metadata.uid.clone()).collect();
    let is_known = |uid: &Uid| deleted.contains(uid) || present.contains(uid);
    let (mut missing, mut disowned) = (HashSet::default(), Vec::new());
    for (reference, uid) in listed(&cron_job).filter(|(_, uid)| !is_known(uid)) {
        let job = Key::new(key.namespace.clone(), reference.name.clone());
        match read.object(&JOBS, &job) {
            None => needs.push(CRON_JOB_MISSING_JOB.of(Read::Object(&JOBS, job))),
            Some(Err(error)) => return Err(ObserveError::Retry(format!("get Job {job}: {error}"))),
            Some(Ok(Some(found))) if found.meta().uid == uid => {
                let is_lost = |job: &Arc<Job>| {
                    job.end().is_some() && !job.metadata.is_controlled_by(&cron_job.metadata)
                };
                disowned.extend(downcast::<Job>(found.clone()).filter(is_lost));
            }
            Some(Ok(_)) => {
                missing.insert(uid);
            }
        }
    }
    if !needs.is_empty() {
        return Ok(Observation::Needs(needs));
    }
    let named = cron_job.spec.time_zone.as_ref().map(|name| room.zones.named(name));
    let zone = named.flatten();
    let text = &cron_job.spec.schedule;
    let schedule = Schedule::parse(text, zone.clone().unwrap_or_else(|| room.zones.local()), &room.zones);
    Ok(Observation::View(View {
        jobs,
        missing,
        disowned,
        deleted,
        made,
        failed: failures.iter().map(|failure| failed(failure, &cron_job)).collect(),
        zone,
        schedule,
        rescheduled: room.rescheduled.generation(key),
        cron_job,
    }))
}

/// The Jobs that a status lists, with their UIDs.
pub(super) fn listed(cron_job: &CronJob) -> impl Iterator<Item = (&ObjectReference, Uid)> {
    cron_job.status.active.iter().map(|reference| (reference, Uid::from(&reference.uid)))
}

fn live(key: &Key, uid: &Uid, found: Option<AnyObject>) -> Result<Arc<CronJob>, ObserveError> {
    let found = found.and_then(downcast::<CronJob>).filter(|found| found.metadata.uid == *uid);
    found.ok_or_else(|| ObserveError::Retry(format!("CronJob {key} no longer exists")))
}

fn deleted(read: &Reads) -> HashSet<Uid> {
    let of_jobs = read.written().iter().filter(|effect| effect.kind == &JOBS);
    let deleted = of_jobs.filter_map(|effect| match &effect.change {
        WriteEffect::Deleted(uid) => Some(uid.clone()),
        _ => None,
    });
    deleted.collect()
}

/// The Job that was made, or the one that bears its name and is ours.
fn made(read: &Reads, failures: &[Failure], cron_job: &CronJob) -> Option<Made> {
    let answers = read.written().iter().filter(|effect| effect.kind == &JOBS);
    let answer = answers.filter_map(|effect| effect.answer.clone()).find_map(downcast::<Job>);
    if let Some(job) = answer {
        return Some(Made { job, existed: false });
    }
    let job = failures.iter().find_map(existing)?;
    is_ours(&job, cron_job).then_some(Made { job, existed: true })
}

/// Whether the name of a Job that was to be made is taken.
fn is_taken(failure: &Failure) -> bool {
    failure.verb == "create" && failure.is_already_exists()
}

/// What bears that name, if it could be read.
fn existing(failure: &Failure) -> Option<Arc<Job>> {
    failure.existing.clone().and_then(downcast::<Job>).filter(|_| is_taken(failure))
}

/// Whether a Job is the CronJob's and not in its status.
fn is_ours(job: &Job, cron_job: &CronJob) -> bool {
    job.metadata.is_controlled_by(&cron_job.metadata)
        && listed(cron_job).all(|(_, listed)| listed != job.metadata.uid)
}

fn failed(failure: &Failure, cron_job: &CronJob) -> Failed {
    // So it is said of whatever is to be made in a namespace that is being deleted.
    let is_terminating = failure.code == 403 && failure.message.ends_with("because it is being terminated");
    match failure.verb {
        "create" if is_taken(failure) => {
            let stranger = existing(failure).filter(|existing| !is_ours(existing, cron_job));
            Failed::Taken { settled: stranger.is_some() }
        }
        "create" if is_terminating => Failed::Terminating,
        "create" => Failed::Create(failure.message.clone()),
        "delete" => Failed::Delete(failure.key.name.clone()),
        _ => Failed::Status,
    }
}
