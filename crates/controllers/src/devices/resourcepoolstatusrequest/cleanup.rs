//! Which requests are old enough to go. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::CLEANUP;
use coxswain_machinery::api::kinds::RESOURCE_POOL_STATUS_REQUESTS;
use coxswain_machinery::api::resource::ResourcePoolStatusRequest;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::Time;

/// How long an answer stays.
const ANSWERED: i64 = 3600;
/// How long a request waits for an answer.
const UNANSWERED: i64 = 24 * 3600;

pub(super) fn plan(requests: &[Arc<ResourcePoolStatusRequest>], now: Timestamp) -> Plan {
    let old = requests.iter().filter(|request| !request.metadata.is_deleting() && is_old(request, now));
    let deletes: Vec<Write> = old
        .map(|request| {
            let meta = &request.metadata;
            let delete =
                Write::new(&RESOURCE_POOL_STATUS_REQUESTS, Key::of(meta), Verb::delete(meta.uid.clone()));
            Write { tolerate: Tolerate { absent: true, ..Tolerate::default() }, ..delete }
        })
        .collect();
    let steps = if deletes.is_empty() { Vec::new() } else { vec![Step::Each(deletes)] };
    // What could not be deleted comes again with the next clean-up.
    Plan { steps, requeue_after: Some(CLEANUP), end: true, ..Plan::default() }
}

/// Whether it was answered, or has waited, for long enough.
pub(super) fn is_old(request: &ResourcePoolStatusRequest, now: Timestamp) -> bool {
    let created = request.metadata.creation_timestamp;
    let (since, stays) = match &request.status {
        None => (created, UNANSWERED),
        Some(status) => {
            let is_end = |kind: &str| kind == "Complete" || kind == "Failed";
            let ended = status.conditions.iter().find(|held| is_end(&held.r#type));
            (ended.and_then(|ended| ended.last_transition_time).or(created), ANSWERED)
        }
    };
    since.is_some_and(|since: Time| {
        let age = now.as_duration().saturating_sub(SignedDuration::from_secs(since.seconds()));
        age > SignedDuration::from_secs(stays)
    })
}
