//! Whether an autoscaler's status says what it should, and the bytes of one that does.
//!
//! Only what this controller says is written; what else the status holds stays. (The original builds the status anew and loses
//! it.) Conditions keep their places, and their times change with their statuses.
//! Differs: status-of-others.

use bytes::Bytes;
use jiff::Timestamp;

use super::super::draft::{Condition, Telling};
use super::super::spec::condition;
use super::super::view::View;
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition};
use coxswain_machinery::api::kinds::HORIZONTAL_POD_AUTOSCALERS;
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Message as _, Time, Value, WireError, field, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<HorizontalPodAutoscaler>();

/// The update that makes a status say this; `None` when it does already.
pub(in super::super) fn write(
    view: &View,
    telling: &Telling,
    now: Timestamp,
) -> Result<Option<Write>, WireError> {
    let autoscaler = &view.autoscaler;
    if says(autoscaler, telling) {
        return Ok(None);
    }
    let mut edits = Vec::new();
    let number = |path, value: i32| Edit::SetVarint(path, i64::from(value) as u64);
    edits.extend(
        telling.current.map(|count| number(path!(HorizontalPodAutoscaler, status.currentReplicas), count)),
    );
    edits.extend(
        telling.desired.map(|count| number(path!(HorizontalPodAutoscaler, status.desiredReplicas), count)),
    );
    if let Some(at) = telling.scaled_at {
        let mut time = Vec::new();
        at.encode_fields(&mut time);
        edits.push(Edit::SetBytes(path!(HorizontalPodAutoscaler, status.lastScaleTime), time));
    }
    if let Some(metrics) = &telling.metrics {
        let list = path!(HorizontalPodAutoscaler, status.currentMetrics);
        edits.push(Edit::Clear(list));
        edits.extend(metrics.iter().map(|metric| Edit::Push(list, metric.to_bytes())));
    }
    let mut object = edit(&autoscaler.raw, &edits)?;
    for kind in &telling.without {
        object = without_condition(&object, kind)?;
    }
    let said: Vec<Said> = telling.conditions.iter().map(|held| said(autoscaler, held, now)).collect();
    let object = conditions::set(&object, &CONDITIONS, &said)?;
    let failed = EventSpec {
        regarding: Regarding::of(&HORIZONTAL_POD_AUTOSCALERS, &autoscaler.metadata),
        warning: true,
        reason: "FailedUpdateStatus",
        message: "{error}".to_owned(),
    };
    let key = Key::of(&autoscaler.metadata);
    Ok(Some(Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        on_failure: Some(failed),
        ..Write::new(&HORIZONTAL_POD_AUTOSCALERS, key, Verb::Update(Bytes::from(object))).on("status")
    }))
}

/// Whether a status says this already.
fn says(autoscaler: &HorizontalPodAutoscaler, telling: &Telling) -> bool {
    let status = &autoscaler.status;
    let is = |wanted: Option<i32>, held: i32| wanted.is_none_or(|wanted| wanted == held);
    is(telling.current, status.current_replicas)
        && is(telling.desired, status.desired_replicas)
        && telling.scaled_at.is_none_or(|at| status.last_scale_time == Some(at))
        && telling.metrics.as_ref().is_none_or(|metrics| *metrics == status.current_metrics)
        && telling.without.iter().all(|kind| condition(autoscaler, kind).is_none())
        && telling.conditions.iter().all(|wanted| {
            condition(autoscaler, wanted.kind).is_some_and(|held| {
                !wanted.moves
                    && held.status == wanted.status
                    && held.reason == wanted.reason
                    && held.message == wanted.message.as_str()
            })
        })
}

fn said(autoscaler: &HorizontalPodAutoscaler, wanted: &Condition, now: Timestamp) -> Said {
    let held =
        condition(autoscaler, wanted.kind).filter(|held| held.status == wanted.status && !wanted.moves);
    Said {
        kind: wanted.kind,
        status: wanted.status,
        reason: wanted.reason,
        message: wanted.message.clone(),
        since: held.and_then(|held| held.last_transition_time).unwrap_or_else(|| Time::from(now)),
        checked: None,
        generation: None,
    }
}

fn without_condition(object: &[u8], kind: &str) -> Result<Vec<u8>, WireError> {
    use coxswain_machinery::api::autoscaling::HorizontalPodAutoscalerStatus as Status;
    const STATUS: coxswain_machinery::wire::Path = path!(HorizontalPodAutoscaler, status);
    const LIST: u32 = field!(Status, conditions);
    const TYPE: u32 = field!(HorizontalPodAutoscalerCondition, type);
    let Some(status) = get(object, STATUS)?.map(Value::bytes).transpose()? else {
        return Ok(object.to_vec());
    };
    let is_of_kind = |held: &[u8]| {
        let held = get(held, &[TYPE]).ok().flatten().and_then(|value| value.bytes().ok());
        held == Some(kind.as_bytes())
    };
    let status = retain_items(status, LIST, |held| !is_of_kind(held))?;
    edit(object, &[Edit::SetBytes(STATUS, status)])
}
