//! The wall clock where managers run: it is a little wrong, and now and then somebody sets it.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

use coxswain_machinery::model::clock::{Clock, RuntimeClock};

/// A clock that all managers of a place read, one after the other.
pub(crate) struct WallClock {
    right: RuntimeClock,
    /// By how many seconds it is wrong.
    off: AtomicI64,
    /// By how many it is when nobody has set it.
    usual: i64,
}

impl WallClock {
    /// A clock that shows `start` now, but for so many seconds.
    pub(crate) fn new(start: Timestamp, off: i64) -> Self {
        Self { right: RuntimeClock::new(start), off: AtomicI64::new(off), usual: off }
    }

    /// Sets it wrong by so many seconds more than usual.
    pub(crate) fn set(&self, wrong: i64) {
        self.off.store(self.usual + wrong, Ordering::SeqCst);
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        self.right.now() + SignedDuration::from_secs(self.off.load(Ordering::SeqCst))
    }
}
