//! Work queues: which keys are to be reconciled, in which order, and when again.
//!
//! ```text
//!   add ────────────────► ready (FIFO, each key once) ──get──► in flight ──Item dropped──► gone
//!                            ▲        ▲                            │
//!   add_after ─► delayed ────┘        └──── added meanwhile ◄──────┘
//!   add_rate_limited: the same, the delay growing with each failure until `forget`
//!   Item::cool_down: what is added before the cooldown is over is ready when it is
//! ```
//!
//! The semantics are those of client-go's queues. A key is worked on by one worker at a time: one that is added while it
//! is in flight waits and is handed out again when its [`Item`] is dropped, by a panic too. Adding a key that waits
//! costs a hash lookup. What waits is bounded by the number of keys.
//!
//! A queue runs no task of its own: of the workers that wait in [`WorkQueue::get`], one at a time watches the clock for
//! the delayed keys. Time is tokio's, which tests can pause. Nothing here knows what a key stands for.

mod limit;
mod metrics;
mod snapshot;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub(crate) use limit::Bucket;
pub use limit::{BucketConfig, QueueConfig};
pub use metrics::QueueMetrics;
pub use snapshot::{QueueSnapshot, QueueSummary, QueuedKey};

use metrics::InFlight;
use state::{Phase, State};

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
}

/// How old the figures of a queue may be.
const SUMMARY_AGE: Duration = Duration::from_millis(100);

struct Shared<K: Clone + Eq + Hash> {
    name: Arc<str>,
    state: Mutex<State<K>>,
    /// The figures that were computed last, and when.
    summary: Mutex<Option<(Instant, QueueSummary)>>,
    /// A key is ready, or a timekeeper is wanted: one permit per key.
    ready: Notify,
    /// The timekeeper sleeps too long.
    earlier: Notify,
    /// A closing queue has nothing left.
    drained: Notify,
}

/// What a worker that asks for a key is told.
enum Look<'a, K: Clone + Eq + Hash> {
    Take(Item<K>),
    Closed,
    Wait,
    /// Wait, and watch the clock for all.
    WaitUntil(Instant, Timekeeper<'a, K>),
}

impl<K: Clone + Eq + Hash + Send + 'static> WorkQueue<K> {
    /// An open, empty queue with the default rate limits. `name` labels its metrics.
    pub fn new(name: &str, metrics: &QueueMetrics) -> Self {
        Self::with_config(name, QueueConfig::default(), metrics)
    }

    /// An open, empty queue with rate limits of its own.
    pub fn with_config(name: &str, config: QueueConfig, metrics: &QueueMetrics) -> Self {
        let shared = Arc::new(Shared {
            name: name.into(),
            state: Mutex::new(State::new(config, metrics.meters(name))),
            summary: Mutex::new(None),
            ready: Notify::new(),
            earlier: Notify::new(),
            drained: Notify::new(),
        });
        let weak: Weak<Shared<K>> = Arc::downgrade(&shared);
        metrics.watch(name, weak);
        Self { shared }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// The queue, with a bucket of its own for each part of the keys, such as a namespace. A part that has used its bucket up waits for that
    /// one, and takes nothing from the bucket that all share: it does not delay the retries of others.
    #[must_use]
    pub fn fair_by(self, part: fn(&K) -> &str) -> Self {
        self.shared.state.lock().fair_by(part);
        self
    }

    /// The queue's name, as in its metrics.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Adds a key that is to be worked on as soon as its turn comes. Never waits for anything; does nothing when the key
    /// waits already or the queue is shutting down.
    pub fn add(&self, key: K) {
        let woken = self.shared.state.lock().add(key, Instant::now);
        self.shared.wake(woken);
    }

    /// [`add`](Self::add) because of a change that has just come, or, after a `cooldown` in which further changes are
    /// gathered, [`add_after`](Self::add_after). Whoever takes the key is told when the first such change came
    /// ([`Item::changed_at`]).
    pub fn add_changed(&self, key: K, cooldown: Duration) {
        if cooldown.is_zero() {
            let woken = self.shared.state.lock().add_changed(key, cooldown, Instant::now);
            self.shared.wake(woken);
        } else {
            self.shared.schedule(|state, now| state.add_changed(key, cooldown, || now));
        }
    }

    /// Adds the key of a deleted object, if the key is in flight or has a delay of more than a minute. The reconcile of the key then ends the
    /// delay ([`drop_delay`](Self::drop_delay)).
    pub fn add_gone(&self, key: K) {
        let woken = self.shared.state.lock().add_gone(key, Instant::now());
        self.shared.wake(woken);
    }

    /// Adds a key that is to be worked on before all others that wait. For people who ask, not for loops: it takes time in
    /// proportion to the number of waiting keys.
    pub fn add_first(&self, key: &K) {
        let woken = self.shared.state.lock().add_first(key, Instant::now());
        self.shared.wake(woken);
    }

    /// Adds a key after `delay`; of several delays of one key the one that ends first counts. Independent of
    /// [`add`](Self::add): a key that waits now is added once more later.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.shared.schedule(|state, now| state.add_after(key, delay, now));
    }

    /// [`add_after`](Self::add_after) where the end of the delay stands for a time of the wall clock: the key comes earlier if
    /// that is [set forward](Self::wall_clock_set_forward). A delay of a minute or less stays.
    pub fn add_planned(&self, key: K, delay: Duration) {
        self.shared.schedule(|state, now| state.add_planned(key, delay, now));
    }

    /// Somebody has set the wall clock forward: [planned](Self::add_planned) keys come earlier by as much. Takes time in
    /// proportion to the number of delayed keys.
    pub fn wall_clock_set_forward(&self, by: Duration) {
        self.shared.schedule(|state, now| state.wall_clock_set_forward(by, now));
    }

    /// Counts a failure of the key and adds it after the delay that this earns it (see [`QueueConfig`]), which is
    /// returned.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let mut delay = Duration::ZERO;
        self.shared.schedule(|state, now| {
            let (woken, earned) = state.add_rate_limited(key, now);
            delay = earned;
            woken
        });
        delay
    }

    /// Like [`add_rate_limited`](Self::add_rate_limited) for a key whose last refusal was [counted](Self::count_refusal): the delay
    /// follows the refusals alone. Failures without an answer reveal nothing about the key.
    pub fn add_refused(&self, key: K) -> Duration {
        let mut delay = Duration::ZERO;
        self.shared.schedule(|state, now| {
            let (woken, earned) = state.add_refused(key, now);
            delay = earned;
            woken
        });
        delay
    }

    /// Counts a failure of the key and adds it after the longest backoff, which is returned.
    pub fn add_longest(&self, key: K) -> Duration {
        let mut delay = Duration::ZERO;
        self.shared.schedule(|state, now| {
            delay = state.config.max_delay;
            state.add_failed(key, delay, now)
        });
        delay
    }

    /// Counts a failure of the key and adds it after `delay`. The retry takes no token of the shared bucket, so `delay` has to bound the
    /// rate.
    pub fn add_failed(&self, key: K, delay: Duration) {
        self.shared.schedule(|state, now| state.add_failed(key, delay, now));
    }

    /// Gives the key up: counts a last failure and adds the key after `pause`. The retry takes no token of the shared bucket.
    /// [`forget`](Self::forget) ends this state.
    pub fn give_up(&self, key: &K, pause: Duration) {
        self.shared.schedule(|state, now| state.give_up(key, pause, now));
    }

    /// Counts that the key, which is in flight, was refused.
    pub fn count_refusal(&self, key: &K) {
        self.shared.state.lock().count_refusal(key);
    }

    /// Returns how often the key was [refused](Self::count_refusal) since it was last forgotten.
    pub fn refusals(&self, key: &K) -> u32 {
        self.shared.state.lock().refusals(key)
    }

    /// Returns whether the key was [given up](Self::give_up) and not forgotten since.
    pub fn is_given_up(&self, key: &K) -> bool {
        self.shared.state.lock().is_given_up(key)
    }

    /// Forgets the key's failures: its next one earns the shortest delay. Does not take it off the queue.
    pub fn forget(&self, key: &K) {
        self.shared.state.lock().forget(key);
    }

    /// Ends the delay of a key in flight whose object does not exist, if the delay is longer than a minute and nothing has requested a delay
    /// of the key since the key was handed out.
    pub fn drop_delay(&self, key: &K) {
        self.shared.state.lock().drop_delay(key, Instant::now());
    }

    /// Counts that nothing came of the work on a key that is in flight and is to be worked on again after `wanted`. Returns how
    /// long it has to wait: `wanted`, or its backoff if that is longer. The backoff doubles each time until
    /// [`end_hold_off`](Self::end_hold_off), or until the key is neither in flight nor queued. No token is taken.
    pub fn hold_off(&self, key: &K, wanted: Duration) -> Duration {
        self.shared.state.lock().hold_off(key, wanted)
    }

    /// Counts a reconcile of a key in flight, in which a write `met` a conflict or none did. The count ends when the key is neither in
    /// flight nor queued.
    pub fn count_conflict(&self, key: &K, met: bool) {
        self.shared.state.lock().count_conflict(key, met);
    }

    /// Returns the number of the key's last reconciles in a row that met a conflict.
    pub fn conflicts(&self, key: &K) -> u32 {
        self.shared.state.lock().conflicts(key)
    }

    /// Ends the backoff of [`hold_off`](Self::hold_off): something came of the work on the key.
    pub fn end_hold_off(&self, key: &K) {
        self.shared.state.lock().end_hold_off(key);
    }

    /// How often the key was added with [`add_rate_limited`](Self::add_rate_limited) since it was last forgotten.
    pub fn retries(&self, key: &K) -> u32 {
        self.shared.state.lock().retries(key)
    }

    /// Waits for a key. `None`: the queue was shut down and nothing waits any more. May be cancelled at any time without
    /// losing a key.
    pub async fn get(&self) -> Option<Item<K>> {
        loop {
            match self.look(false) {
                Look::Take(item) => return Some(item),
                Look::Closed => return None,
                Look::Wait | Look::WaitUntil(..) => {}
            }
            // Registered before the second look: what is added after that look wakes this worker.
            let mut notified = pin!(self.shared.ready.notified());
            notified.as_mut().enable();
            match self.look(true) {
                Look::Take(item) => return Some(item),
                Look::Closed => return None,
                Look::Wait => notified.await,
                Look::WaitUntil(deadline, timekeeper) => {
                    tokio::select! {
                        biased;
                        () = notified => {}
                        () = self.shared.earlier.notified() => {}
                        () = sleep_until(deadline) => {}
                    }
                    timekeeper.retire();
                }
            }
        }
    }

    /// Takes nothing more in. Keys that wait are still handed out, those that are delayed are forgotten; when nothing
    /// waits any more, [`get`](Self::get) returns `None`.
    pub fn shut_down(&self) {
        self.shared.close(Phase::Closed, false);
    }

    /// Takes nothing more in and forgets all keys that wait or are delayed, so that [`get`](Self::get) returns `None` at
    /// once. Keys in flight are worked on to their end.
    pub fn shut_down_now(&self) {
        self.shared.close(Phase::Closed, true);
    }

    /// Shuts down as [`shut_down`](Self::shut_down) does and waits until workers have worked off what waits and what is
    /// in flight, or until one of the other shutdowns is called.
    pub async fn shut_down_with_drain(&self) {
        self.shared.close(Phase::Draining, false);
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            {
                let state = self.shared.state.lock();
                if state.is_drained() || state.phase == Phase::Closed {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Whether the queue takes nothing more in.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.state.lock().phase != Phase::Open
    }

    /// How many keys could be taken now.
    pub fn len(&self) -> usize {
        let (woken, len) = {
            let mut state = self.shared.state.lock();
            (state.promote(Instant::now()), state.len())
        };
        self.shared.wake(woken);
        len
    }

    /// Whether no key could be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue as it is now, with the `oldest` keys that have waited longest. Takes time in proportion to the number of
    /// waiting keys: for people, not for loops.
    pub fn snapshot(&self, oldest: usize) -> QueueSnapshot<K> {
        let now = Instant::now();
        let (woken, snapshot) = {
            let mut state = self.shared.state.lock();
            (state.promote(now), state.snapshot(&self.shared.name, oldest, now))
        };
        self.shared.wake(woken);
        snapshot
    }

    /// The figures of the queue, at most 100 ms old: however often they are asked for, workers and informers wait
    /// for them no more often than that.
    pub fn summary(&self) -> QueueSummary {
        let now = Instant::now();
        let mut held = self.shared.summary.lock();
        if let Some((at, summary)) = *held
            && now.duration_since(at) < SUMMARY_AGE
        {
            return summary;
        }
        let (woken, summary) = {
            let mut state = self.shared.state.lock();
            (state.promote(now), state.summary(now))
        };
        self.shared.wake(woken);
        *held = Some((now, summary));
        summary
    }

    /// Takes the first key if there is one. A worker that `stays` may be made the timekeeper.
    fn look(&self, stays: bool) -> Look<'_, K> {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let mut woken = state.promote(now);
        let look = if let Some(taken) = state.take(now) {
            // This worker leaves: the delayed keys need another one to watch the clock.
            woken += usize::from(!state.timed && state.next_due().is_some());
            Look::Take(Item {
                shared: Arc::clone(&self.shared),
                key: taken.key,
                slot: taken.slot,
                waited: taken.waited,
                changed_at: taken.changed_at,
                cooldown: Duration::ZERO,
            })
        } else if state.phase != Phase::Open {
            Look::Closed
        } else if let Some(due) = state.next_due().filter(|_| stays && !state.timed) {
            state.timed = true;
            Look::WaitUntil(due.at + state.config.slack, Timekeeper(&self.shared))
        } else {
            Look::Wait
        };
        drop(state);
        self.shared.wake(woken);
        look
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn wake(&self, waiters: usize) {
        for _ in 0..waiters {
            self.ready.notify_one();
        }
    }

    /// Performs a transition that may delay a key, and sees to it that someone watches the clock for it.
    fn schedule(&self, transition: impl FnOnce(&mut State<K>, Instant) -> usize) {
        let mut state = self.state.lock();
        let before = state.next_due();
        let mut woken = transition(&mut state, Instant::now());
        let is_earlier = state.next_due().is_some_and(|due| before.is_none_or(|before| due.at < before.at));
        let timed = state.timed;
        drop(state);
        if is_earlier && timed {
            self.earlier.notify_one();
        } else if is_earlier {
            woken += 1;
        }
        self.wake(woken);
    }

    fn finish(&self, slot: u32, cooldown: Duration) {
        let mut drained = false;
        self.schedule(|state, now| {
            let woken = state.finish(slot, cooldown, now);
            drained = state.phase != Phase::Open && state.is_drained();
            woken
        });
        if drained {
            self.drained.notify_waiters();
        }
    }

    fn close(&self, phase: Phase, discard: bool) {
        self.state.lock().close(phase, discard, Instant::now());
        self.ready.notify_waiters();
        self.drained.notify_waiters();
    }
}

impl<K: Clone + Eq + Hash + Send> InFlight for Shared<K> {
    fn in_flight(&self) -> (Duration, Duration) {
        let state = self.state.lock();
        state
            .in_flight_times(Instant::now())
            .fold((Duration::ZERO, Duration::ZERO), |(sum, longest), time| (sum + time, longest.max(time)))
    }
}

impl<K: Clone + Eq + Hash> Drop for Shared<K> {
    /// A queue of the same name may follow: this one's share of the depth goes with it.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.meters.depth.sub(state.dirty() as i64);
    }
}

impl<K: Clone + Eq + Hash> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The one waiter that watches the clock for the delayed keys.
struct Timekeeper<'a, K: Clone + Eq + Hash>(&'a Shared<K>);

impl<K: Clone + Eq + Hash> Timekeeper<'_, K> {
    /// Ends the watch of a worker that looks at the queue next, and so finds a successor by itself.
    fn retire(self) {
        self.0.state.lock().timed = false;
        std::mem::forget(self);
    }
}

impl<K: Clone + Eq + Hash> Drop for Timekeeper<'_, K> {
    /// The worker was cancelled: another one has to watch.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.timed = false;
        let wanted = state.next_due().is_some();
        drop(state);
        self.0.wake(usize::from(wanted));
    }
}

/// A key in flight. Until it is dropped, no other worker gets the key.
#[must_use = "the key is no longer in flight when its item is dropped"]
pub struct Item<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
    key: K,
    slot: u32,
    waited: Duration,
    changed_at: Option<Instant>,
    cooldown: Duration,
}

impl<K: Clone + Eq + Hash> Item<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// How long it waited in the queue, without the delay before.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// When the first of the changes came for which it was added; `None` if it was added for none.
    pub fn changed_at(&self) -> Option<Instant> {
        self.changed_at
    }

    /// The work has come to nothing: whoever takes the key next is told of the changes that it was added for.
    pub fn unanswered(&self) {
        if let Some(at) = self.changed_at {
            self.shared.state.lock().unanswered(self.slot, at);
        }
    }

    /// Ends the work on the key, as dropping it does.
    pub fn done(self) {
        drop(self);
    }

    /// Ends the work on the key and leaves it alone until this long after it was taken: what adds it meanwhile is collected, and
    /// hands it out when the cooldown is over. Only [`WorkQueue::add_first`] and a shutdown do not wait.
    pub fn cool_down(mut self, cooldown: Duration) {
        self.cooldown = cooldown;
    }
}

impl<K: Clone + Eq + Hash> Drop for Item<K> {
    fn drop(&mut self) {
        self.shared.finish(self.slot, self.cooldown);
    }
}

impl<K: Clone + Eq + Hash> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("key", &self.key).field("waited", &self.waited).finish_non_exhaustive()
    }
}
