//! Metrics that every controller has, beyond the original's.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::Collector;
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
    held: Mutex<BTreeMap<&'static str, Box<dyn Any + Send>>>,
}

impl RoomMetrics {
    /// Metrics that are registered with `registry` when they are asked for.
    pub fn new(registry: Registry) -> Self {
        Self { registry, held: Mutex::default() }
    }

    /// The counter of this name; an error if something else has the name.
    pub fn counter(&self, name: &'static str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.own(name, || IntCounter::new(name, help))
    }

    /// The metric of this name, of whatever sort, as `make` makes it when it is asked for first; an error if something
    /// else has the name.
    pub fn own<M: Collector + Clone + 'static>(
        &self,
        name: &'static str,
        make: impl FnOnce() -> Result<M, prometheus::Error>,
    ) -> Result<M, prometheus::Error> {
        let mut held = self.held.lock();
        if let Some(metric) = held.get(name).and_then(|held| held.downcast_ref::<M>()) {
            return Ok(metric.clone());
        }
        let metric = make()?;
        self.registry.register(Box::new(metric.clone()))?;
        held.insert(name, Box::new(metric.clone()));
        Ok(metric)
    }
}
