//! `coxswain_runtime_*`: what the asynchronous runtimes hold and how busy they are, read when it is asked for; and how
//! late they are, which a task in each of them finds out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Histogram, HistogramVec, IntGaugeVec, Opts};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::metrics::{MetricsError, Registrar};
use super::registry::Registry;

/// The metrics of the process' runtimes. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeMetrics(Arc<Inner>);

struct Inner {
    runtimes: Mutex<Vec<(&'static str, Handle)>>,
    probes: Mutex<JoinSet<()>>,
    workers: IntGaugeVec,
    tasks: IntGaugeVec,
    queued: IntGaugeVec,
    busy: CounterVec,
    lateness: HistogramVec,
}

/// How often it is looked how late a runtime is: a task that holds its only worker for longer than this is always seen.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Timers go by milliseconds, so that less is none.
const LATENESS_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

impl RuntimeMetrics {
    /// Registers the metrics; of no runtime yet.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauges = |name: &str, help: &str| {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &["runtime"]);
            gauges.map_err(|error| MetricsError::new(name, error))
        };
        let busy = "coxswain_runtime_busy_seconds_total";
        let opts = Opts::new(busy, "Total busy time of all worker threads of a runtime in seconds.");
        let registrar = Registrar::new(registry);
        let lateness = registrar.histograms(
            "coxswain_runtime_lateness_seconds",
            "Delay between the due time of a probe task and its execution in seconds, measured 4 times per second.",
            &["runtime"],
            LATENESS_BUCKETS.to_vec(),
        )?;
        let metrics = Self(Arc::new(Inner {
            runtimes: Mutex::default(),
            probes: Mutex::default(),
            workers: gauges("coxswain_runtime_workers", "Number of worker threads of a runtime.")?,
            tasks: gauges("coxswain_runtime_alive_tasks", "Number of unfinished tasks of a runtime.")?,
            queued: gauges(
                "coxswain_runtime_global_queue_depth",
                "Number of ready tasks that wait for a worker thread of a runtime.",
            )?,
            busy: CounterVec::new(opts, &["runtime"]).map_err(|error| MetricsError::new(busy, error))?,
            lateness,
        }));
        registrar.collector("coxswain_runtime_*", Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    /// Shows a runtime too, by this name. A task is spawned on it.
    pub fn watch(&self, name: &'static str, runtime: Handle) {
        self.0.probes.lock().spawn_on(probe(self.0.lateness.with_label_values(&[name])), &runtime);
        self.0.runtimes.lock().push((name, runtime));
    }
}

/// Sleeps and looks how late it wakes up, for ever.
async fn probe(lateness: Histogram) {
    loop {
        let due = Instant::now() + PROBE_EVERY;
        sleep_until(due).await;
        lateness.observe(due.elapsed().as_secs_f64());
    }
}

impl fmt::Debug for RuntimeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.runtimes.lock().iter().map(|(name, _)| *name).collect();
        f.debug_tuple("RuntimeMetrics").field(&names).finish()
    }
}

impl Inner {
    fn collectors(&self) -> [&dyn Collector; 4] {
        [&self.workers, &self.tasks, &self.queued, &self.busy]
    }
}

impl Collector for RuntimeMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.collectors().iter().flat_map(|each| each.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let inner = &self.0;
        let runtimes = inner.runtimes.lock();
        inner.busy.reset();
        for (name, runtime) in runtimes.iter() {
            let (labels, metrics) = (&[*name], runtime.metrics());
            inner.workers.with_label_values(labels).set(metrics.num_workers() as i64);
            inner.tasks.with_label_values(labels).set(metrics.num_alive_tasks() as i64);
            inner.queued.with_label_values(labels).set(metrics.global_queue_depth() as i64);
            let busy = (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker));
            inner.busy.with_label_values(labels).inc_by(busy.map(|busy| busy.as_secs_f64()).sum());
        }
        inner.collectors().iter().flat_map(|each| each.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::telemetry::encode_text;

    #[tokio::test]
    async fn tasks_are_counted_while_they_live() {
        let registry = Registry::new();
        RuntimeMetrics::register(&registry).unwrap().watch("test", Handle::current());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { drop(ended.await) });
        let page = || encode_text(&registry);
        assert!(page().contains("coxswain_runtime_alive_tasks{runtime=\"test\"} 2\n"), "{}", page());
        assert!(page().contains("coxswain_runtime_workers{runtime=\"test\"} 1\n"), "{}", page());
        drop(end);
        tasks.join_all().await;
        assert!(page().contains("coxswain_runtime_alive_tasks{runtime=\"test\"} 1\n"), "{}", page());
        assert!(page().contains("coxswain_runtime_busy_seconds_total{runtime=\"test\"} "), "{}", page());
    }
    #[tokio::test(start_paused = true)]
    async fn a_task_that_holds_the_worker_makes_the_runtime_late() {
        let registry = Registry::new();
        let metrics = RuntimeMetrics::register(&registry).unwrap();
        metrics.watch("test", Handle::current());
        let lateness = metrics.0.lateness.with_label_values(&["test"]);
        sleep(PROBE_EVERY * 4).await;
        assert!(lateness.get_sample_count() >= 3 && lateness.get_sample_sum() < 0.1);
        // As if this task had computed for three seconds: nothing else is polled meanwhile.
        advance(Duration::from_secs(3)).await;
        sleep(PROBE_EVERY).await;
        let late = lateness.get_sample_sum();
        assert!((2.7..=3.0).contains(&late), "{late}");
    }
}
