//! `workqueue_*{name}`, as the original has them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::telemetry::{
    MetricsError, Registrar, Registry, TracedHistogram, TracedHistogramVec, exponential_buckets,
};
use parking_lot::Mutex;
use prometheus::Opts;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};

/// The metrics of all queues. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    adds: IntCounterVec,
    depth: IntGaugeVec,
    waited: HistogramVec,
    worked: TracedHistogramVec,
    retries: IntCounterVec,
    running: Arc<Running>,
}

/// The metrics of one queue.
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) adds: IntCounter,
    pub(super) depth: IntGauge,
    pub(super) waited: Histogram,
    pub(super) worked: TracedHistogram,
    pub(super) retries: IntCounter,
}

/// A queue, as far as the collector sees it.
pub(super) trait InFlight: Send + Sync {
    /// The sum of the time for which keys have been in flight, and the longest of them.
    fn in_flight(&self) -> (Duration, Duration);
}

impl QueueMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        let buckets = || exponential_buckets(1e-8, 10.0, 10);
        let running = Arc::new(Running::new()?);
        registrar.collector(
            "workqueue_unfinished_work_seconds",
            Box::new(RunningCollector(Arc::clone(&running))),
        )?;
        Ok(Self {
            adds: registrar.counters("workqueue_adds_total", "Keys added to a work queue.", &["name"])?,
            depth: registrar.int_gauges(
                "workqueue_depth",
                "Number of keys waiting in a work queue.",
                &["name"],
            )?,
            waited: registrar.histograms(
                "workqueue_queue_duration_seconds",
                "Time that keys waited in a work queue in seconds.",
                &["name"],
                buckets(),
            )?,
            worked: registrar.traced_histograms(
                "workqueue_work_duration_seconds",
                "Time to process a key from a work queue in seconds.",
                &["name"],
                buckets(),
            )?,
            retries: registrar.counters(
                "workqueue_retries_total",
                "Delayed additions of keys to a work queue.",
                &["name"],
            )?,
            running,
        })
    }

    pub(super) fn meters(&self, name: &str) -> Meters {
        Meters {
            adds: self.adds.with_label_values(&[name]),
            depth: self.depth.with_label_values(&[name]),
            waited: self.waited.with_label_values(&[name]),
            worked: self.worked.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
        }
    }

    /// Lets the collector ask `queue` what is in flight for as long as it lives.
    pub(super) fn watch(&self, name: &str, queue: Weak<dyn InFlight>) {
        let unfinished = self.running.unfinished.with_label_values(&[name]);
        let longest = self.running.longest.with_label_values(&[name]);
        let mut queues = self.running.queues.lock();
        // Nobody may scrape, and each restart of a controller makes a queue.
        let gone = queues.extract_if(.., |watched| watched.queue.strong_count() == 0);
        gone.for_each(|watched| {
            watched.unfinished.set(0.0);
            watched.longest.set(0.0);
        });
        queues.push(Watched { unfinished, longest, queue });
    }
}

/// What is in flight is computed when it is asked for; the original updates it twice a second instead.
/// Differs: queue-gauges.
#[derive(Debug)]
struct Running {
    unfinished: GaugeVec,
    longest: GaugeVec,
    queues: Mutex<Vec<Watched>>,
}

struct Watched {
    unfinished: Gauge,
    longest: Gauge,
    queue: Weak<dyn InFlight>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("unfinished", &self.unfinished).finish_non_exhaustive()
    }
}

impl Running {
    fn new() -> Result<Self, MetricsError> {
        let gauges = |name: &str, help: &str| {
            GaugeVec::new(Opts::new(name, help), &["name"]).map_err(|error| MetricsError::new(name, error))
        };
        Ok(Self {
            unfinished: gauges(
                "workqueue_unfinished_work_seconds",
                "Sum of the processing times of the keys in progress in seconds.",
            )?,
            longest: gauges(
                "workqueue_longest_running_processor_seconds",
                "Processing time of the longest-running key in seconds.",
            )?,
            queues: Mutex::new(Vec::new()),
        })
    }

    fn refresh(&self) {
        // A queue that is asked may turn out to hold its last reference: it must not be dropped under the lock.
        let mut asked = Vec::new();
        let mut queues = self.queues.lock();
        for watched in queues.iter() {
            watched.unfinished.set(0.0);
            watched.longest.set(0.0);
        }
        queues.retain(|watched| watched.queue.strong_count() > 0);
        for watched in queues.iter() {
            let Some(queue) = watched.queue.upgrade() else { continue };
            let (sum, longest) = queue.in_flight();
            // A controller that is being restarted may have two queues of one name for a moment.
            watched.unfinished.add(sum.as_secs_f64());
            watched.longest.set(watched.longest.get().max(longest.as_secs_f64()));
            asked.push(queue);
        }
    }
}

struct RunningCollector(Arc<Running>);

impl Collector for RunningCollector {
    fn desc(&self) -> Vec<&Desc> {
        [self.0.unfinished.desc(), self.0.longest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.refresh();
        [self.0.unfinished.collect(), self.0.longest.collect()].concat()
    }
}
