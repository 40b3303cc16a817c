//! What a loop remembers of its reconciles, for people who ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::worker::Outcome;
use crate::model::Key;
use crate::model::clock::SharedClock;

/// Counts of one loop.
pub struct LoopStats {
    clock: SharedClock,
    syncs: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

/// The last reconcile that failed.
#[derive(Clone, Debug)]
pub struct LastError {
    /// The object.
    pub key: Key,
    /// What went wrong.
    pub error: String,
    /// When.
    pub at: Timestamp,
}

impl LoopStats {
    /// Empty counts.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, syncs: AtomicU64::new(0), errors: AtomicU64::new(0), last_error: Mutex::default() }
    }

    pub(super) fn record(&self, key: &Key, outcome: &Outcome, _took: Duration) {
        match outcome {
            Outcome::Done { .. } => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Waiting(_) => {}
            Outcome::Failed { error, .. } => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                self.errors.fetch_add(1, Ordering::Relaxed);
                *self.last_error.lock() =
                    Some(LastError { key: key.clone(), error: error.clone(), at: self.clock.now() });
            }
        }
    }

    /// Reconciles that ran, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Reconciles that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The last failure.
    pub fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }
}
