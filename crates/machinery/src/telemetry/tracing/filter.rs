//! Which spans and events of `tracing` belong to a trace.

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use super::context::within_a_recorded_trace;

/// Whether a module is one of Coxswain's own crates, and none of a library.
pub fn is_ours(module: &str) -> bool {
    let name = module.split("::").next().unwrap_or_default();
    name == "coxswain" || name.starts_with("coxswain_")
}

/// Passes spans of our own at debug level and above, whatever `-v` says, and what goes wrong within them. A span below
/// one that is not recorded does not pass: it would cost as much as one that is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanFilter;

impl SpanFilter {
    fn concerns(metadata: &Metadata<'_>) -> bool {
        let module = metadata.module_path().unwrap_or_else(|| metadata.target());
        let most = if metadata.is_span() { Level::DEBUG } else { Level::WARN };
        is_ours(module) && *metadata.level() <= most
    }
}

impl<S: Subscriber> Filter<S> for SpanFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::concerns(metadata) && within_a_recorded_trace()
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::concerns(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}
