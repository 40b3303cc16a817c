//! `coxswain_runtime_*`: what the asynchronous runtime holds, read when it is asked for.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Registry};
use tokio::runtime::Handle;

use super::metrics::{MetricsError, Registrar};

/// The collector of `coxswain_runtime_*`.
#[derive(Debug)]
pub struct RuntimeMetrics {
    runtime: Handle,
    tasks: IntGauge,
}

impl RuntimeMetrics {
    /// Registers the metrics of a runtime.
    pub fn register(registry: &Registry, runtime: Handle) -> Result<(), MetricsError> {
        const TASKS: &str = "coxswain_runtime_alive_tasks";
        let tasks = IntGauge::new(TASKS, "Tasks of the asynchronous runtime that have not ended.");
        let tasks = tasks.map_err(|error| MetricsError::new(TASKS, error))?;
        Registrar::new(registry).collector(TASKS, Box::new(Self { runtime, tasks }))
    }
}

impl Collector for RuntimeMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.tasks.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.tasks.set(self.runtime.metrics().num_alive_tasks() as i64);
        self.tasks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::encode_text;

    #[tokio::test]
    async fn tasks_are_counted_while_they_live() {
        let registry = Registry::new();
        RuntimeMetrics::register(&registry, Handle::current()).unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { drop(ended.await) });
        let page = || encode_text(&registry);
        assert!(page().contains("coxswain_runtime_alive_tasks 1\n"), "{}", page());
        drop(end);
        tasks.join_all().await;
        assert!(page().contains("coxswain_runtime_alive_tasks 0\n"), "{}", page());
    }
}
