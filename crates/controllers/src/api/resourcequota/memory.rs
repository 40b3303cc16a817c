//! What the controller remembers of quotas between reconciles: whether they are to be counted once more. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use coxswain_machinery::framework::{KeyMap, Memory};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// Quotas of which the last count may rest on an old state of them.
///
/// What went may be known before what admission had charged a moment earlier: the watch of quotas may be the later one.
/// Then the count is what the quota seems to say already, and nothing is written; the charge that is heard of next is one too
/// many. So the first time that a quota says something else after such a count, it is counted once more.
#[derive(Clone, Default)]
pub(super) struct Recounts(Arc<Mutex<HashMap<Key, Recount>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recount {
    /// It is to be counted because of a change. What happens to it is numbered.
    Due {
        /// The last change.
        change: u32,
        /// When it said something else.
        said: u32,
    },
    /// It was counted, and has said nothing new since.
    Counted,
    /// It has said something else since it was counted.
    Late,
}

impl Recounts {
    /// The same map, which notes what it hands over.
    pub(super) fn noting(&self, map: KeyMap) -> KeyMap {
        let recounts = self.clone();
        Arc::new(move |delta, add| map(delta, &mut |key| add(recounts.due(key))))
    }

    pub(super) fn due(&self, key: Key) -> Key {
        let mut recounts = self.0.lock();
        let number = match recounts.get(&key) {
            Some(Recount::Due { change, said }) => change.max(said).wrapping_add(1),
            _ => 1,
        };
        recounts.insert(key.clone(), Recount::Due { change: number, said: 0 });
        key
    }

    /// A quota says something else. Whether it is to be counted once more: it was counted, or may just be.
    pub(super) fn hears(&self, key: &Key) -> bool {
        match self.0.lock().get_mut(key) {
            Some(Recount::Due { change, said }) if *said == 0 => {
                *said = change.wrapping_add(1);
                true
            }
            Some(counted @ Recount::Counted) => {
                *counted = Recount::Late;
                true
            }
            _ => false,
        }
    }

    /// How it is about a quota that is looked at.
    pub(super) fn of(&self, key: &Key) -> Option<Recount> {
        self.0.lock().get(key).copied()
    }

    /// A quota has gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl Memory<Option<Recount>> for Recounts {
    /// A quota was counted when it was `seen` like this.
    fn commit(&self, key: &Key, seen: Option<Recount>) {
        let mut recounts = self.0.lock();
        let Some(now) = recounts.get_mut(key) else { return };
        match (*now, seen) {
            (Recount::Late, Some(Recount::Late)) => {
                recounts.remove(key);
            }
            (Recount::Due { change, said }, Some(Recount::Due { change: counted, said: known }))
                if change == counted =>
            {
                *now = if said == known { Recount::Counted } else { Recount::Late };
            }
            // It is due for another change, or was for none.
            _ => {}
        }
    }
}
