//! How long to wait after a failure: 800 ms, doubling up to 30 s, from the start again after two minutes of health.

use std::time::Duration;

use crate::model::backoff::ExponentialBackoff;

/// The first wait.
const FIRST: Duration = Duration::from_millis(800);
/// The longest wait; the driver's jitter at most doubles it.
const LONGEST: Duration = Duration::from_secs(30);
/// Health of this length makes earlier failures forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_mins(2);

/// Failures so far. Times are durations since any fixed moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::informer) struct Backoff {
    longest: Duration,
    failures: u32,
    free_used: bool,
    well_since: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Backoff {
    /// One that never waits for longer than `longest`.
    pub(in crate::informer) fn up_to(longest: Duration) -> Self {
        Self { longest, failures: 0, free_used: false, well_since: None }
    }

    /// Something succeeded.
    pub(in crate::informer) fn well(&mut self, at: Duration) {
        self.well_since.get_or_insert(at);
    }

    /// Something new was received: whatever fails next is not a repetition of what failed before. It is waited for
    /// again from the first pause, not from none.
    pub(super) fn progress(&mut self) {
        self.failures = 0;
    }

    /// What failed before has nothing to do with what fails next, which is not waited for the first time.
    pub(super) fn begin_anew(&mut self) {
        self.failures = 0;
        self.free_used = false;
    }

    /// Something failed: how long to wait before the next try.
    pub(in crate::informer) fn fail(&mut self, at: Duration) -> Duration {
        self.forgive(at);
        ExponentialBackoff::doubling(FIRST, self.longest).next(&mut self.failures)
    }

    /// What was well until now has come to an end: nothing to wait for the first time, [`Backoff::fail`] after that.
    pub(super) fn lapse(&mut self, at: Duration) -> Option<Duration> {
        self.forgive(at);
        if self.failures == 0 && !self.free_used {
            self.free_used = true;
            return None;
        }
        Some(self.fail(at))
    }

    fn forgive(&mut self, at: Duration) {
        if self.well_since.take().is_some_and(|since| at.saturating_sub(since) >= FORGIVEN_AFTER) {
            self.failures = 0;
            self.free_used = false;
        }
    }
}
