//! Which revisions mean the same as the template of their StatefulSet although their bytes differ. Found out by a live read, and
//! remembered so that it is made once. Decides nothing.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Note;
use coxswain_machinery::bounds::memory_size;
use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
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

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    held: HashSet<Sameness>,
    /// The oldest first.
    order: VecDeque<Sameness>,
}

impl Remembered {
    /// Whether that is known already.
    pub(super) fn knows(&self, same: &Sameness) -> bool {
        self.0.lock().held.contains(same)
    }

    fn add(&self, same: Sameness) {
        let mut answers = self.0.lock();
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
    fn commit(&self, _: &Key, note: Note) {
        if let Some(same) = note.same {
            self.add(same);
        }
    }
}
