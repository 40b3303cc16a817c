//! Which pods it was said of that several budgets select them, in which version: it is said of each version once. Decides
//! nothing.

use parking_lot::Mutex;

use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

/// The pods of a budget that others select, too, and their versions.
pub(super) type Overlaps = Vec<(Uid, Str)>;

/// What was said, by budget.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashMap<Key, HashMap<Uid, Str>>>);

impl Told {
    /// Whether it was said of the pod in this version.
    pub(super) fn has(&self, budget: &Key, (uid, version): &(Uid, Str)) -> bool {
        self.0.lock().get(budget).and_then(|pods| pods.get(uid)) == Some(version)
    }
}

impl Memory<Overlaps> for Told {
    fn commit(&self, budget: &Key, overlaps: Overlaps) {
        let mut told = self.0.lock();
        if overlaps.is_empty() {
            told.remove(budget);
        } else {
            told.insert(budget.clone(), overlaps.into_iter().collect());
        }
    }

    fn ended(&self, budget: &Key, ended: ReconcileEnd<'_>) {
        if *ended.outcome == Outcome::Absent {
            self.0.lock().remove(budget);
        }
    }
}
