//! The ring and its readers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::filter::Filter;
use super::record::{Body, LogEvent, ObjectRef};
use crate::admin::manager::TraceId;
use crate::model::clock::SharedClock;

/// Readers are woken at most once in this time, each time for all that has come,
const PUMP_INTERVAL: Duration = Duration::from_millis(20);
/// and this much more for each of them, so that many readers cost more delay and not more wakeups.
const PUMP_PER_READER: Duration = Duration::from_micros(200);
/// However many they are, nobody waits longer for an event than this.
const PUMP_LONGEST: Duration = Duration::from_millis(250);
/// Events that a reader takes out of the ring at a time, which is what it holds at most beyond the ring.
const BATCH: usize = 256;

/// The log. Share it in an `Arc`; somebody must drive [`EventLog::run`].
pub struct EventLog {
    id: String,
    clock: SharedClock,
    capacity: usize,
    ring: Mutex<Ring>,
    readers: AtomicUsize,
    published: Notify,
    wakes: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<LogEvent>>,
    /// Sequence number of the newest event; 0 before the first.
    newest: u64,
}

impl Ring {
    /// The oldest sequence number held; one more than the newest if none is.
    fn oldest(&self) -> u64 {
        self.newest + 1 - self.events.len() as u64
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
        /// Oldest sequence number in the ring.
        oldest: u64,
        /// Newest sequence number.
        newest: u64,
    },
    /// An event that matches.
    Event(Arc<LogEvent>),
    /// Events `first..=last` left the ring before the reader got there.
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
    /// An empty log for `capacity` events, called `id`: unique per process.
    pub fn new(id: impl Into<String>, capacity: usize, clock: SharedClock) -> Self {
        Self {
            id: id.into(),
            clock,
            capacity: capacity.max(1),
            ring: Mutex::default(),
            readers: AtomicUsize::new(0),
            published: Notify::new(),
            wakes: watch::Sender::new(0),
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
            let mut ring = self.ring.lock();
            ring.newest += 1;
            event.sequence = ring.newest;
            let evicted = if ring.events.len() == self.capacity { ring.events.pop_front() } else { None };
            ring.events.push_back(Arc::new(event));
            evicted
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
            filter,
            next: 0,
            replay_until: Some(0),
            replay_only,
            pending: VecDeque::new(),
            wakes,
        };
        let ring = self.ring.lock();
        let (oldest, newest) = (ring.oldest(), ring.newest);
        reader.next = match start {
            Start::Live => newest + 1,
            Start::Since(since) if since > newest => return Err(CannotStart { newest }),
            Start::Since(since) => since + 1,
            Start::Last(count) => {
                let matching = ring.events.iter().rev().filter(|event| reader.filter.matches(event));
                match count {
                    0 => newest + 1,
                    _ => matching.take(count).last().map_or(newest + 1, |event| event.sequence),
                }
            }
        };
        // The beginning of the log is no loss, and 0 asks for no more than there is.
        if matches!(start, Start::Since(0)) {
            reader.next = oldest;
        }
        reader.replay_until = Some(newest);
        drop(ring);
        reader.pending.push_back(LogItem::Started { oldest, newest });
        Ok(reader)
    }
}

/// Follows the log. Slow as it may be, it holds at most one batch and delays nobody.
pub struct LogReader {
    log: Arc<EventLog>,
    filter: Filter,
    /// Sequence number of the next event to look at.
    next: u64,
    /// Newest event of the past, until it has been read.
    replay_until: Option<u64>,
    replay_only: bool,
    pending: VecDeque<LogItem>,
    wakes: watch::Receiver<u64>,
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

    /// Takes the next batch out of the ring; `false` when there was nothing to take.
    fn fill(&mut self) -> bool {
        let mut batch: [Option<Arc<LogEvent>>; BATCH] = [const { None }; BATCH];
        let first = self.next;
        let oldest = {
            let ring = self.log.ring.lock();
            let last = self.replay_until.unwrap_or(ring.newest);
            let oldest = ring.oldest();
            let from = first.max(oldest);
            let skip = (from - oldest) as usize;
            let count = (last + 1).saturating_sub(from).min(BATCH as u64) as usize;
            for (slot, event) in batch.iter_mut().zip(ring.events.iter().skip(skip).take(count)) {
                *slot = Some(Arc::clone(event));
            }
            oldest
        };
        if first < oldest {
            self.pending.push_back(LogItem::Dropped { first, last: oldest - 1 });
            self.next = oldest;
        }
        for event in batch.into_iter().flatten() {
            self.next = event.sequence + 1;
            if self.filter.matches(&event) {
                self.pending.push_back(LogItem::Event(event));
            }
        }
        self.next > first
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.log.readers.fetch_sub(1, Ordering::SeqCst);
    }
}
