//! Jobs of activations: their names, their bytes, and how they go.

use bytes::Bytes;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::super::schedule::Schedule;
use super::super::view::View;
use coxswain_machinery::api::batch::{CronJob, Job, JobTemplateSpec};
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{EventSpec, Propagation, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, put_text};
use coxswain_machinery::wire::{Message, Reader, Str, Time, Uid, Value, WallTime, WireError, field, path};

/// Annotation of a Job: the activation that it was made for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Annotation that `kubectl create job --from` sets.
const MANUAL: &str = "cronjob.kubernetes.io/instantiate";

/// How far the clock of the manager that created a Job may have been ahead of the API server's.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(30);

/// What a Job inherits of its template's metadata.
const INHERITED: [u32; 2] = [field!(ObjectMeta, labels), field!(ObjectMeta, annotations)];

/// The name of the Job of an activation. That no two can bear it is what keeps an activation from being started twice.
pub(super) fn name(cron_job: &CronJob, at: Timestamp) -> Str {
    Str::from(format!("{}-{}", cron_job.metadata.name, at.as_second().div_euclid(60)))
}

/// Returns the activation of a Job that has the name of one of this CronJob's own creates. Only the annotation has its seconds;
/// it counts as far as it agrees with the name.
pub(super) fn of_own_create(cron_job: &CronJob, job: &Job) -> Option<Timestamp> {
    let minutes = || {
        let digits = job.metadata.name.strip_prefix(&*cron_job.metadata.name)?.strip_prefix('-')?;
        Some(Timestamp::from(WallTime::new(digits.parse::<i64>().ok()?.checked_mul(60)?, 0)))
    };
    annotated(cron_job, job).or_else(minutes)
}

/// Returns the activation that a Job was created for, if it has all marks of a Job that a CronJob controller created: the
/// annotation, the name that belongs to it, and a reference that blocks the deletion of its owner. `kubectl create job --from`
/// sets neither the annotation nor such a reference, so the digits in the name of a manual Job do not count.
///
/// A user who may create Jobs can forge these marks. So the time must be an activation of the schedule that the status does not
/// cover, and the API server's time of the Job's creation bounds how far it may lie ahead.
pub(super) fn started(view: &View, job: &Job) -> Option<Timestamp> {
    let cron_job = &view.cron_job;
    let owner = job.metadata.controller().filter(|owner| owner.block_owner_deletion == Some(true));
    let is_manual = job.metadata.annotations.contains_key(MANUAL);
    owner.filter(|_| !is_manual)?;
    let created = Timestamp::from(job.metadata.creation_timestamp?);
    let latest = created.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    let since = super::since(view);
    let is_activation = |at: Timestamp| match view.schedule.as_ref() {
        // Its activations count from the last one, or from the deadline: any time may be one.
        Ok(Schedule::Every(_)) => true,
        Ok(schedule) => {
            let before = at.checked_sub(SignedDuration::from_secs(1)).ok();
            before.and_then(|before| schedule.next(before)) == Some(at)
        }
        Err(_) => false,
    };
    annotated(cron_job, job).filter(|at| since < *at && *at <= latest && is_activation(*at))
}

/// Returns the time in the annotation, if the Job has the name of that activation.
fn annotated(cron_job: &CronJob, job: &Job) -> Option<Timestamp> {
    let at: WallTime = job.metadata.annotations.get(SCHEDULED)?.parse().ok()?;
    let at = Timestamp::from(at);
    (job.metadata.name == name(cron_job, at)).then_some(at)
}

/// Makes the Job of an activation.
pub(super) fn create(view: &View, at: Timestamp) -> Result<Write, WireError> {
    let name = name(&view.cron_job, at);
    let key = Key::new(view.cron_job.metadata.namespace.clone(), name);
    let body = body(view, &key, at)?;
    Ok(Write {
        on_success: Some(event(view, false, "SuccessfulCreate", format!("Created job {}", key.name))),
        ..Write::new(&JOBS, key, Verb::Create(body))
    })
}

/// Deletes a Job with its pods. A conflict is a failure: the Job may still run if an admission webhook rejected the request with 409.
pub(super) fn delete(view: &View, name: &Str, uid: &Uid) -> Write {
    let key = Key::new(view.cron_job.metadata.namespace.clone(), name.clone());
    let delete = Verb::Delete {
        uid: uid.clone(),
        resource_version: None,
        // The default of Jobs is to leave pods behind.
        propagation: Some(Propagation::Background),
        grace_period: None,
    };
    Write {
        tolerate: Tolerate { gone: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulDelete", format!("Deleted job {name}"))),
        on_failure: Some(event(view, true, "FailedDelete", "Deleted job: {error}".to_owned())),
        ..Write::new(&JOBS, key, delete)
    }
}

/// Labels and annotations of the template, its spec as it is, and whose it is.
fn body(view: &View, key: &Key, at: Timestamp) -> Result<Bytes, WireError> {
    let cron_job = &view.cron_job;
    let template = &cron_job.spec.job_template.0;
    let mut metadata = Vec::with_capacity(512);
    put_text(&mut metadata, field!(ObjectMeta, name), &key.name);
    put_text(&mut metadata, field!(ObjectMeta, namespace), &key.namespace);
    let inherited = get(template, path!(JobTemplateSpec, metadata))?.map(Value::bytes).transpose()?;
    let mut fields = Reader::new(inherited.unwrap_or_default());
    while let Some((number, _, raw)) = fields.next_raw()? {
        if INHERITED.contains(&number) {
            metadata.extend_from_slice(raw);
        }
    }
    let scheduled = written(at, view.zone.as_ref());
    let owner = controller_reference(&cron_job.metadata, &CRON_JOBS);
    let metadata = edit(
        &metadata,
        &[
            Edit::MapSet(path!(ObjectMeta, annotations), SCHEDULED.to_owned(), scheduled),
            Edit::SetBytes(path!(ObjectMeta, creationTimestamp), encoded(at.into())),
            Edit::Push(path!(ObjectMeta, ownerReferences), owner.to_bytes()),
        ],
    )?;
    let spec = get(template, path!(JobTemplateSpec, spec))?.map(Value::bytes).transpose()?;
    let mut job = Vec::with_capacity(metadata.len() + template.len() + 16);
    put_bytes(&mut job, field!(Job, metadata), &metadata);
    put_bytes(&mut job, field!(Job, spec), spec.unwrap_or_default());
    Ok(job.into())
}

/// The content of a field that holds a time.
pub(super) fn encoded(time: Time) -> Vec<u8> {
    let mut content = Vec::with_capacity(12);
    time.encode_fields(&mut content);
    content
}

/// RFC 3339 in whole seconds, in the zone that the CronJob names or else in UTC.
fn written(at: Timestamp, zone: Option<&TimeZone>) -> String {
    let local = at.to_zoned(zone.cloned().unwrap_or(TimeZone::UTC));
    let format = if local.offset() == Offset::UTC { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    local.strftime(format).to_string()
}

fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    EventSpec { regarding: Regarding::of(&CRON_JOBS, &view.cron_job.metadata), warning, reason, message }
}
