//! A change that a watch tells of, on its way to the queues: when it came, and what it is to those who look at traces.
//! Knows no rooms and decides nothing.

use std::time::Duration;

use tracing::Span;

use super::trace::{self, Causes};
use crate::api::Kind;
use crate::informer::Delta;
use crate::model::Key;
use crate::queue::WorkQueue;
use crate::telemetry::tracing::is_on;

/// A change, for as long as its keys are queued.
pub(super) struct QueuedChange<'a> {
    kind: &'static Kind,
    delta: &'a Delta<'a>,
    /// What was there before, or comes again, causes nothing and has no age that would mean anything.
    is_news: bool,
    span: Option<Span>,
}

impl<'a> QueuedChange<'a> {
    pub(super) fn new(kind: &'static Kind, delta: &'a Delta<'a>) -> Self {
        Self { kind, delta, is_news: delta.is_news(), span: None }
    }

    /// Queues a key that the change concerns: at once, or after a debounce in which further changes are collected.
    pub(super) fn puts(&mut self, key: Key, queue: &WorkQueue<Key>, causes: &Causes, debounce: Duration) {
        if self.is_news {
            if is_on() {
                causes.add(&key, self.span.get_or_insert_with(|| trace::change(self.kind, self.delta)));
            }
            queue.add_changed(key, debounce);
        } else if debounce.is_zero() {
            queue.add(key);
        } else {
            queue.add_after(key, debounce);
        }
    }
}
