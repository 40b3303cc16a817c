//! [`EventBroadcaster`], which owns the tasks, and [`Recorder`], which controllers hold.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{IntCounter, IntCounterVec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::correlator::Correlator;
use super::journal::Journal;
use super::lanes::Lanes;
use super::queue::{EventSender, event_queue};
use super::sink::EventSink;
use super::writer::{Delivery, Writer};
use crate::client::ApiClient;
use crate::model::clock::SharedClock;
use crate::model::plan::EventSpec;
use crate::telemetry::Registry;
use crate::telemetry::{MetricsError, Registrar};

/// Events of one recorder that may wait to be written.
pub(super) const QUEUE: usize = 1000;

/// What became of events, by component. Not among the original's metrics.
#[derive(Clone, Debug)]
pub struct EventMetrics(IntCounterVec);

impl EventMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let total = Registrar::new(registry).counters(
            "coxswain_events_total",
            "Events, by result: created, repeated (count of an earlier event increased), filtered (rate limit of \
             the object), dropped (queue full or closed), refused (by the API server) or failed (after all retries).",
            &["component", "outcome"],
        )?;
        Ok(Self(total))
    }

    fn outcomes(&self, component: &str) -> Outcomes {
        let outcome = |outcome| self.0.with_label_values(&[component, outcome]);
        Outcomes {
            created: outcome("created"),
            repeated: outcome("repeated"),
            filtered: outcome("filtered"),
            dropped: outcome("dropped"),
            refused: outcome("refused"),
            failed: outcome("failed"),
        }
    }
}

/// The counters of one component.
#[derive(Clone, Debug)]
pub(super) struct Outcomes {
    pub(super) created: IntCounter,
    pub(super) repeated: IntCounter,
    pub(super) filtered: IntCounter,
    pub(super) dropped: IntCounter,
    pub(super) refused: IntCounter,
    pub(super) failed: IntCounter,
}

/// Makes recorders and owns the tasks that write their events.
pub struct EventBroadcaster {
    clock: SharedClock,
    metrics: EventMetrics,
    tasks: TaskTracker,
    closing: CancellationToken,
    abort: CancellationToken,
}

impl std::fmt::Debug for EventBroadcaster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventBroadcaster").field("recorders", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl EventBroadcaster {
    /// A broadcaster whose events carry the times of `clock`.
    pub fn new(clock: SharedClock, metrics: EventMetrics) -> Self {
        Self {
            clock,
            metrics,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        }
    }

    /// A recorder whose events name `component` as their source and are written by `client`. To be called inside a
    /// runtime: starts a task, which ends when it is idle and the last clone of the recorder is gone.
    pub fn recorder(&self, component: &str, client: ApiClient) -> Recorder {
        // Its writer waits by itself.
        self.recorder_to(component, Arc::new(client.impatient()))
    }

    /// A recorder whose events are written to `sink`.
    pub fn recorder_to(&self, component: &str, sink: Arc<dyn EventSink>) -> Recorder {
        let (sender, receiver) = event_queue(QUEUE);
        let outcomes = self.metrics.outcomes(component);
        let component: Arc<str> = component.into();
        let delivery = Arc::new(Delivery {
            component: Arc::clone(&component),
            sink,
            outcomes: outcomes.clone(),
            is_patient: false,
            closing: self.closing.clone(),
        });
        let correlator = Correlator::new(component.as_ref().into());
        let lanes = Lanes::new(Arc::clone(&delivery), self.abort.clone());
        let writer = Writer { delivery, correlator, lanes, abort: self.abort.clone() };
        self.tasks.spawn(writer.run(receiver));
        Recorder { component, clock: Arc::clone(&self.clock), sender, outcomes }
    }

    /// A journal whose events name `component` as their source and are written by `client`.
    pub fn journal(&self, component: &str, client: ApiClient) -> Journal {
        self.journal_to(component, Arc::new(client.impatient()))
    }

    /// A journal whose events are written to `sink`.
    pub fn journal_to(&self, component: &str, sink: Arc<dyn EventSink>) -> Journal {
        let delivery = Delivery {
            component: component.into(),
            sink,
            outcomes: self.metrics.outcomes(component),
            is_patient: true,
            closing: self.closing.clone(),
        };
        Journal::new(delivery, Arc::clone(&self.clock))
    }

    /// Takes no more events and writes those that wait, each tried once; after `grace` it drops the rest. Says whether
    /// none had to be dropped for lack of time. All tasks have ended when it returns.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_ok() {
            return true;
        }
        tracing::warn!(?grace, "Timed out writing events; dropping the rest");
        self.abort.cancel();
        self.tasks.wait().await;
        false
    }
}

/// Emits events as one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    clock: SharedClock,
    sender: EventSender,
    outcomes: Outcomes,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("component", &self.component).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Logs the event and hands it over to be written. Never waits; in a full queue the namespace with most events loses its newest one,
    /// which is counted.
    pub fn emit(&self, event: EventSpec) {
        let at: Timestamp = self.clock.now();
        log(&self.component, &event);
        if self.sender.send((event, at)) {
            self.outcomes.dropped.inc();
        }
    }
}

/// Logs an event.
pub(super) fn log(component: &str, event: &EventSpec) {
    tracing::info!(
        %component,
        kind = event.regarding.kind.kind,
        object = %event.regarding.key,
        r#type = if event.warning { "Warning" } else { "Normal" },
        reason = event.reason,
        note = %event.message,
        "Event occurred"
    );
}

impl crate::executor::Events for Recorder {
    fn emit(&self, event: EventSpec) {
        Self::emit(self, event);
    }
}
