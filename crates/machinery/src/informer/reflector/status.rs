//! How an informer is doing: written by its reflector, read by whoever waits for it, scrapes it or shows it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::latest;
use crate::model::Key;
use crate::random::HashMap;

/// How far an informer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::informer) enum Progress {
    /// No complete list yet.
    Syncing,
    /// Its store has been complete at least once and is kept up to date.
    Synced,
    /// It has ended; its store is what it was last.
    Stopped,
}

/// What is known of a running informer.
#[derive(Debug)]
pub(in crate::informer) struct Status {
    progress: latest::Sender<Progress>,
    begun: Instant,
    record: Mutex<Record>,
}

/// The changing facts.
#[derive(Debug, Default)]
pub(in crate::informer) struct Record {
    /// When the present watch was opened.
    pub(in crate::informer) open_since: Option<Instant>,
    /// Since when no request has succeeded.
    pub(in crate::informer) failing_since: Option<Instant>,
    /// Complete lists, by whichever way.
    pub(in crate::informer) lists: u64,
    /// Watches opened.
    pub(in crate::informer) watches: u64,
    /// Panics of the informer's task.
    pub(in crate::informer) restarts: u64,
    /// What went wrong last.
    pub(in crate::informer) last_error: Option<String>,
    /// Objects received for a list that is not complete.
    pub(in crate::informer) collecting: usize,
    /// Objects whose newest state can't be decoded, and why.
    pub(in crate::informer) unreadable: HashMap<Key, String>,
}

impl Status {
    pub(in crate::informer) fn new() -> Self {
        Self {
            progress: latest::Sender::new(Progress::Syncing),
            begun: Instant::now(),
            record: Mutex::default(),
        }
    }

    /// For how long its store has waited to be complete for the first time; `None` once it was.
    pub(in crate::informer) fn unfilled_for(&self) -> Option<Duration> {
        (self.progress() == Progress::Syncing).then(|| self.begun.elapsed())
    }

    /// Returns what `read` takes from the facts as they are now. They are not copied: there may be many unreadable objects, and health pages
    /// ask at every probe. `read` must take no other lock.
    pub(in crate::informer) fn facts<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        read(&self.record.lock())
    }

    pub(in crate::informer) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    pub(in crate::informer) fn subscribe(&self) -> latest::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn opened(&self) {
        let mut record = self.record.lock();
        record.open_since = Some(Instant::now());
        record.failing_since = None;
        record.watches += 1;
    }

    pub(super) fn ended(&self) {
        self.record.lock().open_since = None;
    }

    pub(super) fn failed(&self, error: String) {
        let mut record = self.record.lock();
        record.open_since = None;
        record.failing_since.get_or_insert_with(Instant::now);
        record.last_error = Some(error);
    }

    pub(super) fn collecting(&self, objects: usize) {
        self.record.lock().collecting = objects;
    }

    pub(super) fn committed(&self, unreadable: HashMap<Key, String>) {
        let mut record = self.record.lock();
        record.lists += 1;
        record.collecting = 0;
        record.unreadable = unreadable;
        drop(record);
        self.progress.send_replace(Progress::Synced);
    }

    pub(super) fn unreadable(&self, key: Key, error: String) {
        self.record.lock().unreadable.insert(key, error);
    }

    /// Whether this was the last state of the object, for the same reason.
    pub(super) fn is_unreadable(&self, key: &Key, error: &str) -> bool {
        self.record.lock().unreadable.get(key).is_some_and(|held| held == error)
    }

    pub(super) fn readable(&self, key: &Key) {
        self.record.lock().unreadable.remove(key);
    }

    pub(in crate::informer) fn restarted(&self, panic: &str) {
        let mut record = self.record.lock();
        record.open_since = None;
        record.restarts += 1;
        record.collecting = 0;
        record.last_error = Some(format!("the informer panicked: {panic}"));
    }

    pub(in crate::informer) fn stopped(&self) {
        self.record.lock().open_since = None;
        self.progress.send_replace(Progress::Stopped);
    }
}

impl Record {
    /// For how long nothing has succeeded.
    pub(in crate::informer) fn failing_for(&self) -> Option<Duration> {
        self.failing_since.map(|since| since.elapsed())
    }
}
