//! How far each migration has come, as long as this process works on it. Decides nothing.
//!
//! A patch without content shows nowhere: an object whose bytes were up to date keeps its resource version. So the position is
//! remembered here, and lost with the process, as all of the original's progress is with each of its tries.

use std::sync::Arc;

use parking_lot::Mutex;

use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

/// The positions of all migrations.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions(Arc<Mutex<HashMap<Key, Position>>>);

/// Where a migration goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The migration.
    pub(super) uid: Uid,
    /// The page that comes next; empty for the first.
    pub(super) page: Str,
}

/// What a plan tells beside its steps: where the migration goes on once they have succeeded; `None` if it is over.
pub(super) type Note = Option<Position>;

impl Positions {
    /// The page with which this migration goes on.
    pub(super) fn page(&self, key: &Key, uid: &Uid) -> Str {
        let positions = self.0.lock();
        let held = positions.get(key).filter(|held| held.uid == *uid);
        held.map(|held| held.page.clone()).unwrap_or_default()
    }
}

impl Memory<Note> for Positions {
    fn commit(&self, key: &Key, note: Note) {
        let mut positions = self.0.lock();
        match note {
            Some(position) => positions.insert(key.clone(), position),
            None => positions.remove(key),
        };
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if *ended.outcome == Outcome::Absent {
            self.0.lock().remove(key);
        }
    }
}
