//! What a loop remembers of its reconciles, for people who ask.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::worker::Outcome;
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::random::HashMap;

/// Failing keys whose last error is kept; more are only counted when their turn comes.
const MAX_FAILING: usize = 1000;

/// Counts of one loop.
pub struct LoopStats {
    clock: SharedClock,
    syncs: AtomicU64,
    errors: AtomicU64,
    /// As many as `failing` holds, so that success costs no lock where nothing fails.
    failing_keys: AtomicUsize,
    failing: Mutex<HashMap<Key, KeyFailure>>,
    last_error: Mutex<Option<KeyFailure>>,
    /// As many as `panicked` holds.
    panicked_keys: AtomicUsize,
    /// What the last panic over each key said that has not been reconciled since.
    panicked: Mutex<BTreeMap<Key, String>>,
}

/// The last reconcile of a key, which failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFailure {
    /// The object.
    pub key: Key,
    /// What went wrong.
    pub error: String,
    /// When.
    pub at: Timestamp,
    /// Failures in a row.
    pub attempts: u32,
}

impl LoopStats {
    /// Empty counts.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            syncs: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            failing_keys: AtomicUsize::new(0),
            failing: Mutex::default(),
            last_error: Mutex::default(),
            panicked_keys: AtomicUsize::new(0),
            panicked: Mutex::default(),
        }
    }

    /// Reconciling a key has panicked.
    pub(super) fn panicked(&self, key: &Key, message: &str) {
        let mut panicked = self.panicked.lock();
        if panicked.len() < MAX_FAILING || panicked.contains_key(key) {
            panicked.insert(key.clone(), message.to_owned());
        }
        self.panicked_keys.store(panicked.len(), Ordering::Relaxed);
    }

    pub(super) fn record(&self, key: &Key, outcome: &Outcome, attempt: u32) {
        match outcome {
            Outcome::Done { .. } | Outcome::Absent => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                if self.failing_keys.load(Ordering::Relaxed) > 0 {
                    let mut failing = self.failing.lock();
                    failing.remove(key);
                    self.failing_keys.store(failing.len(), Ordering::Relaxed);
                }
                if self.panicked_keys.load(Ordering::Relaxed) > 0 {
                    let mut panicked = self.panicked.lock();
                    panicked.remove(key);
                    self.panicked_keys.store(panicked.len(), Ordering::Relaxed);
                }
            }
            Outcome::Waiting(_) => {}
            Outcome::Failed { quiet: true, .. } => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Failed { error, .. } => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                self.errors.fetch_add(1, Ordering::Relaxed);
                let failure = KeyFailure {
                    key: key.clone(),
                    error: error.clone(),
                    at: self.clock.now(),
                    attempts: attempt,
                };
                *self.last_error.lock() = Some(failure.clone());
                let mut failing = self.failing.lock();
                if failing.len() < MAX_FAILING || failing.contains_key(key) {
                    failing.insert(key.clone(), failure);
                }
                self.failing_keys.store(failing.len(), Ordering::Relaxed);
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
    pub fn last_error(&self) -> Option<KeyFailure> {
        self.last_error.lock().clone()
    }

    /// How many keys failed when they were last reconciled; at most a thousand are remembered.
    pub fn failing_keys(&self) -> usize {
        self.failing_keys.load(Ordering::Relaxed)
    }

    /// The first of the keys on which reconciling has panicked and not succeeded since, what it said, and how many they are.
    pub fn first_panicked(&self) -> Option<(Key, String, usize)> {
        let panicked = self.panicked.lock();
        panicked.first_key_value().map(|(key, message)| (key.clone(), message.clone(), panicked.len()))
    }

    /// The keys that failed when they were last reconciled, at most `limit`, those with most failures first.
    pub fn failing(&self, limit: usize) -> Vec<KeyFailure> {
        let mut failing: Vec<_> = self.failing.lock().values().cloned().collect();
        failing.sort_by(|a, b| b.attempts.cmp(&a.attempts).then_with(|| a.key.cmp(&b.key)));
        failing.truncate(limit);
        failing
    }
}
