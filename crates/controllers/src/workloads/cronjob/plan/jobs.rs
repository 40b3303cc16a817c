//! Jobs of activations: their names, their bytes, and how they go.

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use super::super::view::View;
use coxswain_machinery::api::batch::{CronJob, Job, JobTemplateSpec};
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{EventSpec, Propagation, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, put_text};
use coxswain_machinery::wire::{Message, Reader, Str, Time, Uid, Value, WireError, field, path};

/// Annotation of a Job: the activation that it was made for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// What a Job inherits of its template's metadata.
const INHERITED: [u32; 2] = [field!(ObjectMeta, labels), field!(ObjectMeta, annotations)];

/// The name of the Job of an activation. That no two can bear it is what keeps an activation from being started twice.
pub(super) fn name(cron_job: &CronJob, at: Timestamp) -> Str {
    Str::from(format!("{}-{}", cron_job.metadata.name, at.as_second().div_euclid(60)))
}

/// The activation of a Job: what its annotation says, or else the minute in its name.
pub(super) fn activation(job: &Job) -> Option<Timestamp> {
    let told = job.metadata.annotations.get(SCHEDULED).and_then(|told| told.parse().ok());
    told.or_else(|| {
        let minutes: i64 = job.metadata.name.rsplit_once('-')?.1.parse().ok()?;
        Timestamp::from_second(minutes.checked_mul(60)?).ok()
    })
}

/// The activation that a Job was made for, if it has the name that the CronJob gives it. Of one that was made by hand there is none.
pub(super) fn started(cron_job: &CronJob, job: &Job) -> Option<Timestamp> {
    activation(job).filter(|at| job.metadata.name == name(cron_job, *at))
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

/// Deletes a Job with its pods. One that is gone, or whose name another one bears by now, needs none.
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
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
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
