//! Metrics that every controller has, beyond the original's.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

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

/// Metrics of single controllers. A controller that is started anew goes on with those that it had.
pub struct RoomMetrics {
    registry: Registry,
    counters: Mutex<BTreeMap<&'static str, IntCounter>>,
}

impl RoomMetrics {
    /// Metrics that are registered with `registry` when they are asked for.
    pub fn new(registry: Registry) -> Self {
        Self { registry, counters: Mutex::default() }
    }

    /// The counter of this name; an error if something else has the name.
    pub fn counter(&self, name: &'static str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let mut counters = self.counters.lock();
        if let Some(counter) = counters.get(name) {
            return Ok(counter.clone());
        }
        let counter = IntCounter::new(name, help)?;
        self.registry.register(Box::new(counter.clone()))?;
        counters.insert(name, counter.clone());
        Ok(counter)
    }
}
