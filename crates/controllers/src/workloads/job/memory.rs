//! What the room remembers between reconciles: how often pods have failed lately. It hears of what was written, too, and has
//! the metrics count it. Decides nothing.

use std::sync::Arc;

use super::backoff::{Backoffs, Record};
use super::metrics::Metrics;
use super::note::Note;
use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Uid;

/// See the module.
#[derive(Debug)]
pub(super) struct Remembered {
    backoffs: Backoffs,
    metrics: Arc<Metrics>,
}

impl Remembered {
    /// Nothing yet.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { backoffs: Backoffs::default(), metrics }
    }

    /// How often pods of a Job have failed lately.
    pub(super) fn backoff(&self, key: &Key, job: &Uid) -> Record {
        self.backoffs.of(key, job)
    }
}

impl Memory<Note> for Remembered {
    fn commit(&self, _: &Key, _: Note) {}

    fn commit_item(&self, key: &Key, note: &Note, item: usize) {
        let Some(progress) = note.items.get(item) else { return };
        self.metrics.progress(note.is_indexed, progress);
        if let Some(record) = progress.backoff {
            self.backoffs.set(key, &note.job, record);
        }
        if progress.end.is_some() {
            self.backoffs.forget(key);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if *ended.outcome == Outcome::Absent {
            self.backoffs.forget(key);
        }
    }
}
