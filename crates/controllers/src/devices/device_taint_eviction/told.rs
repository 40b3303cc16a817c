//! The rules without an effect whose status was told: it is told once for each spec. Decides nothing.

use parking_lot::Mutex;

use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Uid;

/// The rules without an effect whose status was told, with their generation, by name.
#[derive(Debug, Default)]
pub(super) struct Told(pub(super) Mutex<HashMap<Key, (Uid, i64)>>);

/// The rule without an effect whose status the plan reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) told: Option<(Uid, i64)>,
}

impl Told {
    /// Forgets a rule that is deleted.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Memory<Note> for Told {
    fn commit(&self, key: &Key, note: Note) {
        if let Some(told) = note.told {
            self.0.lock().insert(key.clone(), told);
        }
    }
}
