//! The states of all controllers, computed once for all streams that show them, and the details of queues, computed once for all callers.
//!
//! Streams are told of counts at ticks, which they share whatever their intervals are, and of other changes at most ten times a second.
//! So the number of streams and of calls adds nothing to the locks of queues that a computation takes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::admin::convert;
use crate::admin::manager::{Manager, QueueDetail};
use crate::admin::proto;
use crate::admin::validate::MOST_KEYS;
use coxswain_machinery::latest;
use coxswain_machinery::random::HashMap;

/// The time between two ticks: the shortest interval that a stream may ask for.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// The time from a computation to the next one for a change, and the age up to which the details of a queue are shown.
const PAUSE: Duration = Duration::from_millis(100);

/// A controller.
pub(super) struct ControllerRow {
    pub(super) controller: proto::Controller,
    /// The same without counts.
    plain: proto::Controller,
}

impl ControllerRow {
    /// Whether nothing has changed; counts alone are no change unless `counts`.
    pub(super) fn is_same(self: &Arc<Self>, other: &Arc<Self>, counts: bool) -> bool {
        let is_equal =
            || if counts { self.controller == other.controller } else { self.plain == other.plain };
        Arc::ptr_eq(self, other) || is_equal()
    }
}

/// All controllers at one time, by name.
pub(super) struct ControllerRows {
    pub(super) rows: Vec<Arc<ControllerRow>>,
    pub(super) invalid_overrides: Vec<proto::InvalidOverride>,
}

impl ControllerRows {
    fn compute(manager: &dyn Manager) -> Self {
        let (overrides, now) = (manager.overrides(), manager.now());
        let rows = manager.controllers().into_iter().map(|state| {
            let controller = convert::controller(&state, &overrides, now);
            Arc::new(ControllerRow { plain: convert::without_counts(controller.clone()), controller })
        });
        let invalid_overrides = overrides.problems().iter().map(convert::invalid).collect();
        Self { rows: rows.collect(), invalid_overrides }
    }
}

/// The last computation, for all streams.
pub(super) struct Snapshots {
    manager: Arc<dyn Manager>,
    changes: latest::Receiver<u64>,
    /// The first tick.
    origin: Instant,
    last: Mutex<Option<Last>>,
}

struct Last {
    /// Read before the computation began.
    at: Instant,
    change: u64,
    rows: Arc<ControllerRows>,
}

impl Snapshots {
    pub(super) fn new(manager: Arc<dyn Manager>) -> Self {
        let changes = manager.changes();
        Self { manager, changes, origin: Instant::now(), last: Mutex::default() }
    }

    /// Returns the controllers as they were at the last tick or later, and after the last change.
    pub(super) fn read(&self) -> Arc<ControllerRows> {
        let mut last = self.last.lock();
        let (at, change) = (Instant::now(), *self.changes.borrow());
        if let Some(held) = &*last
            && held.change == change
            && held.at >= self.tick_before(at)
        {
            return Arc::clone(&held.rows);
        }
        let rows = Arc::new(ControllerRows::compute(&*self.manager));
        *last = Some(Last { at, change, rows: Arc::clone(&rows) });
        rows
    }

    /// Returns when a change may be read.
    pub(super) fn next_read(&self) -> Instant {
        let now = Instant::now();
        self.last.lock().as_ref().map_or(now, |last| now.max(last.at + PAUSE))
    }

    /// Returns the first tick that is at least `interval` away.
    pub(super) fn tick_after(&self, interval: Duration) -> Instant {
        self.tick_at(Instant::now() + interval)
    }

    /// Returns the first tick that is at least `interval` after the latest tick, for streams that have just sent at that tick. Timers fire
    /// up to a millisecond late, so [`Self::tick_after`] would return the tick after it.
    pub(super) fn tick_after_last(&self, interval: Duration) -> Instant {
        self.tick_at(self.tick_before(Instant::now()) + interval)
    }

    /// Returns the first tick at or after `least`.
    fn tick_at(&self, least: Instant) -> Instant {
        let tick = self.tick_before(least);
        if tick < least { tick + TICK } else { tick }
    }

    fn tick_before(&self, time: Instant) -> Instant {
        let since = time.saturating_duration_since(self.origin);
        self.origin + Duration::from_secs(since.as_secs())
    }
}

/// The last details of each queue. A computation visits all keys of the queue under its lock. Details are dropped after [`PAUSE`], the time
/// for which they are returned again, so that a replica that no longer leads keeps no keys.
pub(super) struct QueueDetails {
    manager: Arc<dyn Manager>,
    held: Arc<Mutex<HashMap<&'static str, CachedDetail>>>,
    /// The tasks that drop details.
    expiry: Mutex<JoinSet<()>>,
}

type CachedDetail = (Instant, Arc<QueueDetail>);

impl QueueDetails {
    pub(super) fn new(manager: Arc<dyn Manager>) -> Self {
        Self { manager, held: Arc::default(), expiry: Mutex::default() }
    }

    /// Returns a queue in detail, with as many keys as a call may ask for; `None` if no running controller has it.
    pub(super) fn read(&self, name: &str) -> Option<Arc<QueueDetail>> {
        let mut held = self.held.lock();
        let now = Instant::now();
        if let Some((at, detail)) = held.get(name)
            && now.duration_since(*at) < PAUSE
        {
            return Some(Arc::clone(detail));
        }
        let Some(detail) = self.manager.queue(name, MOST_KEYS).map(Arc::new) else {
            held.remove(name);
            return None;
        };
        held.insert(detail.state.name, (now, Arc::clone(&detail)));
        self.expire(detail.state.name, now);
        Some(detail)
    }

    /// Drops the details that were computed at `computed` after [`PAUSE`].
    fn expire(&self, name: &'static str, computed: Instant) {
        let held = Arc::clone(&self.held);
        let mut tasks = self.expiry.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            sleep_until(computed + PAUSE).await;
            let mut held = held.lock();
            if held.get(name).is_some_and(|(at, _)| *at == computed) {
                held.remove(name);
            }
        });
    }
}
