//! What takes the spans that have ended: a queue of fixed size, in front of a task that sends them.
//!
//! The side that ends spans never waits: where the queue is full the span is dropped, and counted. The sending side has
//! one batch in hand, for no longer than the timeout.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use prometheus::IntCounter;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::settings::Batching;

/// What became of spans.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) exported: IntCounter,
    pub(super) dropped: IntCounter,
}

/// The queue's end at which spans go in.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) spans: Sender<SpanData>,
    pub(super) counts: Counts,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.inc();
        }
    }

    /// The task sends by itself.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// The task is ended by who began it.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task that sends spans.
pub(super) struct Sending<E> {
    spans: Receiver<SpanData>,
    exporter: E,
    batching: Batching,
    timeout: Duration,
    counts: Counts,
    /// Asks it to send what is left, and to end.
    closing: CancellationToken,
    /// What is to be sent next.
    batch: Vec<SpanData>,
    /// Whether the last batch was not taken, so that a collector that is away is told of once.
    failing: bool,
}

impl<E: SpanExporter> Sending<E> {
    pub(super) fn new(
        spans: Receiver<SpanData>,
        exporter: E,
        (batching, timeout): (Batching, Duration),
        counts: Counts,
        closing: CancellationToken,
    ) -> Self {
        Self { spans, exporter, batching, timeout, counts, closing, batch: Vec::new(), failing: false }
    }

    /// Sends until it is asked to end, then what is left.
    pub(super) async fn run(mut self) {
        let closing = self.closing.clone();
        while closing.run_until_cancelled(self.fill()).await == Some(true) {
            self.send().await;
        }
        self.spans.close();
        loop {
            let room = self.batching.batch.saturating_sub(self.batch.len());
            if room > 0 {
                self.spans.recv_many(&mut self.batch, room).await;
            }
            if self.batch.is_empty() {
                return;
            }
            self.send().await;
        }
    }

    /// Waits until there is a batch: until it is full, or its first span has waited for long enough. `false`: there will be
    /// none any more. Cancelling it loses nothing.
    async fn fill(&mut self) -> bool {
        if self.spans.recv_many(&mut self.batch, self.batching.batch).await == 0 {
            return false;
        }
        let until = Instant::now() + self.batching.delay;
        while self.batch.len() < self.batching.batch {
            let room = self.batching.batch - self.batch.len();
            match timeout_at(until, self.spans.recv_many(&mut self.batch, room)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        true
    }

    async fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let count = batch.len() as u64;
        let problem = match timeout(self.timeout, self.exporter.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("timed out after {:?}", self.timeout)),
        };
        match problem {
            None => {
                self.counts.exported.inc_by(count);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("Trace export recovered");
                }
            }
            Some(error) => {
                self.counts.dropped.inc_by(count);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "Trace export failed; dropping spans until it recovers");
                }
            }
        }
    }
}
