//! What the process tells about itself.
//!
//! Metrics have no globals: a module declares a struct of its metrics and registers it with the [`prometheus::Registry`]
//! that its constructor is given, through a [`Registrar`]; whoever wires the process up owns the registry and serves
//! [`encode_text`] of it. Nothing here opens a port.

mod info;
mod metrics;
mod process;
mod runtime;
mod serving;
mod slis;
mod text;
pub mod tracing;

#[cfg(test)]
mod tests;

pub use info::{BuildInfo, FeatureState, FeatureStates, ManagerMetrics, VersionInfo};
pub use metrics::{MetricsError, Registrar, exponential_buckets, linear_buckets};
pub use process::ProcessMetrics;
pub use runtime::RuntimeMetrics;
pub use serving::ServeMetrics;
pub use slis::{CheckStatus, SliMetrics};
pub use text::{TEXT_CONTENT_TYPE, encode_text};
