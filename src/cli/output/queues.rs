//! Queues for people.

use jiff::Timestamp;

use super::human::{NONE, age, duration_or_none};
use super::sheet::Sheet;
use super::table::table;
use super::{Format, clean};
use crate::admin::proto::{GetQueueResponse, ObjectKey, Queue, QueuedKey};

const HEADINGS: [&str; 11] = [
    "NAME",
    "CONTROLLER",
    "RESOURCE",
    "DEPTH",
    "IN-FLIGHT",
    "DELAYED",
    "WAITING",
    "FAILING",
    "OLDEST",
    "SYNCS",
    "ERRORS",
];

/// `namespace/name`, or the name alone.
pub(in crate::cli) fn key(key: &ObjectKey) -> String {
    match key.namespace.as_str() {
        "" => clean(&key.name),
        namespace => clean(&format!("{namespace}/{}", key.name)),
    }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { clean(text) }
}

/// Queues as a table.
pub(in crate::cli) fn list(queues: &[Queue], format: Format) -> String {
    let mut headings = HEADINGS.to_vec();
    if format.is_wide() {
        headings.extend(["WORKERS", "LONGEST-RUNNING"]);
    }
    let rows = queues.iter().map(|queue| {
        let mut row = vec![
            clean(&queue.name),
            clean(&queue.controller),
            or_none(&queue.resource),
            queue.depth.to_string(),
            queue.in_flight.to_string(),
            queue.delayed.to_string(),
            queue.waiting.to_string(),
            queue.failing.to_string(),
            duration_or_none(queue.oldest_queued_age.as_ref()),
            queue.syncs.to_string(),
            queue.errors.to_string(),
        ];
        if format.is_wide() {
            row.extend([queue.workers.to_string(), duration_or_none(queue.longest_running.as_ref())]);
        }
        row
    });
    table(&headings, rows)
}

/// A queue with its keys.
pub(in crate::cli) fn sheet(answer: &GetQueueResponse, now: Timestamp) -> String {
    let mut sheet = Sheet::default();
    let queue = answer.queue.clone().unwrap_or_default();
    sheet
        .fact("Name", &queue.name)
        .fact("Controller", &queue.controller)
        .fact("Resource", or_none(&queue.resource))
        .fact("Workers", queue.workers.to_string())
        .fact("Depth", queue.depth.to_string())
        .fact("In flight", queue.in_flight.to_string())
        .fact("Delayed", queue.delayed.to_string())
        .fact("Waiting for a cache", queue.waiting.to_string())
        .fact("Failing", queue.failing.to_string())
        .fact("Oldest queued", duration_or_none(queue.oldest_queued_age.as_ref()))
        .fact("Longest running", duration_or_none(queue.longest_running.as_ref()))
        .fact("Syncs", queue.syncs.to_string())
        .fact("Errors", queue.errors.to_string());
    let keys = |held: &[QueuedKey]| {
        let rows = held.iter().map(|each| {
            vec![each.object.as_ref().map(key).unwrap_or_default(), duration_or_none(each.age.as_ref())]
        });
        table(&["KEY", "AGE"], rows)
    };
    if !answer.oldest_keys.is_empty() {
        sheet.block("Oldest keys", &keys(&answer.oldest_keys));
    }
    if !answer.in_flight_keys.is_empty() {
        sheet.block("Keys in flight", &keys(&answer.in_flight_keys));
    }
    if !answer.waiting_keys.is_empty() {
        let rows = answer.waiting_keys.iter().map(|each| {
            vec![
                each.object.as_ref().map(key).unwrap_or_default(),
                duration_or_none(each.age.as_ref()),
                clean(&each.reason),
            ]
        });
        sheet.block("Waiting keys", &table(&["KEY", "AGE", "REASON"], rows));
    }
    if !answer.failing_keys.is_empty() {
        let rows = answer.failing_keys.iter().map(|each| {
            vec![
                each.object.as_ref().map(key).unwrap_or_default(),
                each.attempts.to_string(),
                age(each.time.as_ref(), now),
                clean(&each.message),
            ]
        });
        sheet.block("Failing keys", &table(&["KEY", "ATTEMPTS", "LAST", "MESSAGE"], rows));
    }
    sheet.text()
}
