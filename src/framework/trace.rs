//! What the trace of a reconcile is told beyond what log lines say of it. Costs a look where there are no traces.

use std::time::Duration;

use tracing::Span;
use tracing::field::display;

use super::report::{Requeue, Turn};
use super::worker::Outcome;
use crate::informer::Store;
use crate::telemetry::tracing::{is_on, is_sampled, set_attribute, set_failed};

/// The span of a reconcile. Its fields are those of log lines; the rest is for the trace alone.
pub(super) fn span<'a>(turn: &Turn<'_>, store: impl FnOnce() -> Option<&'a Store>) -> Span {
    let span = tracing::info_span!(
        "reconcile",
        otel.name = tracing::field::Empty,
        controller = turn.controller,
        object = %turn.key,
        attempt = turn.attempt.saturating_sub(1),
        queue_wait_us = turn.queue_wait.as_micros() as u64,
    );
    if !is_on() {
        return span;
    }
    // A span's name can't be changed once it has begun, and whether it is recorded is not known before.
    span.record("otel.name", display(format_args!("reconcile {}", turn.controller)));
    if !is_sampled(&span) {
        return span;
    }
    set_attribute(&span, "coxswain.queue", turn.queue);
    set_attribute(&span, "k8s.object.name", turn.key.name.to_string());
    if !turn.key.namespace.is_empty() {
        set_attribute(&span, "k8s.namespace.name", turn.key.namespace.to_string());
    }
    if let Some(kind) = turn.kind {
        set_attribute(&span, "k8s.object.kind", kind.kind);
        set_attribute(&span, "k8s.object.resource", kind.to_string());
    }
    if let Some(object) = store().and_then(|store| store.get(turn.key)) {
        let meta = object.meta();
        set_attribute(&span, "k8s.object.uid", meta.uid.to_string());
        set_attribute(&span, "k8s.object.resource_version", meta.resource_version.to_string());
    }
    span
}

/// How a reconcile ended.
pub(super) fn ended(span: &Span, outcome: &Outcome, requeued: Option<(Requeue, Duration)>) {
    if !is_on() || !is_sampled(span) {
        return;
    }
    let result = match outcome {
        Outcome::Absent => "absent",
        Outcome::Done { .. } => "done",
        Outcome::Waiting(_) => "waiting",
        Outcome::Failed { retry: true, .. } => "failed",
        Outcome::Failed { retry: false, .. } => "failed_for_good",
    };
    set_attribute(span, "coxswain.result", result);
    match outcome {
        Outcome::Done { writes, .. } => set_attribute(span, "coxswain.writes", *writes as i64),
        Outcome::Waiting(kind) => set_attribute(span, "coxswain.stale_cache", kind.to_string()),
        Outcome::Failed { error, .. } => set_failed(span, error.clone()),
        Outcome::Absent => {}
    }
    if let Some((cause, delay)) = requeued {
        let cause = match cause {
            Requeue::Failure => "failure",
            Requeue::Planned => "planned",
            Requeue::StaleCache => "stale_cache",
        };
        set_attribute(span, "coxswain.requeue.cause", cause);
        set_attribute(span, "coxswain.requeue.delay_ms", delay.as_millis() as i64);
    }
}
