//! Who waits, who is due, and who was deleted for which rules: no object tells that. Decides nothing.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Uid;

/// So many deleted pods are remembered, as in the original.
const MOST_EVICTED: usize = 500;

/// A pod that has to go, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) uid: Uid,
    /// Its time is over: it is looked at live.
    pub(super) is_due: bool,
}

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// What is remembered of the pod from here on.
    pub(super) next: Option<Entry>,
    /// The pod is deleted, or was found to be.
    pub(super) eviction: Option<Eviction>,
}

/// A pod that is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) uid: Uid,
    /// The rules among the reasons.
    pub(super) rules: Vec<Uid>,
    /// For how long it has been due.
    pub(super) overdue: Duration,
    /// Somebody else had deleted it.
    pub(super) is_found: bool,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: Mutex<HashMap<Key, Entry>>,
    evicted: Mutex<Evicted>,
}

#[derive(Debug, Default)]
struct Evicted {
    /// The last pods that were deleted, in order.
    pods: VecDeque<Uid>,
    /// How many were for each rule.
    by_rule: HashMap<Uid, u64>,
}

impl Timers {
    /// What is remembered of a pod of this name.
    pub(super) fn entry(&self, key: &Key) -> Option<Entry> {
        self.entries.lock().get(key).cloned()
    }

    /// Whether a pod was deleted not long ago.
    pub(super) fn is_evicted(&self, pod: &Uid) -> bool {
        self.evicted.lock().pods.contains(pod)
    }

    /// How many pods were deleted for a rule.
    pub(super) fn evicted_for(&self, rule: &Uid) -> u64 {
        self.evicted.lock().by_rule.get(rule).copied().unwrap_or(0)
    }

    /// A rule is gone: what was deleted for it counts no more.
    pub(super) fn forget_rule(&self, rule: &Uid) {
        self.evicted.lock().by_rule.remove(rule);
    }
}

impl Memory<Note> for Timers {
    fn commit(&self, key: &Key, note: Note) {
        if let Some(eviction) = note.eviction {
            let mut evicted = self.evicted.lock();
            if !evicted.pods.contains(&eviction.uid) {
                for rule in eviction.rules {
                    *evicted.by_rule.entry(rule).or_default() += 1;
                }
                evicted.pods.push_back(eviction.uid);
                if evicted.pods.len() > MOST_EVICTED {
                    evicted.pods.pop_front();
                }
            }
        }
        let mut entries = self.entries.lock();
        match note.next {
            Some(entry) => drop(entries.insert(key.clone(), entry)),
            None => drop(entries.remove(key)),
        }
    }
}
