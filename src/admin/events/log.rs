//! The two rings and their readers.
//!
//! Phases, leadership and overrides change seldom, reconciles and writes come by the thousand. Each sort has a ring of its
//! own, so that a flood of reconciles does not push out what explains it. Sequence numbers run through both.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::filter::Filter;
use super::record::{Body, LogEvent, ObjectRef, RARE};
use crate::admin::manager::TraceId;
use coxswain_machinery::bounds::memory_size;
use coxswain_machinery::latest;
use coxswain_machinery::model::clock::SharedClock;

/// Readers are woken at most once in this time, each time for all that has come,
const PUMP_INTERVAL: Duration = Duration::from_millis(20);
/// and this much more for each of them, so that many readers cost more delay and not more wakeups.
const PUMP_PER_READER: Duration = Duration::from_micros(200);
/// However many they are, nobody waits longer for an event than this.
const PUMP_LONGEST: Duration = Duration::from_millis(250);
/// Events that a reader takes out of the ring at a time, which is what it holds at most beyond the ring.
const BATCH: usize = 256;
/// The ring of rare events has this part of the other's room.
const RARE_PART: usize = 4;

/// The log. Share it in an `Arc`; somebody must drive [`EventLog::run`].
pub struct EventLog {
    id: String,
    clock: SharedClock,
    rings: Mutex<Rings>,
    readers: AtomicUsize,
    published: Notify,
    wakes: latest::Sender<u64>,
}

struct Rings {
    frequent: Ring,
    rare: Ring,
    /// Sequence number of the newest event; 0 before the first.
    newest: u64,
}

impl Rings {
    /// The sequence number from which on nothing is missing; one more than the newest if none is held. Rare events may be
    /// held from before.
    fn oldest(&self) -> u64 {
        self.frequent.lost.max(self.rare.lost) + 1
    }

    /// The events from `first` on, in order.
    fn since(&self, first: u64) -> impl Iterator<Item = &Arc<LogEvent>> {
        let mut frequent = self.frequent.since(first).peekable();
        let mut rare = self.rare.since(first).peekable();
        std::iter::from_fn(move || match (frequent.peek(), rare.peek()) {
            (Some(a), Some(b)) if b.sequence < a.sequence => rare.next(),
            (Some(_), _) => frequent.next(),
            (None, _) => rare.next(),
        })
    }

    /// All events that are held, the newest of each sort last. Only pointers are copied.
    fn all(&self) -> Past {
        let copy = |ring: &Ring| ring.events.iter().map(Arc::clone).collect();
        Past { frequent: copy(&self.frequent), rare: copy(&self.rare) }
    }
}

/// The events that were held at one moment. No lock is held while they are looked at.
struct Past {
    frequent: Vec<Arc<LogEvent>>,
    rare: Vec<Arc<LogEvent>>,
}

impl Past {
    /// The sequence number of the first of the last `count` events that are wanted.
    fn last(&self, count: usize, wanted: &mut dyn FnMut(&LogEvent) -> bool) -> Option<u64> {
        let mut newest = |events: &[Arc<LogEvent>]| {
            let matching = events.iter().rev().filter(|event| wanted(event));
            matching.take(count).map(|event| event.sequence).collect::<Vec<_>>()
        };
        let mut matching = newest(&self.frequent);
        matching.extend(newest(&self.rare));
        matching.sort_unstable_by_key(|sequence| Reverse(*sequence));
        matching.truncate(count);
        matching.last().copied()
    }
}

struct Ring {
    events: VecDeque<Arc<LogEvent>>,
    capacity: usize,
    /// Sequence number of the newest event that had to leave; 0 while none had to.
    lost: u64,
}

impl Ring {
    fn new(capacity: usize) -> Self {
        Self { events: VecDeque::new(), capacity: capacity.max(1), lost: 0 }
    }

    /// Takes an event in; the one that had to leave for it.
    fn push(&mut self, event: Arc<LogEvent>) -> Option<Arc<LogEvent>> {
        let evicted = if self.events.len() == self.capacity { self.events.pop_front() } else { None };
        if let Some(evicted) = &evicted {
            self.lost = evicted.sequence;
        }
        self.events.push_back(event);
        evicted
    }

    fn since(&self, first: u64) -> impl Iterator<Item = &Arc<LogEvent>> {
        self.events.range(self.events.partition_point(|event| event.sequence < first)..)
    }
}

/// Where a reader starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the next event.
    #[default]
    Live,
    /// After this sequence number.
    Since(u64),
    /// With the last so many that match.
    Last(usize),
}

/// A reader that asked for what can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the newest sequence number is {newest}")]
pub struct CannotStart {
    /// The newest sequence number.
    pub newest: u64,
}

/// What a reader gets.
#[derive(Clone, Debug)]
pub enum LogItem {
    /// Where it begins: always first.
    Started {
        /// Sequence number from which on nothing is missing.
        oldest: u64,
        /// Newest sequence number.
        newest: u64,
    },
    /// An event that matches.
    Event(Arc<LogEvent>),
    /// Events `first..=last` left the log before the reader got there, and it may have wanted them.
    Dropped {
        /// First of them.
        first: u64,
        /// Last of them.
        last: u64,
    },
    /// All of the past has been read, up to this sequence number.
    ReplayFinished(u64),
}

impl EventLog {
    /// An empty log for `capacity` events, and a quarter as many rare ones; called `id`, unique per process.
    pub fn new(id: impl Into<String>, capacity: usize, clock: SharedClock) -> Self {
        Self {
            id: id.into(),
            clock,
            rings: Mutex::new(Rings {
                frequent: Ring::new(memory_size(capacity)),
                rare: Ring::new(memory_size(capacity / RARE_PART)),
                newest: 0,
            }),
            readers: AtomicUsize::new(0),
            published: Notify::new(),
            wakes: latest::Sender::new(0),
        }
    }

    /// Its unique name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Readers at present.
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst)
    }

    /// Takes an event in. Never blocks for longer than it takes to push or copy a few pointers.
    pub fn publish(
        &self,
        controller: Option<&'static str>,
        object: Option<ObjectRef>,
        trace_id: Option<TraceId>,
        body: Body,
    ) {
        let mut event = LogEvent {
            sequence: 0,
            time: self.clock.now(),
            severity: body.severity(),
            controller,
            object,
            trace_id,
            body,
            encoded: OnceLock::new(),
        };
        // Freed after the lock is.
        let evicted = {
            let mut rings = self.rings.lock();
            rings.newest += 1;
            event.sequence = rings.newest;
            let is_rare = RARE.contains(&event.body.event_type());
            let ring = if is_rare { &mut rings.rare } else { &mut rings.frequent };
            ring.push(Arc::new(event))
        };
        drop(evicted);
        // A reader counts itself before it looks into the ring: whoever is not counted yet will see the event.
        if self.readers() > 0 {
            self.published.notify_one();
        }
    }

    /// Wakes readers when there is something to read, for ever.
    pub async fn run(&self) {
        loop {
            self.published.notified().await;
            self.wakes.send_modify(|wakes| *wakes = wakes.wrapping_add(1));
            let readers = u32::try_from(self.readers()).unwrap_or(u32::MAX);
            let pause = PUMP_INTERVAL.saturating_add(PUMP_PER_READER.saturating_mul(readers));
            tokio::time::sleep(pause.min(PUMP_LONGEST)).await;
        }
    }

    /// A reader from `start` on, of what matches `filter`. With `replay_only` it ends where the past does.
    pub fn read(
        self: &Arc<Self>,
        filter: Filter,
        start: Start,
        replay_only: bool,
    ) -> Result<LogReader, CannotStart> {
        let wakes = self.wakes.subscribe();
        self.readers.fetch_add(1, Ordering::SeqCst);
        // From here on the drop of `reader` takes it off the count.
        let mut reader = LogReader {
            log: Arc::clone(self),
            wants_frequent: filter.wants_frequent(),
            filter,
            next: 0,
            misses_from: 0,
            replay_until: Some(0),
            replay_only,
            pending: VecDeque::new(),
            wakes,
        };
        let position = self.position(start, &mut |event| reader.filter.matches(event))?;
        let Position { oldest, newest, next } = position;
        reader.next = next;
        // 0, like the last so many, asks for no more than there is: what left before is no loss.
        if matches!(start, Start::Since(0) | Start::Last(_)) {
            reader.misses_from = oldest;
        }
        reader.replay_until = Some(newest);
        reader.pending.push_back(LogItem::Started { oldest, newest });
        Ok(reader)
    }

    /// Where a reader starts. `wanted` is the caller's, and takes as long as it likes: publishers do not wait for it.
    pub(super) fn position(
        &self,
        start: Start,
        wanted: &mut dyn FnMut(&LogEvent) -> bool,
    ) -> Result<Position, CannotStart> {
        let (oldest, newest, past) = {
            let rings = self.rings.lock();
            let past = matches!(start, Start::Last(_)).then(|| rings.all());
            (rings.oldest(), rings.newest, past)
        };
        let next = match (start, past) {
            (Start::Since(since), _) if since > newest => return Err(CannotStart { newest }),
            (Start::Since(since), _) => since + 1,
            (Start::Last(count), Some(past)) => past.last(count, wanted).unwrap_or(newest + 1),
            (Start::Live | Start::Last(_), _) => newest + 1,
        };
        Ok(Position { oldest, newest, next })
    }
}

/// Where a reader starts.
pub(super) struct Position {
    /// Sequence number from which on nothing is missing.
    oldest: u64,
    /// Newest sequence number.
    newest: u64,
    /// Sequence number of the first event to look at.
    next: u64,
}

/// Follows the log. Slow as it may be, it holds at most one batch and delays nobody.
pub struct LogReader {
    log: Arc<EventLog>,
    filter: Filter,
    /// Whether the filter lets through any but rare events.
    wants_frequent: bool,
    /// Sequence number of the next event to look at.
    next: u64,
    /// Sequence number from which on what has left the log is told of.
    misses_from: u64,
    /// Newest event of the past, until it has been read.
    replay_until: Option<u64>,
    replay_only: bool,
    pending: VecDeque<LogItem>,
    wakes: latest::Receiver<u64>,
}

impl LogReader {
    /// The next item; `None` at the end of a replay. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Option<LogItem> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(item);
            }
            // Seen before the ring is looked into: what is published after that wakes us.
            self.wakes.mark_unchanged();
            if self.fill() {
                continue;
            }
            if self.replay_until.is_some_and(|until| self.next > until) {
                self.replay_until = None;
                return Some(LogItem::ReplayFinished(self.next - 1));
            }
            if self.replay_until.is_none() && self.replay_only {
                return None;
            }
            // The log outlives its readers, so this can't fail.
            self.wakes.changed().await.ok()?;
        }
    }

    /// Takes the next batch out of the log; `false` when there was nothing to take.
    fn fill(&mut self) -> bool {
        let mut batch: [Option<Arc<LogEvent>>; BATCH] = [const { None }; BATCH];
        let first = self.next;
        let (last, lost_rare) = {
            let rings = self.log.rings.lock();
            let last = self.replay_until.unwrap_or(rings.newest);
            let events = rings.since(first).take_while(|event| event.sequence <= last);
            for (slot, event) in batch.iter_mut().zip(events) {
                *slot = Some(Arc::clone(event));
            }
            (last, rings.rare.lost)
        };
        let is_full = batch.last().is_some_and(Option::is_some);
        for event in batch.into_iter().flatten() {
            self.go_on_to(event.sequence, lost_rare);
            self.next = event.sequence + 1;
            if self.filter.matches(&event) {
                self.pending.push_back(LogItem::Event(event));
            }
        }
        if !is_full {
            self.go_on_to(last + 1, lost_rare);
        }
        self.next > first
    }

    /// Goes on to the event `next`, and tells of those before it that are missing, unless they are none that this reader
    /// wants: what is missing after `lost_rare` was not rare.
    fn go_on_to(&mut self, next: u64, lost_rare: u64) {
        let first = self.next.max(self.misses_from);
        let last = if self.wants_frequent { next - 1 } else { lost_rare.min(next - 1) };
        if first <= last {
            self.pending.push_back(LogItem::Dropped { first, last });
        }
        self.next = self.next.max(next);
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.log.readers.fetch_sub(1, Ordering::SeqCst);
    }
}
