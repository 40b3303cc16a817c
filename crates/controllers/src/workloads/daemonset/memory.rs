//! How long failed pods are left alone, so that one that fails at once does not come and go without end. Decides nothing.

use std::time::Duration;

use parking_lot::Mutex;

use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::{ExponentialBackoff, KeyBackoffs};
use coxswain_machinery::model::clock::SteadyClock;
#[cfg(test)]
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::wire::{Str, Uid};

/// As in the original.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_mins(15));

/// Where a pod has failed: a DaemonSet, the generation that its status speaks of, and a node. Of a new generation the pods
/// have not failed yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) daemon_set: Uid,
    pub(super) generation: i64,
    pub(super) node: Str,
}

/// What a plan tells beside its steps: where it deletes failed pods, in the order of the items that its deletes name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) failed: Vec<Place>,
}

/// How often pods have failed lately, by place.
pub(super) struct FailedPods(Mutex<Held>);

struct Held {
    /// Measures the backoffs. The wall clock may be set while one runs.
    clock: SteadyClock,
    backoffs: KeyBackoffs<Place>,
}

impl Default for FailedPods {
    fn default() -> Self {
        Self(Mutex::new(Held { clock: SteadyClock::start(), backoffs: KeyBackoffs::new(BACKOFF) }))
    }
}

impl FailedPods {
    /// Returns the rest of the backoff of failed pods at this place; `None` if there is none.
    pub(super) fn remaining(&self, place: &Place) -> Option<Duration> {
        let held = self.0.lock();
        held.backoffs.remaining(place, held.clock.now())
    }

    /// Stops the clock at a time, for tests.
    #[cfg(test)]
    pub(super) fn stop_clock(&self, at: SteadyTime) {
        self.0.lock().clock = SteadyClock::stopped_at(at);
    }
}

impl Memory<Note> for FailedPods {
    fn commit(&self, _: &Key, note: Note) {
        if !note.failed.is_empty() {
            let mut held = self.0.lock();
            let now = held.clock.now();
            held.backoffs.sweep(now);
        }
    }

    fn commit_item(&self, _: &Key, note: &Note, item: usize) {
        if let Some(place) = note.failed.get(item) {
            let mut held = self.0.lock();
            let now = held.clock.now();
            held.backoffs.fail(place.clone(), now);
        }
    }
}
