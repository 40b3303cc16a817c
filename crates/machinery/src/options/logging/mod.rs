//! Logging, as the logging flags ask for it: lines that look like klog's, as text or JSON, to the streams that it
//! writes to, at a verbosity that may differ by module.
//!
//! Levels of `tracing` stand for klog's numbers: errors, warnings and `info` are always there, `debug` from `-v=4`,
//! `trace` from `-v=6`. Spans at debug level are for traces: no line tells of them. Nothing is held back in a buffer, so
//! nothing is lost when the process dies.

mod filter;
mod json;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tracing::field::Field;
use tracing::{Level, Subscriber};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

pub use filter::VerbosityFilter;

use super::Config;
use crate::model::clock::SharedClock;
use crate::telemetry::tracing::TraceLayer;

/// What a field is called in a line: an error by the name that readers of klog know.
fn name_in_line(field: &Field) -> &'static str {
    match field.name() {
        "error" => "err",
        name => name,
    }
}

/// Changes `-v` while the process runs; `Err` says why it could not.
pub type SetVerbosity = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// The layer that writes log lines which `filter` lets pass.
fn layer<S, F>(config: &Config, clock: SharedClock, filter: F) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Filter<S> + Send + Sync + 'static,
{
    let flags = &config.flags;
    let json = flags.logging_format == "json";
    let split = if json { flags.log_json_split_stream } else { flags.log_text_split_stream };
    let writer = if split {
        BoxMakeWriter::new(std::io::stderr.with_max_level(Level::ERROR).or_else(std::io::stdout))
    } else {
        BoxMakeWriter::new(std::io::stderr)
    };
    layer_to(config, clock, writer, filter)
}

fn layer_to<S, F>(
    config: &Config,
    clock: SharedClock,
    writer: BoxMakeWriter,
    filter: F,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Filter<S> + Send + Sync + 'static,
{
    if config.flags.logging_format == "json" {
        let format = json::JsonLine::new(clock);
        fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(format)
            .with_writer(writer)
            .with_filter(filter)
            .boxed()
    } else {
        let format = text::TextLine::new(clock);
        fmt::layer()
            .fmt_fields(text::TextFields)
            .event_format(format)
            .with_writer(writer)
            .with_filter(filter)
            .boxed()
    }
}

/// Makes the process log as the configuration asks. What it returns changes the verbosity later.
///
/// `traces` is the layer that makes traces of spans, if there is one.
///
/// # Errors
/// Something else in the process logs already.
pub fn init(
    config: &Config,
    clock: SharedClock,
    traces: Option<TraceLayer<Registry>>,
) -> Result<SetVerbosity, TryInitError> {
    let filter = VerbosityFilter::new(config.flags.v, config.flags.vmodule.clone());
    let (filter, handle) = reload::Layer::new(filter);
    // One list rather than an optional layer, so that without traces there is nothing of them.
    let layers: Vec<_> = [layer(config, clock, filter)].into_iter().chain(traces).collect();
    tracing_subscriber::registry().with(layers).try_init()?;
    Ok(Arc::new(move |verbosity| {
        handle.modify(|filter| filter.set_default(verbosity)).map_err(|error| error.to_string())
    }))
}
