//! Logging, as the logging flags ask for it: lines that look like klog's, as text or JSON, to the streams that it
//! writes to, at a verbosity that may differ by module.
//!
//! Levels of `tracing` stand for klog's numbers: errors, warnings and `info` are always there, `debug` from `-v=4`,
//! `trace` from `-v=6`. Nothing is held back in a buffer, so nothing is lost when the process dies.

mod filter;
mod json;
mod text;

#[cfg(test)]
mod tests;

use tracing::{Level, Subscriber};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, fmt};

pub use filter::VerbosityFilter;

use super::Config;
use crate::model::clock::SharedClock;

/// The layer that writes log lines: for a subscriber that has other layers beside it.
pub fn layer<S>(config: &Config, clock: SharedClock) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let flags = &config.flags;
    let json = flags.logging_format == "json";
    let split = if json { flags.log_json_split_stream } else { flags.log_text_split_stream };
    let writer = if split {
        BoxMakeWriter::new(std::io::stderr.with_max_level(Level::ERROR).or_else(std::io::stdout))
    } else {
        BoxMakeWriter::new(std::io::stderr)
    };
    layer_to(config, clock, writer)
}

fn layer_to<S>(config: &Config, clock: SharedClock, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = VerbosityFilter::new(config.flags.v, config.flags.vmodule.clone());
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
/// # Errors
/// Something else in the process logs already.
pub fn init(config: &Config, clock: SharedClock) -> Result<(), TryInitError> {
    tracing_subscriber::registry().with(layer(config, clock)).try_init()
}
