//! A queue's state and its transitions. Knows no locks, wakes nobody and reads no clock.
//!
//! Each key that plays any part (waits, is in flight, is delayed, has failed) has one slot, found by hash; the order of
//! waiting keys and the heap of delayed ones hold slot numbers, so that a key is stored once. Transitions return how
//! many keys became ready: as many waiters are to be woken.

mod memory;
mod reports;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use super::limit::{Bucket, QueueConfig, Shares};
use super::metrics::Meters;
use crate::bounds::memory_size;
use crate::random::HashSeed;

/// Storage for fewer slots than this is kept when the queue is empty.
const KEEP_SLOTS: usize = 256;
/// Stale heap entries that are tolerated before they are swept.
const KEEP_STALE: usize = 64;
/// A planned delay up to this ends by the steady clock in any case: it comes late by a minute at most, and may be a quarantine or a period.
const SHORT: Duration = Duration::from_mins(1);
/// What a delay that no clock can express is cut to.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// The part that a key belongs to.
pub(super) type PartOf<K> = fn(&K) -> &str;

pub(super) struct State<K> {
    pub(super) config: QueueConfig,
    pub(super) meters: Meters,
    pub(super) phase: Phase,
    /// Whether some waiter watches the delayed keys' clock.
    pub(super) timed: bool,
    hasher: HashSeed,
    index: HashTable<u32>,
    slots: Vec<Option<Slot<K>>>,
    vacant: Vec<u32>,
    /// Keys that wait and are not in flight.
    ready: VecDeque<u32>,
    in_flight: Vec<u32>,
    /// Keys that wait, those in flight that wait for their next turn included.
    dirty: usize,
    delayed: BinaryHeap<Reverse<Due>>,
    delayed_keys: usize,
    /// Keys that cooldown.
    cooling: usize,
    /// Keys on which work has ended since slots were moved together.
    finished: usize,
    sequence: u64,
    bucket: Option<Bucket>,
    /// The parts' buckets.
    shares: Option<(PartOf<K>, Shares)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Nothing more is taken in.
    Closed,
    /// The same, and someone waits for the cooldown to be worked off.
    Draining,
}

struct Slot<K> {
    key: K,
    hash: u64,
    /// It waits since then.
    dirty_since: Option<Instant>,
    /// It is in flight since then.
    taken_at: Option<Instant>,
    /// The valid heap entry of its delay.
    due: Option<Due>,
    /// Whether the delay was requested before the key was taken last, and not since.
    is_due_old: bool,
    /// The valid heap entry of its cooldown: until then it is not handed out, whatever adds it.
    cooldown: Option<Due>,
    failures: u32,
    /// How many of these failures were refusals.
    refusals: u32,
    /// Whether the key was given up. The next change of its object ends this state.
    given_up: bool,
    /// How often in a row it was held off.
    held_off: u32,
    /// Number of reconciles in a row in which a write met a conflict.
    conflicts: u32,
    /// When the first change came that nobody has taken it up for yet.
    changed_at: Option<Instant>,
}

/// A heap entry. It is stale when its slot no longer names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Instant,
    sequence: u64,
    slot: u32,
    /// Whether it stands for a time of the wall clock, which somebody may set.
    by_wall_clock: bool,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A key that was taken.
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) slot: u32,
    pub(super) waited: Duration,
    pub(super) changed_at: Option<Instant>,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(super) fn new(config: QueueConfig, meters: Meters) -> Self {
        Self {
            config,
            meters,
            phase: Phase::Open,
            timed: false,
            hasher: HashSeed::default(),
            index: HashTable::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            in_flight: Vec::new(),
            dirty: 0,
            delayed: BinaryHeap::new(),
            delayed_keys: 0,
            cooling: 0,
            finished: 0,
            sequence: 0,
            bucket: config.bucket.map(Bucket::new),
            shares: None,
        }
    }

    /// Adds a key that is to be worked on now. `now` is called only when the key does not wait yet.
    pub(super) fn add(&mut self, key: K, now: impl FnOnce() -> Instant) -> usize {
        if self.phase != Phase::Open {
            return 0;
        }
        let hash = self.hasher.hash_one(&key);
        if let Some(id) = self.find(hash, &key)
            && self.slot(id).is_some_and(|slot| slot.dirty_since.is_some())
        {
            return 0;
        }
        let now = now();
        let woken = self.promote(now);
        let id = self.find_or_insert(hash, key);
        woken + usize::from(self.mark(id, now))
    }

    /// Adds a key because of a change, to be worked on now or after a cooldown in which further changes are collected. Of the
    /// changes that it is then taken up for, the first one's time is kept. `now` is called only if it matters.
    pub(super) fn add_changed(&mut self, key: K, cooldown: Duration, now: impl FnOnce() -> Instant) -> usize {
        if self.phase != Phase::Open {
            return 0;
        }
        let hash = self.hasher.hash_one(&key);
        let held = self.find(hash, &key).and_then(|id| self.slot(id));
        let waits = held.is_some_and(|slot| slot.dirty_since.is_some());
        if cooldown.is_zero() && waits && held.is_some_and(|slot| slot.changed_at.is_some()) {
            return 0;
        }
        let now = now();
        let id = self.find_or_insert(hash, key.clone());
        if let Some(slot) = self.slot_mut(id) {
            slot.changed_at.get_or_insert(now);
        }
        if cooldown.is_zero() { self.add(key, || now) } else { self.add_after(key, cooldown, now) }
    }

    /// Work on a key came to nothing: the change at `changed_at`, for which it was taken up, is still to be answered.
    pub(super) fn unanswered(&mut self, id: u32, changed_at: Instant) {
        if let Some(slot) = self.slot_mut(id) {
            slot.changed_at = Some(slot.changed_at.map_or(changed_at, |later| later.min(changed_at)));
        }
    }

    /// Adds a key that is to be worked on before all others that wait, even if it cools. Takes time in proportion to their
    /// number.
    pub(super) fn add_first(&mut self, key: &K, now: Instant) -> usize {
        let hash = self.hasher.hash_one(key);
        let mut woken = self.find(hash, key).map_or(0, |id| self.wake(id));
        woken += self.add(key.clone(), || now);
        if let Some(id) = self.find(hash, key)
            && let Some(at) = self.ready.iter().position(|&held| held == id)
        {
            self.ready.remove(at);
            self.ready.push_front(id);
        }
        woken
    }

    /// Adds a key when `delay` has passed, unless it is to be added before that already.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) -> usize {
        self.add_when(key, (delay, false), now)
    }

    /// Adds a key when a time of the wall clock comes, which is `delay` from now.
    pub(super) fn add_planned(&mut self, key: K, delay: Duration, now: Instant) -> usize {
        self.add_when(key, (delay, delay > SHORT), now)
    }

    /// Adds the key of a deleted object, if the key is in flight or has a delay of more than a minute: the reconcile ends the delay.
    pub(super) fn add_gone(&mut self, key: K, now: Instant) -> usize {
        let held = self.slot_of(&key);
        let is_long = |due: Due| due.at.saturating_duration_since(now) > SHORT;
        let lasts = held.is_some_and(|slot| slot.taken_at.is_some() || slot.due.is_some_and(is_long));
        if lasts { self.add(key, || now) } else { 0 }
    }

    fn add_when(&mut self, key: K, (delay, by_wall_clock): (Duration, bool), now: Instant) -> usize {
        if self.phase != Phase::Open {
            return 0;
        }
        self.meters.retries.inc();
        if delay.is_zero() {
            return self.add(key, || now);
        }
        let woken = self.promote(now);
        let hash = self.hasher.hash_one(&key);
        let id = self.find_or_insert(hash, key);
        let at = now.checked_add(delay).unwrap_or_else(|| now + FOREVER);
        let due = Due { by_wall_clock, ..self.due(id, at) };
        let Some(slot) = self.slot_mut(id) else { return woken };
        slot.is_due_old = false;
        match slot.due {
            Some(held) if held.at <= at => return woken,
            Some(_) => slot.due = Some(due),
            None => {
                slot.due = Some(due);
                self.delayed_keys += 1;
            }
        }
        self.delay(due);
        woken
    }

    /// Counts a failure of the key, and adds it after the delay that this earns it, which is told too.
    pub(super) fn add_rate_limited(&mut self, key: K, now: Instant) -> (usize, Duration) {
        self.add_after_backoff(key, |slot| slot.failures, now)
    }

    /// Like [`add_rate_limited`](Self::add_rate_limited), with the backoff of the refusals before the one that was counted last.
    pub(super) fn add_refused(&mut self, key: K, now: Instant) -> (usize, Duration) {
        self.add_after_backoff(key, |slot| slot.refusals.saturating_sub(1), now)
    }

    /// Counts a failure of the key and adds it after the backoff of as many failures as `before` returns.
    fn add_after_backoff(&mut self, key: K, before: fn(&Slot<K>) -> u32, now: Instant) -> (usize, Duration) {
        if self.phase != Phase::Open {
            return (0, Duration::ZERO);
        }
        let hash = self.hasher.hash_one(&key);
        let id = self.find_or_insert(hash, key.clone());
        let Some(slot) = self.slot_mut(id) else { return (0, Duration::ZERO) };
        let before = before(slot);
        slot.failures = slot.failures.saturating_add(1);
        let backoff = self.config.backoff(before);
        let takes_token = QueueConfig::takes_token(backoff);
        let delay = backoff.max(if takes_token { self.reserve(&key, now) } else { Duration::ZERO });
        (self.add_after(key, delay, now), delay)
    }

    /// From now on each part of the keys has a bucket of its own beside the shared one.
    pub(super) fn fair_by(&mut self, part: PartOf<K>) {
        self.shares = self.config.bucket.map(|config| (part, Shares::new(config)));
    }

    /// Takes a token for a retry of the key, and returns how long to wait for it.
    fn reserve(&mut self, key: &K, now: Instant) -> Duration {
        match (&mut self.bucket, &mut self.shares) {
            (Some(bucket), Some((part, shares))) => {
                shares.reserve(self.hasher.hash_one(part(key)), bucket, now)
            }
            (Some(bucket), None) => bucket.reserve(now),
            (None, _) => Duration::ZERO,
        }
    }

    /// How many parts have buckets of their own.
    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.shares.as_ref().map_or(0, |(_, shares)| shares.len())
    }

    /// Counts a failure of the key, and adds it after `delay`. Takes no token of the bucket.
    pub(super) fn add_failed(&mut self, key: K, delay: Duration, now: Instant) -> usize {
        if self.phase != Phase::Open {
            return 0;
        }
        let id = self.find_or_insert(self.hasher.hash_one(&key), key.clone());
        if let Some(slot) = self.slot_mut(id) {
            slot.failures = slot.failures.saturating_add(1);
        }
        self.add_after(key, delay, now)
    }

    /// Counts a failure of the key, notes that it is given up, and adds it after `pause`.
    pub(super) fn give_up(&mut self, key: &K, pause: Duration, now: Instant) -> usize {
        let woken = self.add_failed(key.clone(), pause, now);
        if let Some(slot) = self.slot_of_mut(key) {
            slot.given_up = true;
        }
        woken
    }

    /// Counts that a key in flight was refused.
    pub(super) fn count_refusal(&mut self, key: &K) {
        if let Some(slot) = self.slot_of_mut(key) {
            slot.refusals = slot.refusals.saturating_add(1);
        }
    }

    pub(super) fn refusals(&self, key: &K) -> u32 {
        self.slot_of(key).map_or(0, |slot| slot.refusals)
    }

    pub(super) fn is_given_up(&self, key: &K) -> bool {
        self.slot_of(key).is_some_and(|slot| slot.given_up)
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(id) = self.find(self.hasher.hash_one(key), key)
            && let Some(slot) = self.slot_mut(id)
        {
            slot.failures = 0;
            slot.refusals = 0;
            slot.given_up = false;
            self.release(id);
        }
    }

    /// Ends the delay of a key in flight whose object does not exist, if the delay is longer than a minute and nothing has requested a delay
    /// of the key since the key was taken. Otherwise the key of a deleted object would stay until its delay ends: up to 68 years for a Job.
    pub(super) fn drop_delay(&mut self, key: &K, now: Instant) {
        let Some(id) = self.find(self.hasher.hash_one(key), key) else { return };
        let Some(slot) = self.slot_mut(id).filter(|slot| slot.is_due_old) else { return };
        if slot.due.take_if(|due| due.at.saturating_duration_since(now) > SHORT).is_some() {
            self.delayed_keys -= 1;
            self.sweep_stale();
            self.release(id);
        }
    }

    /// Counts that nothing came of the work on a key that is in flight and is to be worked on again after `wanted`. Returns how
    /// long it has to wait.
    pub(super) fn hold_off(&mut self, key: &K, wanted: Duration) -> Duration {
        let config = self.config;
        let times = self.slot_of_mut(key).map_or(0, |slot| {
            let times = slot.held_off;
            slot.held_off = times.saturating_add(1);
            times
        });
        wanted.max(config.hold_off(times))
    }

    /// Counts a reconcile of a key in flight, in which a write `met` a conflict or none did.
    pub(super) fn count_conflict(&mut self, key: &K, met: bool) {
        if let Some(slot) = self.slot_of_mut(key) {
            slot.conflicts = if met { slot.conflicts.saturating_add(1) } else { 0 };
        }
    }

    pub(super) fn conflicts(&self, key: &K) -> u32 {
        self.slot_of(key).map_or(0, |slot| slot.conflicts)
    }

    /// Something came of the work on a key: the next hold-off is the shortest.
    pub(super) fn end_hold_off(&mut self, key: &K) {
        if let Some(slot) = self.slot_of_mut(key) {
            slot.held_off = 0;
        }
    }

    pub(super) fn retries(&self, key: &K) -> u32 {
        self.slot_of(key).map_or(0, |slot| slot.failures)
    }

    /// Moves the keys whose delay is over to the end of the queue.
    pub(super) fn promote(&mut self, now: Instant) -> usize {
        let mut woken = 0;
        while let Some(due) = self.next_due().filter(|due| due.at <= now) {
            self.delayed.pop();
            if self.slot(due.slot).is_some_and(|slot| slot.cooldown == Some(due)) {
                woken += self.wake(due.slot);
                self.release(due.slot);
                continue;
            }
            self.delayed_keys -= 1;
            if let Some(slot) = self.slot_mut(due.slot) {
                slot.due = None;
            }
            woken += usize::from(self.mark(due.slot, due.at));
        }
        woken
    }

    /// Somebody has set the wall clock forward: times of it come earlier by as much. Backoffs, debounces and cooldowns stay.
    pub(super) fn wall_clock_set_forward(&mut self, by: Duration, now: Instant) -> usize {
        let mut heap = std::mem::take(&mut self.delayed).into_vec();
        for Reverse(due) in heap.iter_mut().filter(|Reverse(due)| due.by_wall_clock) {
            let at = due.at.checked_sub(by).unwrap_or(now);
            let moved = Due { at, ..*due };
            if let Some(slot) = self.slot_mut(due.slot).filter(|slot| slot.due == Some(*due)) {
                slot.due = Some(moved);
                *due = moved;
            }
        }
        self.delayed = heap.into();
        self.promote(now)
    }

    /// The delayed key that comes first.
    pub(super) fn next_due(&mut self) -> Option<Due> {
        while let Some(Reverse(due)) = self.delayed.peek() {
            if self.is_current(due) {
                return Some(*due);
            }
            self.delayed.pop();
        }
        None
    }

    /// Takes the key that comes first off the queue.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let id = self.ready.pop_front()?;
        let slot = self.slots.get_mut(id as usize)?.as_mut()?;
        let since = slot.dirty_since.take().unwrap_or(now);
        slot.taken_at = Some(now);
        slot.is_due_old = slot.due.is_some();
        let changed_at = slot.changed_at.take();
        let waited = now.saturating_duration_since(since);
        let taken = Taken { key: slot.key.clone(), slot: id, waited, changed_at };
        self.in_flight.push(id);
        self.dirty -= 1;
        self.meters.depth.dec();
        self.meters.waited.observe(waited.as_secs_f64());
        Some(taken)
    }

    /// Ends the work on a key. One that was added meanwhile waits again; until it has been left alone for `cooldown` since it was
    /// taken, in any case.
    pub(super) fn finish(&mut self, id: u32, cooldown: Duration, now: Instant) -> usize {
        let woken = self.promote(now);
        if let Some(at) = self.in_flight.iter().position(|&held| held == id) {
            self.in_flight.swap_remove(at);
        }
        let Some(slot) = self.slot_mut(id) else { return woken };
        let taken = slot.taken_at.take().unwrap_or(now);
        let again = slot.dirty_since.is_some();
        self.meters.worked.observe(now.saturating_duration_since(taken).as_secs_f64());
        let cooled = taken.checked_add(cooldown).unwrap_or_else(|| now + FOREVER);
        if cooled > now && self.phase == Phase::Open {
            let due = self.due(id, cooled);
            if let Some(slot) = self.slot_mut(id) {
                slot.cooldown = Some(due);
                self.cooling += 1;
                self.delay(due);
            }
            return woken;
        }
        if again {
            self.ready.push_back(id);
        } else {
            self.release(id);
            self.give_back();
        }
        woken + usize::from(again)
    }

    /// Ends the cooldown of a key. One that was added meanwhile is ready.
    fn wake(&mut self, id: u32) -> usize {
        let Some(slot) = self.slot_mut(id).filter(|slot| slot.cooldown.is_some()) else { return 0 };
        slot.cooldown = None;
        let ready = slot.dirty_since.is_some();
        self.cooling -= 1;
        if ready {
            self.ready.push_back(id);
        }
        usize::from(ready)
    }

    /// Takes nothing more in, and forgets the keys whose delay is not over; with `discard` also those that wait.
    pub(super) fn close(&mut self, phase: Phase, discard: bool, now: Instant) {
        self.promote(now);
        self.phase = phase;
        for Reverse(due) in std::mem::take(&mut self.delayed).into_sorted_vec().into_iter().rev() {
            if self.slot(due.slot).is_some_and(|slot| slot.cooldown == Some(due)) {
                self.wake(due.slot);
                self.release(due.slot);
                continue;
            }
            let current = self.is_current(&due);
            if let Some(slot) = self.slot_mut(due.slot).filter(|_| current) {
                slot.due = None;
                self.release(due.slot);
            }
        }
        self.delayed_keys = 0;
        if discard {
            self.discard();
        }
    }

    fn discard(&mut self) {
        for id in std::mem::take(&mut self.ready).into_iter().chain(self.in_flight.clone()) {
            let waited = self.slot_mut(id).and_then(|slot| slot.dirty_since.take());
            if waited.is_some() {
                self.dirty -= 1;
                self.meters.depth.dec();
            }
            self.release(id);
        }
    }

    /// Lets a key wait, unless it does. Whether it became ready.
    fn mark(&mut self, id: u32, since: Instant) -> bool {
        let Some(slot) = self.slot_mut(id).filter(|slot| slot.dirty_since.is_none()) else { return false };
        slot.dirty_since = Some(since);
        let ready = slot.taken_at.is_none() && slot.cooldown.is_none();
        self.dirty += 1;
        self.meters.adds.inc();
        self.meters.depth.inc();
        if ready {
            self.ready.push_back(id);
        }
        ready
    }

    fn slot(&self, id: u32) -> Option<&Slot<K>> {
        self.slots.get(id as usize)?.as_ref()
    }

    fn slot_mut(&mut self, id: u32) -> Option<&mut Slot<K>> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    fn slot_of(&self, key: &K) -> Option<&Slot<K>> {
        self.slot(self.find(self.hasher.hash_one(key), key)?)
    }

    fn slot_of_mut(&mut self, key: &K) -> Option<&mut Slot<K>> {
        let id = self.find(self.hasher.hash_one(key), key)?;
        self.slot_mut(id)
    }

    fn is_current(&self, due: &Due) -> bool {
        self.slot(due.slot).is_some_and(|slot| slot.due == Some(*due) || slot.cooldown == Some(*due))
    }

    /// A new heap entry for a key.
    fn due(&mut self, slot: u32, at: Instant) -> Due {
        self.sequence += 1;
        Due { at, sequence: self.sequence, slot, by_wall_clock: false }
    }

    fn delay(&mut self, due: Due) {
        self.delayed.push(Reverse(due));
        self.sweep_stale();
    }

    /// Removes the stale entries of the heap when they outnumber the current ones.
    fn sweep_stale(&mut self) {
        if self.delayed.len() > 2 * (self.delayed_keys + self.cooling) + memory_size(KEEP_STALE) {
            let mut heap = std::mem::take(&mut self.delayed);
            heap.retain(|Reverse(due)| self.is_current(due));
            heap.shrink_to(2 * heap.len());
            self.delayed = heap;
        }
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let same = |&id: &u32| self.slot(id).is_some_and(|slot| slot.key == *key);
        self.index.find(hash, same).copied()
    }

    fn find_or_insert(&mut self, hash: u64, key: K) -> u32 {
        if let Some(id) = self.find(hash, &key) {
            return id;
        }
        let slot = Some(Slot {
            key,
            hash,
            dirty_since: None,
            taken_at: None,
            due: None,
            is_due_old: false,
            cooldown: None,
            failures: 0,
            refusals: 0,
            given_up: false,
            held_off: 0,
            conflicts: 0,
            changed_at: None,
        });
        let id = if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        let slots = &self.slots;
        let rehash = |&id: &u32| slots.get(id as usize).and_then(Option::as_ref).map_or(0, |slot| slot.hash);
        self.index.insert_unique(hash, id, rehash);
        id
    }

    /// Frees a slot whose key plays no part any more.
    fn release(&mut self, id: u32) {
        let Some(slot) = self.slot(id) else { return };
        let idle = slot.dirty_since.is_none()
            && slot.taken_at.is_none()
            && slot.due.is_none()
            && slot.cooldown.is_none()
            && slot.failures == 0;
        if !idle {
            return;
        }
        if let Ok(entry) = self.index.find_entry(slot.hash, |&held| held == id) {
            entry.remove();
        }
        self.slots[id as usize] = None;
        self.vacant.push(id);
        // A burst is over: the memory that it took is given back.
        if self.index.is_empty() && self.slots.len() > KEEP_SLOTS {
            self.slots = Vec::new();
            self.vacant = Vec::new();
            self.index = HashTable::new();
            self.ready = VecDeque::new();
            self.delayed = BinaryHeap::new();
        }
    }

    /// Slots that are in use or kept for use.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> (usize, usize, usize) {
        (self.index.len(), self.slots.len(), self.delayed.len())
    }
}
