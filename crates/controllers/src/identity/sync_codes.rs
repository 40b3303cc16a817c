//! Reconciles of controllers that publish, by how they ended in the words of HTTP: 200, the status by which the API server refused,
//! or 500 for whatever else went wrong. Decides nothing.

use prometheus::{HistogramVec, IntCounterVec, exponential_buckets};

use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;

/// How many there were, and how long they took.
#[derive(Clone, Debug)]
pub(super) struct SyncCodes {
    syncs: IntCounterVec,
    took: HistogramVec,
}

impl SyncCodes {
    /// The metrics, registered under these names; `what` is reconciled.
    pub(super) fn register(
        metrics: &RoomMetrics,
        [total, seconds]: [&'static str; 2],
        what: &str,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            syncs: metrics.counters(
                total,
                &format!("Reconciles of {what}, by resulting HTTP status code."),
                &["code"],
            )?,
            took: metrics.histograms(
                seconds,
                &format!("Duration of reconciles of {what} in seconds, by resulting HTTP status code."),
                &["code"],
                exponential_buckets(0.001, 2.0, 15)?,
            )?,
        })
    }
}

impl Meter<()> for SyncCodes {
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
