//! Metrics that every controller has, beyond the original's, and where a controller's own are kept.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::telemetry::{
    BoundedSeries, MetricsError, Registrar, Registry, TracedHistogramVec, exponential_buckets,
};
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};

use super::reads::LiveRead;
use super::worker::Outcome;

/// Reconciles by controller.
#[derive(Clone)]
pub struct ReconcileMetrics {
    total: IntCounterVec,
    duration: TracedHistogramVec,
    answered: TracedHistogramVec,
    panics: IntCounterVec,
    live_reads: IntCounterVec,
}

impl ReconcileMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        Ok(Self {
            total: registrar.counters(
                "coxswain_reconcile_total",
                "Reconciles, by controller and result: done, waiting (for the cache), retried or failed.",
                &["controller", "result"],
            )?,
            duration: registrar.traced_histograms(
                "coxswain_reconcile_duration_seconds",
                "Duration of reconciles, by controller.",
                &["controller"],
                exponential_buckets(0.0001, 4.0, 10),
            )?,
            answered: registrar.traced_histograms(
                "coxswain_change_to_write_seconds",
                "Time in seconds from the first change that queued a key to the end of the reconcile that wrote the \
                 result, by controller.",
                &["controller"],
                exponential_buckets(0.001, 2.0, 16),
            )?,
            panics: registrar.counters(
                "coxswain_reconcile_panics_total",
                "Panics in reconciles, by controller; the key is retried after the maximum backoff.",
                &["controller"],
            )?,
            live_reads: registrar.counters(
                "coxswain_live_reads_total",
                "Live reads of reconciles, by controller and row of docs/live-reads.md.",
                &["controller", "read"],
            )?,
        })
    }

    /// The counters of live reads.
    pub(super) fn live_reads(&self) -> LiveReadCounts {
        LiveReadCounts(self.live_reads.clone())
    }

    /// A reconcile has panicked.
    pub(super) fn panicked(&self, controller: &str) {
        self.panics.with_label_values(&[controller]).inc();
    }

    /// A reconcile has ended, after `took`; `since` is how long ago the first change that it concerns arrived.
    pub(super) fn observe(
        &self,
        controller: &str,
        outcome: &Outcome,
        took: Duration,
        since: Option<Duration>,
    ) {
        let result = match outcome {
            Outcome::Done { .. } | Outcome::Absent => "done",
            Outcome::Waiting(_) => "waiting",
            Outcome::Failed { retry: true, .. } => "retried",
            Outcome::Failed { retry: false, .. } => "failed",
        };
        self.total.with_label_values(&[controller, result]).inc();
        if !matches!(outcome, Outcome::Waiting(_)) {
            self.duration.observe(&[controller], took.as_secs_f64());
        }
        if let (Outcome::Done { writes: 1.., .. }, Some(since)) = (outcome, since) {
            self.answered.observe(&[controller], since.as_secs_f64());
        }
    }
}

/// Counts the live reads of controllers, by the rows of their table. Cheap to clone.
#[derive(Clone)]
pub(super) struct LiveReadCounts(IntCounterVec);

impl LiveReadCounts {
    /// One more read was made.
    pub(super) fn count(&self, row: &LiveRead) {
        self.0.with_label_values(&[row.controller, row.name]).inc();
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

    /// The counters of this name, by label values; an error if something else has the name.
    pub fn counters(
        &self,
        name: &'static str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.own(name, || IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// Returns the counters of this name, by label values. Users choose the values of the labels in `named`.
    ///
    /// # Errors
    /// Something else has the name.
    pub fn bounded_counters(
        &self,
        name: &'static str,
        help: &str,
        labels: &[&str],
        named: &[&str],
    ) -> Result<BoundedSeries<IntCounterVec>, prometheus::Error> {
        self.own(name, || BoundedSeries::new(IntCounterVec::new(Opts::new(name, help), labels)?, named))
    }

    /// The histograms of this name, likewise, with these upper bounds.
    pub fn bounded_histograms(
        &self,
        name: &'static str,
        help: &str,
        labels: &[&str],
        bounds: Vec<f64>,
    ) -> Result<BoundedSeries<HistogramVec>, prometheus::Error> {
        self.registry.declare_bounds(name, &bounds);
        let opts = HistogramOpts::new(name, help).buckets(bounds);
        self.own(name, || BoundedSeries::new(HistogramVec::new(opts, labels)?, labels))
    }

    /// The histogram of this name, with these upper bounds; an error if something else has the name.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &str,
        bounds: Vec<f64>,
    ) -> Result<Histogram, prometheus::Error> {
        self.own(name, || Histogram::with_opts(HistogramOpts::new(name, help).buckets(bounds)))
    }

    /// The histograms of this name, by label values, with these upper bounds; an error if something else has the name.
    pub fn histograms(
        &self,
        name: &'static str,
        help: &str,
        labels: &[&str],
        bounds: Vec<f64>,
    ) -> Result<HistogramVec, prometheus::Error> {
        self.registry.declare_bounds(name, &bounds);
        self.own(name, || HistogramVec::new(HistogramOpts::new(name, help).buckets(bounds), labels))
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
