//! Proposals of metrics as a look keeps them. Decides nothing.

use coxswain_machinery::api::autoscaling::MetricStatus;

/// The replicas that a metric asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric, as messages name it.
    pub(super) name: String,
    /// The present value of the metric.
    pub(super) status: MetricStatus,
}

/// A metric that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricFailure {
    /// For machines.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) text: String,
    /// The same with what was tried.
    pub(super) whole: String,
    /// Whether the spec is wrong.
    pub(super) is_of_spec: bool,
}

/// The proposal of a metric, or why there is none.
pub(super) type Proposed = Result<Proposal, MetricFailure>;
