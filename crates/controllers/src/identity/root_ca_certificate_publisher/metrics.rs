//! What the controller counts of its work, under the original's names. Decides nothing.

use prometheus::{HistogramVec, IntCounterVec, exponential_buckets};

use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;

/// Reconciles of namespaces by how they ended, in the words of HTTP: 200, the status by which the API server refused, or
/// 500 for whatever else went wrong.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    syncs: IntCounterVec,
    took: HistogramVec,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            syncs: metrics.counters(
                "root_ca_cert_publisher_sync_total",
                "Reconciles of namespaces, by the HTTP status that says how they ended.",
                &["code"],
            )?,
            took: metrics.histograms(
                "root_ca_cert_publisher_sync_duration_seconds",
                "Duration of reconciles of namespaces in seconds, by the HTTP status that says how they ended.",
                &["code"],
                exponential_buckets(0.001, 2.0, 15)?,
            )?,
        })
    }
}

impl Meter<()> for Metrics {
    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        let code = match ended.outcome {
            // It has not begun.
            Outcome::Waiting(_) => return,
            Outcome::Done { .. } | Outcome::Absent => 200,
            Outcome::Failed { .. } => ended.actions.iter().find_map(|action| action.code).unwrap_or(500),
        };
        let code = code.to_string();
        self.syncs.with_label_values(&[&code]).inc();
        self.took.with_label_values(&[&code]).observe(ended.took.as_secs_f64());
    }
}
