//! What the process tells about itself.
//!
//! Metrics have no globals: a module declares a struct of its metrics and registers it with the [`Registry`] that its
//! constructor is given, through a [`Registrar`]; whoever wires the process up owns the registry and serves it in a
//! [`ExpositionFormat`]. Nothing here opens a port.

mod allocator;
mod exemplars;
mod exposition;
mod info;
mod limits;
mod metrics;
mod openmetrics;
mod process;
mod profiles;
pub mod push;
mod registry;
mod runtime;
mod series;
mod serving;
mod slis;
mod text;
pub mod tracing;

#[cfg(test)]
mod tests;

pub use allocator::AllocatorMetrics;
pub use exemplars::{Exemplar, Exemplars, TracedHistogram, TracedHistogramVec};
pub use exposition::ExpositionFormat;
pub use info::{BuildInfo, FeatureMetric, FeatureStates, ManagerMetrics, VersionInfo};
pub use limits::MetricLimits;
pub use metrics::{MetricsError, Registrar, exponential_buckets, linear_buckets};
pub use process::ProcessMetrics;
pub use profiles::{ProfileError, Profiler};
pub use registry::{Declared, Registry};
pub use runtime::RuntimeMetrics;
pub use series::{BoundedSeries, MOST_SERIES, Sum};
pub use serving::ServeMetrics;
pub use slis::{CheckStatus, SliMetrics};
pub use text::{TEXT_CONTENT_TYPE, encode_text};
