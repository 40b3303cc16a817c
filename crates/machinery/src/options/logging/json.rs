//! JSON lines with the field names of Kubernetes' own: `ts` (milliseconds), `caller`, `msg`, `v` (of messages that are
//! no errors), `err`; with `level` added, and the fields of the message and of the spans around it.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::{name_in_line, own_target};
use crate::model::clock::SharedClock;
use crate::telemetry;
use crate::wire::text::lossy_text;

/// Formats events as lines of JSON.
pub(super) struct JsonLine {
    clock: SharedClock,
}

impl JsonLine {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock }
    }
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let module = metadata.module_path().unwrap_or_else(|| metadata.target());
        let caller = metadata.line().map_or_else(|| module.to_owned(), |number| format!("{module}:{number}"));
        let (level, verbosity) = match *metadata.level() {
            Level::ERROR => ("error", None),
            Level::WARN => ("warn", Some(0)),
            Level::INFO => ("info", Some(0)),
            Level::DEBUG => ("debug", Some(4)),
            Level::TRACE => ("trace", Some(6)),
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut object = Map::new();
        object.insert("ts".to_owned(), (self.clock.now().as_microsecond() as f64 / 1000.0).into());
        object.insert("caller".to_owned(), caller.into());
        object.insert("msg".to_owned(), fields.message.into());
        object.insert("level".to_owned(), level.into());
        if let Some(verbosity) = verbosity {
            object.insert("v".to_owned(), verbosity.into());
        }
        // What the message says itself wins over what the spans around it say, and the inner span over the outer.
        for (name, value) in fields.pairs {
            object.entry(name).or_insert(value);
        }
        if let Some(target) = own_target(metadata) {
            object.entry("target").or_insert_with(|| target.into());
        }
        if let Some(ids) = telemetry::tracing::present() {
            object.insert("trace_id".to_owned(), ids.trace_hex().into());
            object.insert("span_id".to_owned(), ids.span_hex().into());
        }
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let Some(recorded) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            if let Ok(pairs) = serde_json::from_str::<Map<String, Value>>(&recorded.fields) {
                // What a trace is told of a span in OpenTelemetry's words is not for lines.
                for (name, value) in pairs.into_iter().filter(|(name, _)| !name.starts_with("otel.")) {
                    object.entry(name).or_insert(value);
                }
            }
        }
        writeln!(line, "{}", lossy_text(&Value::Object(object).to_string()))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    pairs: Map<String, Value>,
}

impl Fields {
    fn pair(&mut self, field: &Field, value: impl Into<Value>) {
        self.pairs.insert(name_in_line(field).to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.pair(field, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.pair(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.pair(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.pair(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.pair(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_str(field, &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
