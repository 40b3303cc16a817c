//! Which revisions mean the same as the template of their StatefulSet although their bytes differ. Found out by a live read, and
//! remembered so that it is made once. The memory also holds searches for a free name of a revision. Decides nothing.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Note;
use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::bounds::memory_size;
use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{Str, Uid};

/// How many are remembered, the latest.
const MOST: usize = 10_000;

/// A revision that means the same as a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sameness {
    /// Of this StatefulSet,
    pub(super) set: Uid,
    /// in this generation.
    pub(super) generation: i64,
    /// The revision's resource version.
    pub(super) revision: Str,
}

/// A search for a free name of a revision that the next reconcile continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// UID of the StatefulSet.
    pub(super) set: Uid,
    /// Hash of the first name for the template. Other changes, such as of the size, do not restart the search.
    pub(super) template: String,
    /// The collision count of the next name.
    pub(super) collisions: i32,
}

/// Progress of the search for a free name, for the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Search {
    #[default]
    Unchanged,
    Stopped(Stopped),
    /// The StatefulSet has its revision.
    Ended,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    answers: Mutex<Answers>,
    searches: Mutex<Searches>,
}

#[derive(Debug, Default)]
struct Searches {
    /// Searches that the next reconcile continues.
    stopped: HashMap<Key, Stopped>,
    /// Progress of the reconciles under way. They count from the start of the reconcile, so it takes effect at the end.
    under_way: HashMap<Key, Search>,
}

#[derive(Debug, Default)]
struct Answers {
    held: HashSet<Sameness>,
    /// The oldest first.
    order: VecDeque<Sameness>,
}

impl Remembered {
    /// Whether that is known already.
    pub(super) fn knows(&self, same: &Sameness) -> bool {
        self.answers.lock().held.contains(same)
    }

    /// Returns the collision count with which the search of this StatefulSet continues, if there is a search.
    pub(super) fn tried_names(&self, key: &Key, set: &StatefulSet, template: &str) -> Option<i32> {
        let searches = self.searches.lock();
        let is_of = |held: &&Stopped| held.set == set.metadata.uid && held.template == template;
        searches.stopped.get(key).filter(is_of).map(|held| held.collisions)
    }

    fn add(&self, same: Sameness) {
        let mut answers = self.answers.lock();
        if answers.held.insert(same.clone()) {
            answers.order.push_back(same);
        }
        if answers.order.len() > memory_size(MOST)
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.held.remove(&oldest);
        }
    }
}

impl Memory<Note> for Remembered {
    fn commit(&self, key: &Key, note: Note) {
        if let Some(same) = note.same {
            self.add(same);
        }
        if note.search != Search::Unchanged {
            self.searches.lock().under_way.insert(key.clone(), note.search);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let Searches { stopped, under_way } = &mut *self.searches.lock();
        let search = under_way.remove(key).unwrap_or_default();
        match search {
            Search::Stopped(search) if !matches!(ended.outcome, Outcome::Absent) => {
                stopped.insert(key.clone(), search);
            }
            Search::Unchanged if !matches!(ended.outcome, Outcome::Absent) => {}
            _ => _ = stopped.remove(key),
        }
    }
}
