//! What a status says, changed in memory and spliced into the Job's own bytes.

use bytes::Bytes;
use jiff::Timestamp;

use coxswain_machinery::api::batch::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, retain_items};
use coxswain_machinery::wire::{Message as _, Reader, Str, Time, Value, WireError, field, path};

/// Says this of a condition; says whether that was new.
pub(super) fn set(
    status: &mut JobStatus,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let said = JobCondition {
        r#type: kind.into(),
        status: if is_true { "True" } else { "False" }.into(),
        last_probe_time: Some(Time::from(now)),
        last_transition_time: Some(Time::from(now)),
        reason: reason.into(),
        message: message.into(),
    };
    match status.conditions.iter_mut().find(|held| held.r#type == kind) {
        Some(held) if is_same(held, &said) => false,
        Some(held) => {
            *held = said;
            true
        }
        None => {
            status.conditions.push(said);
            true
        }
    }
}

fn is_same(held: &JobCondition, said: &JobCondition) -> bool {
    (&held.status, &held.reason, &held.message) == (&said.status, &said.reason, &said.message)
}

/// The ended pods that are not in the counters yet.
pub(super) fn lists(status: &mut JobStatus) -> &mut UncountedTerminatedPods {
    status.uncounted_terminated_pods.get_or_insert_default()
}

/// Whether there is a reason to write. A start time alone is none, nor are empty lists.
pub(super) fn differs(held: &JobStatus, wanted: &JobStatus) -> bool {
    let mut wanted = wanted.clone();
    if held.start_time.is_none() && wanted.conditions == held.conditions {
        wanted.start_time = None;
    }
    if held.uncounted_terminated_pods.is_none() && *lists(&mut wanted) == UncountedTerminatedPods::default() {
        wanted.uncounted_terminated_pods = None;
    }
    wanted != *held
}

/// The update that makes the status say so.
pub(super) fn write(job: &Job, wanted: &JobStatus) -> Result<Write, WireError> {
    let status = spliced(job, wanted)?;
    let body = edit(&job.raw, &[Edit::SetBytes(path!(Job, status), status)])?;
    Ok(update(job, Verb::Update(Bytes::from(body))))
}

/// The update that makes the status say so once the same plan has written it.
pub(super) fn write_again(job: &Job, wanted: &JobStatus) -> Result<Write, WireError> {
    let status = spliced(job, wanted)?;
    Ok(update(job, Verb::UpdateLast(vec![Edit::SetBytes(path!(Job, status), status)])))
}

fn update(job: &Job, verb: Verb) -> Write {
    Write::new(&JOBS, Key::of(&job.metadata), verb).on("status")
}

/// The status that the Job has, with this in it.
fn spliced(job: &Job, wanted: &JobStatus) -> Result<Vec<u8>, WireError> {
    let held = get(&job.raw, path!(Job, status))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let number = |path, value: i32| Edit::SetVarint(path, i64::from(value) as u64);
    let time = |path, at: Option<Time>| match at {
        Some(at) => {
            let mut encoded = Vec::with_capacity(12);
            at.encode_fields(&mut encoded);
            Edit::SetBytes(path, encoded)
        }
        None => Edit::Clear(path),
    };
    let text = |path, text: Option<&Str>| match text {
        Some(text) => Edit::set_text(path, text),
        None => Edit::Clear(path),
    };
    let optional = |path, value: Option<i32>| value.map_or(Edit::Clear(path), |value| number(path, value));
    let completed = Some(&wanted.completed_indexes).filter(|list| !list.is_empty());
    let edits = [
        time(path!(JobStatus, startTime), wanted.start_time),
        time(path!(JobStatus, completionTime), wanted.completion_time),
        number(path!(JobStatus, active), wanted.active),
        number(path!(JobStatus, succeeded), wanted.succeeded),
        number(path!(JobStatus, failed), wanted.failed),
        text(path!(JobStatus, completedIndexes), completed),
        Edit::SetBytes(path!(JobStatus, uncountedTerminatedPods), lists_over(held, wanted)?),
        optional(path!(JobStatus, ready), wanted.ready),
        text(path!(JobStatus, failedIndexes), wanted.failed_indexes.as_ref()),
        optional(path!(JobStatus, terminating), wanted.terminating),
    ];
    edit(&conditions_over(held, &wanted.conditions)?, &edits)
}

/// The encoded lists of a status, with these UIDs in them.
fn lists_over(held: &[u8], wanted: &JobStatus) -> Result<Vec<u8>, WireError> {
    let lists = get(held, path!(JobStatus, uncountedTerminatedPods))?.map(Value::bytes).transpose()?;
    let none = |_: &[u8]| false;
    let lists = retain_items(lists.unwrap_or_default(), field!(UncountedTerminatedPods, succeeded), none)?;
    let mut lists = retain_items(&lists, field!(UncountedTerminatedPods, failed), none)?;
    if let Some(wanted) = &wanted.uncounted_terminated_pods {
        lists.extend(wanted.to_bytes());
    }
    Ok(lists)
}

/// The fields of a status with these conditions: one that says the same keeps its bytes.
fn conditions_over(held: &[u8], wanted: &[JobCondition]) -> Result<Vec<u8>, WireError> {
    const CONDITIONS: u32 = field!(JobStatus, conditions);
    let mut new: Vec<&JobCondition> = wanted.iter().collect();
    let mut out = Vec::with_capacity(held.len() + 256);
    let mut fields = Reader::new(held);
    while let Some((number, value, raw)) = fields.next_raw()? {
        let condition = match number {
            CONDITIONS => Some(JobCondition::decode(&Bytes::copy_from_slice(value.bytes()?))?),
            _ => None,
        };
        let at = condition.and_then(|held| {
            // Linear: held and new ones have one order, so the first is the one.
            new.iter().position(|said| said.r#type == held.r#type).map(|at| (at, *new[at] == held))
        });
        match at {
            Some((at, true)) => {
                new.remove(at);
                out.extend_from_slice(raw);
            }
            Some((at, false)) => put_bytes(&mut out, CONDITIONS, &new.remove(at).to_bytes()),
            None => out.extend_from_slice(raw),
        }
    }
    for said in new {
        put_bytes(&mut out, CONDITIONS, &said.to_bytes());
    }
    Ok(out)
}
