//! Metrics that every controller has, beyond the original's.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::worker::Outcome;

/// Reconciles by controller.
#[derive(Clone)]
pub struct ReconcileMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
}

impl ReconcileMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let total = IntCounterVec::new(
            Opts::new(
                "coxswain_reconcile_total",
                "Reconciles by controller and result: done, waiting (for the cache), retried or failed.",
            ),
            &["controller", "result"],
        )?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "coxswain_reconcile_duration_seconds",
                "Duration of reconciles by controller.",
            )
            .buckets(prometheus::exponential_buckets(0.0001, 4.0, 10)?),
            &["controller"],
        )?;
        registry.register(Box::new(total.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { total, duration })
    }

    pub(super) fn observe(&self, controller: &str, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Done { .. } | Outcome::Absent => "done",
            Outcome::Waiting(_) => "waiting",
            Outcome::Failed { retry: true, .. } => "retried",
            Outcome::Failed { retry: false, .. } => "failed",
        };
        self.total.with_label_values(&[controller, result]).inc();
        if !matches!(outcome, Outcome::Waiting(_)) {
            self.duration.with_label_values(&[controller]).observe(took.as_secs_f64());
        }
    }
}
