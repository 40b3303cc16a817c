//! Reports of the current numbers and keys of a queue. None of them changes the queue.

use std::cmp::Reverse;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::super::snapshot::{QueueSnapshot, QueueSummary, QueuedKey};
use super::{Phase, Slot, State};

impl<K: Clone + Eq + Hash> State<K> {
    pub(in super::super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Keys that wait, counting those that are in flight as well.
    pub(in super::super) fn dirty(&self) -> usize {
        self.dirty
    }

    /// Whether nothing waits and nothing is in flight.
    pub(in super::super) fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.in_flight.is_empty()
    }

    pub(in super::super) fn in_flight_times(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.in_flight
            .iter()
            .filter_map(|&id| self.slot(id)?.taken_at)
            .map(move |at| now.saturating_duration_since(at))
    }

    pub(in super::super) fn summary(&self, now: Instant) -> QueueSummary {
        let slots = self.slots.iter().flatten();
        QueueSummary {
            depth: self.dirty,
            in_flight: self.in_flight.len(),
            delayed: self.delayed_keys,
            oldest_age: slots
                .filter_map(|slot| slot.dirty_since)
                .min()
                .map(|since| now.saturating_duration_since(since)),
            longest_running: self.in_flight_times(now).max(),
        }
    }

    pub(in super::super) fn snapshot(&self, name: &str, limit: usize, now: Instant) -> QueueSnapshot<K> {
        let since = |slot: &Option<Slot<K>>| slot.as_ref()?.dirty_since;
        let slots = self.slots.iter().enumerate();
        let mut ages: Vec<(Instant, u32)> =
            slots.filter_map(|(id, slot)| Some((since(slot)?, id as u32))).collect();
        let limit = limit.min(ages.len());
        if limit < ages.len() {
            ages.select_nth_unstable(limit);
        }
        // Reported even if `limit` is 0.
        let oldest_age = ages.iter().map(|&(since, _)| now.saturating_duration_since(since)).max();
        ages.truncate(limit);
        ages.sort_unstable();
        let row = |id: u32, since: Instant| {
            self.slot(id).map(|slot| QueuedKey {
                key: slot.key.clone(),
                age: now.saturating_duration_since(since),
                retries: slot.failures,
            })
        };
        let mut running: Vec<_> =
            self.in_flight.iter().filter_map(|&id| row(id, self.slot(id)?.taken_at?)).collect();
        running.sort_by_key(|row| Reverse(row.age));
        QueueSnapshot {
            name: name.into(),
            depth: self.dirty,
            in_flight: self.in_flight.len(),
            delayed: self.delayed_keys,
            oldest_age,
            oldest: ages.into_iter().filter_map(|(since, id)| row(id, since)).collect(),
            running,
            shutting_down: self.phase != Phase::Open,
        }
    }
}
