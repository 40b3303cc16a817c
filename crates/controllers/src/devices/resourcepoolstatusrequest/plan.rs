//! The answer to a request. Pure.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::view::{Pool, View};
use coxswain_machinery::api::kinds::RESOURCE_POOL_STATUS_REQUESTS;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::resource::{
    PoolStatus, ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus,
};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, Str, WireError, path};

/// Pools that are told of if the request does not say how many may be.
const LIMIT: usize = 100;

/// What a plan tells beside its steps: the driver of the request that it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) driver: Option<Str>,
}

/// Time after the creation of a request for which slices of incomplete pools are waited for.
const SLICES_WITHIN: Duration = Duration::from_mins(1);

/// The longest `validationError` that the API accepts, in bytes.
const LONGEST_ERROR: usize = 256;

/// Answers, unless a pool that would be told of is incomplete: then its slices are waited for until the request is one minute old.
pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    if let Some(left) = waits_for(view, now) {
        return Plan { requeue_after: Some(left), ..Plan::default() }.with_note(Note::default());
    }
    match answered(&view.request, &answer(view, now)) {
        Ok(object) => {
            let key = Key::of(&view.request.metadata);
            let update = Write::new(&RESOURCE_POOL_STATUS_REQUESTS, key, Verb::Update(object)).on("status");
            let update = Write { tolerate: Tolerate { absent: true, ..Tolerate::default() }, ..update };
            let note = Note { driver: Some(view.request.spec.driver.clone()) };
            Plan { steps: vec![Step::Write(update)], ..Plan::default() }.with_note(note)
        }
        Err(error) => {
            let retry = Some(format!("request {}: {error}", view.request.metadata.name));
            Plan { retry, ..Plan::default() }.with_note(Note::default())
        }
    }
}

/// How long the request still waits for slices, if it does.
pub(super) fn waits_for(view: &View, now: Timestamp) -> Option<Duration> {
    incomplete(view).next()?;
    let created = view.request.metadata.creation_timestamp?;
    let age = now.as_duration().saturating_sub(SignedDuration::from_secs(created.seconds()));
    let left = SignedDuration::try_from(SLICES_WITHIN).unwrap_or(SignedDuration::MAX).saturating_sub(age);
    left.is_positive().then(|| left.unsigned_abs().min(SLICES_WITHIN))
}

/// The pools that the answer tells of, by name.
pub(super) fn told(view: &View) -> impl Iterator<Item = (&Str, &Pool)> {
    let limit = view.request.spec.limit.map_or(LIMIT, |limit| usize::try_from(limit).unwrap_or(0));
    view.pools.iter().take(limit)
}

/// Those of them of which slices are missing.
pub(super) fn incomplete(view: &View) -> impl Iterator<Item = (&Str, &Pool)> {
    told(view).filter(|(_, pool)| pool.is_incomplete())
}

fn answer(view: &View, now: Timestamp) -> ResourcePoolStatusRequestStatus {
    let pools: Vec<PoolStatus> = told(view).map(|(name, pool)| status(&view.request, name, pool)).collect();
    let complete = Condition {
        r#type: "Complete".into(),
        status: "True".into(),
        reason: "CalculationComplete".into(),
        message: format!("Calculated status for {} pools", pools.len()).into(),
        last_transition_time: Some(now.into()),
        ..Condition::default()
    };
    ResourcePoolStatusRequestStatus {
        pools,
        conditions: vec![complete],
        pool_count: Some(number(view.pools.len())),
    }
}

fn status(request: &ResourcePoolStatusRequest, name: &Str, pool: &Pool) -> PoolStatus {
    if pool.is_incomplete() {
        let Pool { observed, expected, generation, .. } = pool;
        let mut error = format!(
            "pool {}/{name} is incomplete: observed {observed}/{expected} slices at generation {generation}",
            request.spec.driver
        );
        error.truncate(error.floor_char_boundary(LONGEST_ERROR));
        return PoolStatus {
            driver: request.spec.driver.clone(),
            pool_name: name.clone(),
            generation: *generation,
            validation_error: Some(error.into()),
            ..PoolStatus::default()
        };
    }
    PoolStatus {
        validation_error: None,
        driver: request.spec.driver.clone(),
        pool_name: name.clone(),
        node_name: (!pool.node.is_empty()).then(|| pool.node.clone()),
        total_devices: Some(number(pool.devices)),
        allocated_devices: Some(number(pool.allocated)),
        available_devices: Some(number(pool.devices.saturating_sub(pool.allocated))),
        unavailable_devices: Some(0),
        resource_slice_count: Some(number(pool.observed)),
        generation: pool.generation,
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn answered(
    request: &ResourcePoolStatusRequest,
    answer: &ResourcePoolStatusRequestStatus,
) -> Result<Bytes, WireError> {
    let set = Edit::SetBytes(path!(ResourcePoolStatusRequest, status), answer.to_bytes());
    edit(&request.raw, &[set]).map(Bytes::from)
}
