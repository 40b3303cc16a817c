//! How long failed pods are left alone, so that one that fails at once does not come and go without end. Decides nothing.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::{ExponentialBackoff, KeyBackoffs};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) failed: Vec<Place>,
    pub(super) at: Timestamp,
}

/// How often pods have failed lately, by place.
pub(super) struct FailedPods(Mutex<KeyBackoffs<Place>>);

impl Default for FailedPods {
    fn default() -> Self {
        Self(Mutex::new(KeyBackoffs::new(BACKOFF)))
    }
}

impl FailedPods {
    /// Until when a failed pod is left alone there.
    pub(super) fn until(&self, place: &Place) -> Option<Timestamp> {
        self.0.lock().until(place)
    }
}

impl Memory<Note> for FailedPods {
    fn commit(&self, _: &Key, note: Note) {
        if !note.failed.is_empty() {
            self.0.lock().sweep(note.at);
        }
    }

    fn commit_item(&self, _: &Key, note: &Note, item: usize) {
        if let Some(place) = note.failed.get(item) {
            self.0.lock().fail(place.clone(), note.at);
        }
    }
}
