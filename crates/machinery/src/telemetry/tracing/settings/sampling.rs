//! Which traces are recorded.

use opentelemetry_sdk::trace::Sampler;

/// Which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Whether a span with a parent is recorded if, and only if, its parent is.
    pub parent_based: bool,
    /// Which of the other traces are.
    pub root: Root,
}

/// Which of the traces that begin here are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Root {
    /// All.
    Always,
    /// None.
    Never,
    /// This share of them, from 0 to 1, chosen by their ids.
    Ratio(f64),
}

impl Sampling {
    /// As components of Kubernetes sample: what a parent says, or so many traces in a million.
    pub fn per_million(rate: u32) -> Self {
        Self { parent_based: true, root: Root::Ratio(f64::from(rate) / 1e6) }
    }

    /// The SDK's sampler.
    pub(in crate::telemetry::tracing) fn sampler(self) -> Sampler {
        let root = match self.root {
            Root::Always => Sampler::AlwaysOn,
            Root::Never => Sampler::AlwaysOff,
            Root::Ratio(ratio) => Sampler::TraceIdRatioBased(ratio),
        };
        if self.parent_based { Sampler::ParentBased(Box::new(root)) } else { root }
    }
}
