//! Traces: the spans of this process, sent to an OpenTelemetry collector by OTLP.
//!
//! ```text
//! tracing span ─► layer (our spans, sampled) ─► bounded queue ─► exporting task ─► collector
//!                                                    │ full             │ refused, or too slow
//!                                                    └──────► dropped, and counted ◄┘
//! ```
//!
//! Code makes spans with `tracing` alone and never calls OpenTelemetry. Spans beyond `reconcile` are made at debug level,
//! which no log layer takes (see [`crate::options::logging`]): with tracing off their call sites are disabled, and with a
//! trace that is not sampled they are not made either. Nothing here blocks the code that is traced, waits for a collector,
//! or keeps more than the queue holds.

mod context;
mod filter;
mod processor;
mod provider;
pub mod settings;
pub(super) mod transport;

#[cfg(test)]
mod tests;

pub use context::{
    IS_LEFT_OUT, Ids, child, continue_from, descend, inject, is_on, is_sampled, link, linked, present,
    set_attribute, set_failed,
};
pub use filter::{SpanFilter, is_ours};
pub(super) use provider::attributes;
pub use provider::{Exporting, Process, TraceLayer, Tracing, TracingError};
pub use settings::TracingSettings;
