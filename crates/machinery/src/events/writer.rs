//! The task behind a recorder: writes its events one after the other.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::broadcaster::Outcomes;
use super::correlator::{Correlator, Entry};
use super::sink::EventSink;
use crate::client::ApiError;
use crate::model::plan::EventSpec;

/// How often an event is tried.
pub(super) const MAX_TRIES: u32 = 12;
/// The pause between two tries. The first is a random part of it, lest many controllers that lost the same server come
/// back at once.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// An event and when it happened.
pub(super) type Emitted = (EventSpec, Timestamp);

pub(super) struct Writer {
    pub(super) delivery: Delivery,
    pub(super) correlator: Correlator,
    /// Stop at once.
    pub(super) abort: CancellationToken,
}

/// How an event reaches the API server.
pub(super) struct Delivery {
    pub(super) component: Arc<str>,
    pub(super) sink: Arc<dyn EventSink>,
    pub(super) outcomes: Outcomes,
    /// Nothing more comes: what waits is tried once each.
    pub(super) closing: CancellationToken,
}

/// What a failure means for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is there.
    Written,
    /// The server does not want it.
    Refused,
    /// It may be written in a while.
    Retry,
}

impl Writer {
    /// Writes events until no recorder is left, or until it is told to end.
    pub(super) async fn run(mut self, mut emitted: mpsc::Receiver<Emitted>) {
        let (closing, abort) = (self.delivery.closing.clone(), self.abort.clone());
        let mut open = true;
        loop {
            let next = tokio::select! {
                biased;
                () = abort.cancelled() => break,
                () = closing.cancelled(), if open => {
                    open = false;
                    emitted.close();
                    continue;
                }
                next = emitted.recv() => next,
            };
            let Some((spec, at)) = next else { return };
            let Some(entry) = self.correlator.take(spec, at) else {
                self.delivery.outcomes.filtered.inc();
                continue;
            };
            tokio::select! {
                biased;
                () = abort.cancelled() => {
                    self.delivery.outcomes.dropped.inc();
                    break;
                }
                () = self.delivery.write(&entry) => {}
            }
        }
        emitted.close();
        while emitted.try_recv().is_ok() {
            self.delivery.outcomes.dropped.inc();
        }
    }
}

impl Delivery {
    /// Writes one event. It holds the others up as long as nobody answers: they would fare no better. An answer is final, as it is for
    /// kube-controller-manager: a webhook that refuses the events of one namespace must not stop those of the others.
    pub(super) async fn write(&self, entry: &Entry) {
        let key = entry.key();
        for tries in 1..=MAX_TRIES {
            let Err(error) = self.send(entry).await else { return };
            match verdict(&error) {
                Verdict::Written => {
                    self.outcomes.created.inc();
                    return;
                }
                Verdict::Refused => {
                    self.outcomes.refused.inc();
                    if error.has_cause("NamespaceTerminating") {
                        tracing::debug!(component = %self.component, event = %key, %error, "no event in a namespace that ends");
                    } else {
                        tracing::warn!(component = %self.component, event = %key, %error, "the server refused an event");
                    }
                    return;
                }
                Verdict::Retry if tries == MAX_TRIES || self.closing.is_cancelled() => {
                    self.outcomes.failed.inc();
                    tracing::warn!(component = %self.component, event = %key, tries, %error, "an event could not be written");
                    return;
                }
                Verdict::Retry => {
                    tracing::debug!(component = %self.component, event = %key, tries, %error, "an event will be tried again");
                }
            }
            let pause = if tries == 1 { PAUSE.mul_f64(crate::random::fraction()) } else { PAUSE };
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                () = self.closing.cancelled() => {}
            }
        }
    }

    /// Tries once.
    async fn send(&self, entry: &Entry) -> Result<(), ApiError> {
        if let Some(patch) = &entry.patch {
            match self.sink.patch(&entry.key(), patch).await {
                // Events live for an hour by default: the one to be counted up may be gone, or was never written.
                Err(error) if error.is_not_found() => {}
                result => {
                    return result.inspect(|()| self.outcomes.repeated.inc());
                }
            }
        }
        self.sink.create(&entry.event).await.inspect(|()| self.outcomes.created.inc())
    }
}

fn verdict(error: &ApiError) -> Verdict {
    match error {
        // An earlier try got through although its answer did not.
        _ if error.is_already_exists() => Verdict::Written,
        // A `Malformed` answer will not be better the next time, and the write was probably carried out.
        ApiError::Refused { .. }
        | ApiError::Malformed { .. }
        | ApiError::TooLong { .. }
        | ApiError::Unaddressable { .. } => Verdict::Refused,
        ApiError::Transport { .. } | ApiError::Timeout { .. } => Verdict::Retry,
    }
}
