//! The task behind a recorder: writes its events one after the other.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::broadcaster::Outcomes;
use super::correlator::{Correlator, Entry};
use super::lanes::Lanes;
use super::queue::EventReceiver;
use super::sink::EventSink;
use crate::client::ApiError;
use crate::model::plan::EventSpec;

/// How often an event is tried.
pub(super) const MAX_TRIES: u32 = 12;
/// The pause between two tries. The first is a random part of it, lest many controllers that lost the same server come
/// back at once.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// The shortest and the longest wait for an answer with `Retry-After`, and how often such an event is tried.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);
pub(super) const MAX_WAITS: u32 = 10;
/// An event and when it happened.
pub(super) type Emitted = (EventSpec, Timestamp);

pub(super) struct Writer {
    pub(super) delivery: Arc<Delivery>,
    pub(super) correlator: Correlator,
    /// Events that the API server refused with `Retry-After`.
    pub(super) lanes: Lanes,
    /// Stop at once.
    pub(super) abort: CancellationToken,
}

/// How an event reaches the API server.
pub(super) struct Delivery {
    pub(super) component: Arc<str>,
    pub(super) sink: Arc<dyn EventSink>,
    pub(super) outcomes: Outcomes,
    /// Whether an answer of a failing server is no answer: nothing else waits for this delivery.
    pub(super) is_patient: bool,
    /// Nothing more comes: what waits is tried once each.
    pub(super) closing: CancellationToken,
}

/// Attempts and waits of one event. Their bounds apply to the whole life of the event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    tries: u32,
    waits: u32,
}

/// What a failure means for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is there.
    Written,
    /// The server does not want it.
    Refused,
    /// Nobody has answered.
    Retry,
    /// The server is overloaded and said when to come back.
    Wait(Duration),
}

impl Writer {
    /// Writes events until no recorder is left, or until it is told to end.
    pub(super) async fn run(mut self, mut emitted: EventReceiver) {
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
            let Some((spec, at)) = next else { break };
            let Some(entry) = self.correlator.take(spec, at) else {
                self.delivery.outcomes.filtered.inc();
                continue;
            };
            let Some(entry) = self.lanes.join(entry) else { continue };
            tokio::select! {
                biased;
                () = abort.cancelled() => {
                    self.delivery.outcomes.dropped.inc();
                    break;
                }
                () = self.write(entry) => {}
            }
        }
        emitted.close();
        self.delivery.outcomes.dropped.inc_by(emitted.clear() as u64);
        self.lanes.end().await;
    }

    /// Writes an event or moves it to a lane. With [`MAX_LANES`](super::lanes::MAX_LANES) lanes the writer waits itself.
    async fn write(&self, entry: Entry) {
        let mut patience = Patience::default();
        let Err(wait) = self.delivery.attempt(&entry, &mut patience).await else { return };
        if let Some((entry, patience)) = self.lanes.open(entry, patience, wait) {
            self.delivery.write_after(wait, &entry, patience).await;
        }
    }
}

impl Delivery {
    /// Writes one event, as often as the server says when to come back. Returns when it is written, refused or given up.
    pub(super) async fn write(&self, entry: &Entry) {
        let mut patience = Patience::default();
        if let Err(wait) = self.attempt(entry, &mut patience).await {
            self.write_after(wait, entry, patience).await;
        }
    }

    /// Retries one event after `wait`, and after each further `Retry-After` up to [`MAX_WAITS`] waits.
    pub(super) async fn write_after(&self, wait: Duration, entry: &Entry, mut patience: Patience) {
        let mut wait = wait;
        while patience.waits < MAX_WAITS {
            patience.waits += 1;
            self.pause(wait).await;
            match self.attempt(entry, &mut patience).await {
                Err(again) if !self.closing.is_cancelled() => wait = again,
                Err(_) => break,
                Ok(()) => return,
            }
        }
        self.outcomes.refused.inc();
        tracing::warn!(component = %self.component, event = %entry.key(), "Dropped an event because the API server is overloaded");
    }

    /// Writes one event. It holds the others up as long as nobody answers: they would fare no better. An answer is final, as it is for
    /// kube-controller-manager: a webhook that refuses the events of one namespace must not stop those of the others. An answer of
    /// an overloaded server, with `Retry-After`, returns the wait; the caller decides who waits.
    ///
    /// # Errors
    /// The wait before the next try, [`LONGEST_WAIT`] at most.
    pub(super) async fn attempt(&self, entry: &Entry, patience: &mut Patience) -> Result<(), Duration> {
        let key = entry.key();
        loop {
            patience.tries += 1;
            let tries = patience.tries;
            let Err(error) = self.send(entry).await else { return Ok(()) };
            match self.verdict(&error) {
                Verdict::Written => {
                    self.outcomes.created.inc();
                    return Ok(());
                }
                Verdict::Wait(wait) => return Err(wait),
                Verdict::Refused => {
                    self.outcomes.refused.inc();
                    if error.has_cause("NamespaceTerminating") {
                        tracing::debug!(component = %self.component, event = %key, %error, "Dropped an event in a terminating namespace");
                    } else {
                        tracing::warn!(component = %self.component, event = %key, %error, "The API server rejected an event");
                    }
                    return Ok(());
                }
                Verdict::Retry if tries >= MAX_TRIES || self.closing.is_cancelled() => {
                    self.outcomes.failed.inc();
                    tracing::warn!(component = %self.component, event = %key, tries, %error, "Failed to write an event; giving up");
                    return Ok(());
                }
                Verdict::Retry => {
                    tracing::debug!(component = %self.component, event = %key, tries, %error, "Failed to write an event; retrying");
                }
            }
            let pause = if tries == 1 { PAUSE.mul_f64(crate::random::fraction()) } else { PAUSE };
            self.pause(pause).await;
        }
    }

    /// Waits, but not beyond the end of the broadcaster.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = self.closing.cancelled() => {}
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

    fn verdict(&self, error: &ApiError) -> Verdict {
        match verdict(error) {
            Verdict::Refused if self.is_patient && matches!(error.code(), 429 | 500..) => Verdict::Retry,
            verdict => verdict,
        }
    }
}

fn verdict(error: &ApiError) -> Verdict {
    // An earlier try got through although its answer did not.
    if error.is_already_exists() {
        return Verdict::Written;
    }
    if let Some(wait) = error.retry_after().filter(|_| matches!(error.code(), 429 | 500..)) {
        return Verdict::Wait(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT));
    }
    match error {
        // A `Malformed` answer will not be better the next time, and the write was probably carried out.
        ApiError::Refused { .. }
        | ApiError::Malformed { .. }
        | ApiError::TooLong { .. }
        | ApiError::Unaddressable { .. } => Verdict::Refused,
        ApiError::Transport { .. } | ApiError::Timeout { .. } => Verdict::Retry,
    }
}
