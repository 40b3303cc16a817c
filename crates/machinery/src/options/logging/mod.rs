//! Logging, as the logging flags ask for it: lines that look like klog's, as text or JSON, to the streams that it
//! writes to, at a verbosity that may differ by module.
//!
//! Levels of `tracing` stand for klog's numbers: errors, warnings and `info` are always there, `debug` from `-v=4`,
//! `trace` from `-v=6`. Spans at debug level are for traces: no line tells of them. Nothing is held back in a buffer, so
//! nothing is lost when the process dies, unless a flag asks for it.

mod filter;
mod held_back;
mod json;
mod text;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::Arc;

use tracing::field::Field;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

pub use filter::VerbosityFilter;
pub use held_back::HeldBack;

use super::Config;
use crate::model::clock::SharedClock;
use crate::telemetry::tracing::TraceLayer;

/// What is held back is never more bytes: memory is taken for it at once.
const MOST_HELD_BACK: usize = 64 << 20;

/// What a field is called in a line: an error by the name that readers of klog know.
fn name_in_line(field: &Field) -> &'static str {
    match field.name() {
        "error" => "err",
        name => name,
    }
}

/// Returns the target that a line names instead of its module. Lines of the audit log have the target `audit`, by which they are selected.
fn own_target(metadata: &'static Metadata<'static>) -> Option<&'static str> {
    let target = metadata.target();
    metadata.module_path().filter(|module| *module != target).map(|_| target)
}

/// Changes `-v` while the process runs; `Err` says why it could not.
pub type SetVerbosity = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// What logging has made.
pub struct Logging {
    /// Changes `-v`.
    pub set_verbosity: SetVerbosity,
    /// What is held back before standard output, where `--log-text-info-buffer-size` or `--log-json-info-buffer-size` asks for
    /// that: somebody has to write it out.
    pub held_back: Option<HeldBack>,
}

/// Where lines go, and what of it is held back before `out`.
fn writer<O, E>(
    config: &Config,
    out: impl Fn() -> O + Send + Sync + 'static,
    err: impl Fn() -> E + Send + Sync + 'static,
) -> (BoxMakeWriter, Option<HeldBack<O>>)
where
    O: Write + Send + 'static,
    E: Write + 'static,
{
    let flags = &config.flags;
    let (split, bytes) = if flags.logging_format == "json" {
        (flags.log_json_split_stream, flags.log_json_info_buffer_size.0)
    } else {
        (flags.log_text_split_stream, flags.log_text_info_buffer_size.0)
    };
    match usize::try_from(bytes).unwrap_or(usize::MAX).min(MOST_HELD_BACK) {
        _ if !split => (BoxMakeWriter::new(err), None),
        0 => (BoxMakeWriter::new(err.with_max_level(Level::ERROR).or_else(out)), None),
        bytes => {
            let held_back = HeldBack::new(bytes, out());
            let errors = err.with_max_level(Level::ERROR);
            (BoxMakeWriter::new(errors.or_else(held_back.clone())), Some(held_back))
        }
    }
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

/// Makes the process log as the configuration asks.
///
/// `traces` is the layer that makes traces of spans, if there is one.
///
/// # Errors
/// Something else in the process logs already.
pub fn init(
    config: &Config,
    clock: SharedClock,
    traces: Option<TraceLayer<Registry>>,
) -> Result<Logging, TryInitError> {
    let filter = VerbosityFilter::new(config.flags.v, config.flags.vmodule.clone());
    let (filter, handle) = reload::Layer::new(filter);
    // One list rather than an optional layer, so that without traces there is nothing of them.
    let (writer, held_back) = writer(config, std::io::stdout, std::io::stderr);
    let layers: Vec<_> = [layer_to(config, clock, writer, filter)].into_iter().chain(traces).collect();
    tracing_subscriber::registry().with(layers).try_init()?;
    let set_verbosity: SetVerbosity = Arc::new(move |verbosity| {
        handle.modify(|filter| filter.set_default(verbosity)).map_err(|error| error.to_string())
    });
    Ok(Logging { set_verbosity, held_back })
}
