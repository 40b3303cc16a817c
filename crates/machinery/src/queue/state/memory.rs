//! Gives memory back when a burst of keys is over, although some keys are still delayed.

use std::cmp::Reverse;
use std::hash::Hash;

use hashbrown::HashTable;

use super::{KEEP_SLOTS, Slot, State};
use crate::random::HashMap;

impl<K: Clone + Eq + Hash> State<K> {
    /// Called when the work on a key has ended. Moves the keys together when they use a quarter of the slots or less. As many keys have left
    /// since the last time as a quarter of the slots, so each of them pays for a constant number of steps.
    pub(super) fn give_back(&mut self) {
        self.finished += 1;
        let (used, length) = (self.index.len(), self.slots.len());
        if length <= KEEP_SLOTS || 4 * used > length || 4 * self.finished < length {
            return;
        }
        self.finished = 0;
        self.compact();
    }

    /// Moves keys into vacant slots and drops the slots behind them. Keys in flight keep their slots: workers hold their numbers.
    fn compact(&mut self) {
        let last_in_flight = self.in_flight.iter().max().map_or(0, |&id| id as usize + 1);
        let end = last_in_flight.max(self.index.len()).min(self.slots.len());
        let mut heap = std::mem::take(&mut self.delayed).into_vec();
        heap.retain(|Reverse(due)| self.is_current(due));
        let mut behind = self.slots.split_off(end);
        let mut vacant = (0..end).filter(|&at| self.slots[at].is_none()).collect::<Vec<_>>().into_iter();
        let mut moves: HashMap<u32, u32> = HashMap::default();
        for (from, slot) in (end..).zip(behind.iter_mut()) {
            let Some(mut slot) = slot.take() else { continue };
            // There are at least as many vacant slots as keys behind the end.
            let Some(at) = vacant.next() else { break };
            slot.move_to(at as u32);
            self.slots[at] = Some(slot);
            moves.insert(from as u32, at as u32);
        }
        let place = |id: u32| moves.get(&id).copied().unwrap_or(id);
        for Reverse(due) in &mut heap {
            due.slot = place(due.slot);
        }
        heap.shrink_to_fit();
        self.delayed = heap.into();
        self.ready = self.ready.iter().map(|&id| place(id)).collect();
        self.vacant = vacant.map(|at| at as u32).collect();
        self.slots.shrink_to_fit();
        let hash_of =
            |&id: &u32| self.slots.get(id as usize).and_then(Option::as_ref).map_or(0, |slot| slot.hash);
        let mut index = HashTable::with_capacity(self.index.len());
        for (id, slot) in (0_u32..).zip(&self.slots) {
            if let Some(slot) = slot {
                index.insert_unique(slot.hash, id, hash_of);
            }
        }
        self.index = index;
    }
}

impl<K> Slot<K> {
    fn move_to(&mut self, id: u32) {
        for due in [&mut self.due, &mut self.cooldown].into_iter().flatten() {
            due.slot = id;
        }
    }
}
