//! The present span as OpenTelemetry knows it: its ids, its headers, and what only a trace is told of it.
//!
//! Everything here is a look at a value of this thread, and does nothing where tracing is off.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use opentelemetry::{Context, Key, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Span, dispatcher};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::filter::SpanFilter;

/// The names of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Of its trace.
    pub trace: [u8; 16],
    /// Its own.
    pub span: [u8; 8],
}

impl Ids {
    /// The trace's id as it is written: 32 digits.
    pub fn trace_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }

    /// The span's id as it is written: 16 digits.
    pub fn span_hex(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.span))
    }
}

/// Whether this build knows no traces: it is for comparison alone, see `benches/tracing.rs`.
pub const IS_LEFT_OUT: bool = cfg!(coxswain_untraced);

/// Whether there are traces at all.
pub fn is_on() -> bool {
    !IS_LEFT_OUT && dispatcher::get_default(|dispatch| dispatch.downcast_ref::<SpanFilter>().is_some())
}

/// A span within the present one, if there are traces, unless that belongs to one that is not recorded: then there is none,
/// for even one that no layer takes has its price.
pub fn child(make: impl FnOnce() -> Span) -> Span {
    if is_on() && within_a_recorded_trace() { make() } else { Span::none() }
}

/// Whether nothing says that the present trace is not recorded.
pub(super) fn within_a_recorded_trace() -> bool {
    Context::map_current(|context| !context.has_active_span() || context.span().span_context().is_sampled())
}

/// The ids of the present span; `None` if there is none that is recorded.
pub fn present() -> Option<Ids> {
    if IS_LEFT_OUT {
        return None;
    }
    Context::map_current(|context| {
        if !context.has_active_span() {
            return None;
        }
        let span = context.span();
        let of = span.span_context();
        let ids = Ids { trace: of.trace_id().to_bytes(), span: of.span_id().to_bytes() };
        of.is_sampled().then_some(ids)
    })
}

/// The span's place in its trace, for a link to it; `None` unless it is recorded.
pub fn linked(span: &Span) -> Option<SpanContext> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let of = context.span().span_context().clone();
    of.is_sampled().then_some(of)
}

/// Links a span to another: to what it came of.
pub fn link(span: &Span, to: SpanContext) {
    span.add_link(to);
}

/// Makes a span that has not begun part of another's trace, below it, and lets the other end before it.
pub fn descend(span: &Span, from: SpanContext) {
    // It fails where no layer listens; then there is no trace.
    drop(span.set_parent(Context::new().with_remote_span_context(from)));
}

/// Whether this span is recorded.
pub fn is_sampled(span: &Span) -> bool {
    !span.is_disabled() && span.context().span().span_context().is_sampled()
}

/// Tells the trace, and no log, something of a span.
pub fn set_attribute(span: &Span, key: impl Into<Key>, value: impl Into<Value>) {
    span.set_attribute(key, value);
}

/// Marks a span as failed.
pub fn set_failed(span: &Span, error: impl Into<String>) {
    span.set_status(Status::error(error.into()));
}

/// Puts the present span's W3C `traceparent`, and `tracestate` if there is one, on a request, in the place of any that it
/// has.
pub fn inject(headers: &mut HeaderMap) {
    if !IS_LEFT_OUT && Context::map_current(Context::has_active_span) {
        headers.remove("traceparent");
        headers.remove("tracestate");
        TraceContextPropagator::new().inject(&mut Headers(headers));
    }
}

struct Headers<'a>(&'a mut HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::try_from(key).ok();
        // A value that is no header could only be a bug of whoever began the trace; better a request without it.
        if let (Some(name), Ok(value), false) = (name, HeaderValue::try_from(&value), value.is_empty()) {
            self.0.insert(name, value);
        }
    }
}

struct Received<'a>(&'a HeaderMap);

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// Makes a span that has not begun part of the trace that a request's headers name, if they name one.
pub fn continue_from(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Received(headers));
    if parent.has_active_span() {
        // It fails where no layer listens, or where the span has begun; then it is a trace of its own.
        drop(span.set_parent(parent));
    }
}
