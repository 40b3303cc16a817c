//! Metrics pushed by OTLP: what `/metrics` shows, sent to an OpenTelemetry collector again and again.
//!
//! One task gathers the registry, sends what it finds, and waits. Nothing is kept between two pushes, so that a collector
//! which is away costs nothing but the pushes that fail, each bounded in time; as all sums are cumulative, the next one
//! that is taken makes up for those that were not.

mod convert;
mod send;
pub mod settings;

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::IntCounter;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::tracing::{Process, TracingError, attributes};
use super::{Registrar, Registry};
use crate::model::clock::SharedClock;
use send::Sender;
pub use settings::PushSettings;

/// Pushing at work.
#[derive(Debug)]
pub struct Pushing {
    task: JoinHandle<()>,
    closing: CancellationToken,
}

/// What becomes of pushes.
#[derive(Clone, Debug)]
struct Counts {
    taken: IntCounter,
    failed: IntCounter,
}

/// The task that pushes.
struct Push {
    registry: Registry,
    sender: Sender,
    resource: Resource,
    clock: SharedClock,
    started: Timestamp,
    interval: Duration,
    timeout: Duration,
    counts: Counts,
    closing: CancellationToken,
    /// Whether the last push was not taken, so that a collector that is away is told of once.
    failing: bool,
}

impl Pushing {
    /// Begins to push the metrics of `registry`, on threads of `runtime`. `started` is when the process did, and all that
    /// it counts began.
    ///
    /// # Errors
    /// The collector's certificate is unfit, or a metric is registered already.
    pub fn start(
        settings: &PushSettings,
        (process, started): (Process<'_>, Timestamp),
        registry: &Registry,
        clock: SharedClock,
        runtime: &Handle,
    ) -> Result<Self, TracingError> {
        let counts = register(registry)?;
        let sender = {
            let _within = runtime.enter();
            Sender::new(settings)?
        };
        let closing = CancellationToken::new();
        let attributes = attributes(settings.service_name.as_deref(), &settings.attributes, process);
        let push = Push {
            registry: registry.clone(),
            sender,
            resource: Resource { attributes: convert::attributes(attributes), ..Resource::default() },
            clock,
            started,
            interval: settings.interval,
            timeout: settings.timeout,
            counts,
            closing: closing.clone(),
            failing: false,
        };
        tracing::info!(endpoint = %settings.endpoint, protocol = ?settings.protocol, "Exporting metrics");
        Ok(Self { task: runtime.spawn(push.run()), closing })
    }

    /// Pushes a last time, for as long as `limit` at most.
    pub async fn shutdown(mut self, limit: Duration) {
        self.closing.cancel();
        match timeout(limit, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "The metrics exporter panicked"),
            Err(_) => {
                self.task.abort();
                tracing::warn!(?limit, "Timed out exporting the last metrics");
            }
        }
    }
}

fn register(registry: &Registry) -> Result<Counts, TracingError> {
    let exports = Registrar::new(registry).counters(
        "coxswain_metrics_exports_total",
        "Exports of metrics over OTLP, by result: success or failure.",
        &["result"],
    )?;
    Ok(Counts {
        taken: exports.with_label_values(&["success"]),
        failed: exports.with_label_values(&["failure"]),
    })
}

impl Push {
    /// Pushes until it is asked to end, and then once more.
    async fn run(mut self) {
        let closing = self.closing.clone();
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is at once: there is nothing to tell yet.
        ticks.tick().await;
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            self.push().await;
        }
        self.push().await;
    }

    async fn push(&mut self) {
        let times = (self.started, self.clock.now());
        let request = convert::request(&self.registry, &self.resource, times);
        let problem = match timeout(self.timeout, self.sender.send(request)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(format!("timed out after {:?}", self.timeout)),
        };
        match problem {
            None => {
                self.counts.taken.inc();
                if std::mem::take(&mut self.failing) {
                    tracing::info!("Metrics export recovered");
                }
            }
            Some(error) => {
                self.counts.failed.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "Metrics export failed");
                }
            }
        }
    }
}
