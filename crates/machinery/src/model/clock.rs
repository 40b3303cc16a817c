//! The injected clock: the only place in the project that asks what time it is.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Tells the wall-clock time. Durations are measured with tokio's clock, which tests can pause.
pub trait Clock: Send + Sync + 'static {
    /// The present time.
    fn now(&self) -> Timestamp;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the injected clock's one source")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that goes with tokio's, which tests can pause.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    /// What it showed at `began`.
    start: Timestamp,
    began: tokio::time::Instant,
}

impl RuntimeClock {
    /// A clock that shows `start` now.
    pub fn new(start: Timestamp) -> Self {
        Self { start, began: tokio::time::Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let passed = jiff::SignedDuration::try_from(self.began.elapsed());
        self.start.saturating_add(passed.unwrap_or(jiff::SignedDuration::MAX)).unwrap_or(self.start)
    }
}

/// Measures how long something lasts, by tokio's clock, which nobody sets: for what rooms remember.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    /// One that begins now.
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// The time since it was started.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A point of a steady clock: the time since that clock was started.
///
/// Nobody sets a steady clock, so differences of its times are durations. Its times mean nothing outside of the process: there is
/// no conversion to or from a wall-clock time, so that none can end up in an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SteadyTime(Duration);

impl SteadyTime {
    /// Returns the time `by` later, or the latest one there is.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Returns how long ago `earlier` was; zero if it is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A clock for what a controller remembers, by tokio's time, which tests can pause. Shows [`SteadyTime`]s.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock(SteadySource);

#[derive(Clone, Copy, Debug)]
enum SteadySource {
    Started(tokio::time::Instant),
    Stopped(SteadyTime),
}

impl SteadyClock {
    /// Starts a clock.
    pub fn start() -> Self {
        Self(SteadySource::Started(tokio::time::Instant::now()))
    }

    /// Returns a clock that always shows `at`, for tests.
    pub fn stopped_at(at: SteadyTime) -> Self {
        Self(SteadySource::Stopped(at))
    }

    /// The present time.
    pub fn now(&self) -> SteadyTime {
        match self.0 {
            SteadySource::Started(start) => SteadyTime(start.elapsed()),
            SteadySource::Stopped(at) => at,
        }
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that shows `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(Mutex::new(at))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock();
        *now = now
            .saturating_add(jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX))
            .unwrap_or(*now);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
