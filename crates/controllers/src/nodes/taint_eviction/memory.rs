//! Since when pods wait, and which are going: no object tells that. Times are by the process's own clock, which nobody sets.
//! Decides nothing.

use std::time::Duration;

use parking_lot::Mutex;

use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::Stopwatch;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Uid;

/// What is remembered of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The pod's UID: a successor of its name has nothing to do with it.
    pub(super) uid: Uid,
    pub(super) state: State,
}

/// How far a pod has come. Times are those of [`Timers::now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It goes then.
    Waits { until: Duration },
    /// It was said that it goes, which it was to do since then; that has failed so far.
    Goes { since: Duration },
}

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// What is remembered of the pod from here on.
    pub(super) next: Option<Entry>,
    /// For how long the pod that the plan deletes has been due.
    pub(super) overdue: Option<Duration>,
}

/// What is remembered, by pod.
#[derive(Debug)]
pub(super) struct Timers {
    clock: Stopwatch,
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Default for Timers {
    fn default() -> Self {
        Self { clock: Stopwatch::start(), entries: Mutex::default() }
    }
}

impl Timers {
    /// The time since this instance began.
    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Whether something is remembered of a pod of this name.
    pub(super) fn knows(&self, key: &Key) -> bool {
        self.entries.lock().contains_key(key)
    }

    /// What is remembered of a pod of this name.
    pub(super) fn entry(&self, key: &Key) -> Option<Entry> {
        self.entries.lock().get(key).cloned()
    }
}

impl Memory<Note> for Timers {
    fn commit(&self, key: &Key, note: Note) {
        let mut entries = self.entries.lock();
        match note.next {
            Some(entry) => drop(entries.insert(key.clone(), entry)),
            None => drop(entries.remove(key)),
        }
    }
}
