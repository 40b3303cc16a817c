//! Text lines that klog's readers understand:
//! `I1121 13:02:05.000001     123 coxswain::queue:42] "Message" key="value"`.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::{name_in_line, own_target};
use crate::model::clock::SharedClock;
use crate::telemetry;
use crate::wire::text::lossy_text;

/// Formats events as lines of text. Time is UTC.
pub(super) struct TextLine {
    clock: SharedClock,
    process: u32,
}

impl TextLine {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, process: std::process::id() }
    }
}

impl<S> FormatEvent<S, TextFields> for TextLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, TextFields>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        // klog has one letter for all that is no warning and no error, whatever its verbosity.
        let letter = match *metadata.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let now = self.clock.now().strftime("%m%d %H:%M:%S%.6f");
        let module = metadata.module_path().unwrap_or_else(|| metadata.target());
        write!(line, "{letter}{now} {:>7} {module}", self.process)?;
        if let Some(number) = metadata.line() {
            write!(line, ":{number}")?;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        write!(line, "] {:?}{}", fields.message, fields.pairs)?;
        if let Some(target) = own_target(metadata) {
            write!(line, " target={target:?}")?;
        }
        if let Some(ids) = telemetry::tracing::present() {
            write!(line, " trace_id=\"{}\" span_id=\"{}\"", ids.trace_hex(), ids.span_hex())?;
        }
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(pairs) = span.extensions().get::<FormattedFields<TextFields>>() {
                write!(line, "{}", pairs.fields)?;
            }
        }
        writeln!(line)
    }
}

/// Formats the fields of spans as ` key="value"` pairs.
pub(super) struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut pairs = Fields::default();
        fields.record(&mut pairs);
        writer.write_str(&pairs.pairs)
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    pairs: String,
}

impl Fields {
    fn pair(&mut self, field: &Field, value: impl fmt::Display) {
        use fmt::Write as _;
        // What a trace is told of a span in OpenTelemetry's words is not for lines.
        if field.name().starts_with("otel.") {
            return;
        }
        // Writing to a String can't fail.
        let _ = write!(self.pairs, " {}={value}", name_in_line(field));
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = lossy_text(value).into_owned();
        } else {
            self.pair(field, format_args!("{:?}", lossy_text(value)));
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
        // Text given by `%` arrives here without quotes, and text given by `?` with its own. A name that begins with a quote
        // must not pass for the latter: its line breaks would begin lines of their own.
        let text = format!("{value:?}");
        let text = lossy_text(&text).into_owned();
        if field.name() == "message" {
            self.message = text;
        } else if is_literal(&text) || text.parse::<f64>().is_ok() {
            self.pair(field, text);
        } else {
            self.pair(field, format_args!("{text:?}"));
        }
    }
}

/// Returns whether the text is one string literal in which each quote, backslash and unprintable character is escaped.
fn is_literal(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        let is_plain = match letter {
            '\\' => letters.next().is_some_and(|escaped| escaped.is_ascii_graphic()),
            '"' => false,
            '\'' => true,
            letter => letter.escape_debug().len() == 1,
        };
        if !is_plain {
            return false;
        }
    }
    true
}
