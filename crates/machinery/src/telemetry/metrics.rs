//! Declaring and registering metrics, with errors that name the metric.

use super::exemplars::TracedHistogramVec;
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts,
};

use super::registry::Registry;

/// A metric that can't be declared or registered: a programming error, found at start-up.
#[derive(Debug, thiserror::Error)]
#[error("metric {name}: {source}")]
pub struct MetricsError {
    name: String,
    source: prometheus::Error,
}

impl MetricsError {
    /// The metric's name.
    pub fn metric(&self) -> &str {
        &self.name
    }

    /// `source` befell the metric of this name.
    pub fn new(name: &str, source: prometheus::Error) -> Self {
        Self { name: name.to_owned(), source }
    }
}

/// Declares metrics and registers them with one registry.
#[derive(Clone, Copy, Debug)]
pub struct Registrar<'a>(&'a Registry);

impl<'a> Registrar<'a> {
    /// Registers with `registry`.
    pub fn new(registry: &'a Registry) -> Self {
        Self(registry)
    }

    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.register(name, IntCounter::new(name, help))
    }

    /// Counters by label values.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        self.register(name, IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricsError> {
        self.register(name, Gauge::new(name, help))
    }

    /// Gauges by label values.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, MetricsError> {
        self.register(name, GaugeVec::new(Opts::new(name, help), labels))
    }

    /// A gauge of whole numbers.
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.register(name, IntGauge::new(name, help))
    }

    /// Gauges of whole numbers by label values.
    pub fn int_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.register(name, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A histogram with these upper bounds, ascending, `+Inf` left out.
    pub fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram, MetricsError> {
        self.0.declare_bounds(name, &buckets);
        self.register(name, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
    }

    /// Histograms by label values, with these upper bounds, ascending, `+Inf` left out.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> Result<HistogramVec, MetricsError> {
        self.0.declare_bounds(name, &buckets);
        self.register(name, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
    }

    /// The same with exemplars.
    pub fn traced_histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> Result<TracedHistogramVec, MetricsError> {
        TracedHistogramVec::register(self.0, (name, help), labels, buckets)
    }

    /// A collector that computes its metrics when they are asked for; `name` is for the error.
    pub fn collector(&self, name: &str, collector: Box<dyn Collector>) -> Result<(), MetricsError> {
        self.0.register(collector).map_err(|error| MetricsError::new(name, error))
    }

    fn register<M: Collector + Clone + 'static>(
        self,
        name: &str,
        metric: prometheus::Result<M>,
    ) -> Result<M, MetricsError> {
        let metric = metric.map_err(|error| MetricsError::new(name, error))?;
        self.collector(name, Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// `count` bounds from `start`, each `factor` times the one before. Computed by repeated multiplication, as the
/// original does: its bounds show the rounding (`9.999999999999999e-06`) and are part of the series' identity.
pub fn exponential_buckets(start: f64, factor: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
}

/// `count` bounds from `start`, each `width` more than the one before.
pub fn linear_buckets(start: f64, width: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound + width)).take(count).collect()
}
