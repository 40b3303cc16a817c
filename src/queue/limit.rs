//! How long a key that failed has to wait: exponential backoff of its own, and a token bucket shared by all.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::backoff::ExponentialBackoff;

/// How a queue delays keys that are added with [`add_rate_limited`](super::WorkQueue::add_rate_limited). The delay is
/// the longer of backoff and bucket. The default is that of most controllers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueConfig {
    /// Backoff after a key's first failure; it doubles with each further one.
    pub base_delay: Duration,
    /// The longest backoff.
    pub max_delay: Duration,
    /// Overall limit; `None` for none.
    pub bucket: Option<BucketConfig>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketConfig {
    /// Tokens per second; must be above 0.
    pub qps: f64,
    /// Tokens that a full bucket holds.
    pub burst: u32,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            bucket: Some(BucketConfig { qps: 10.0, burst: 100 }),
        }
    }
}

impl QueueConfig {
    /// The delay after a failure, when there were `failures` before it.
    pub(super) fn backoff(&self, failures: u32) -> Duration {
        ExponentialBackoff { base: self.base_delay, longest: self.max_delay }.after(failures)
    }
}

/// A token bucket from which one may take in advance. It keeps one number: when the bucket will be full again.
#[derive(Debug)]
pub(crate) struct Bucket {
    interval: Duration,
    capacity: Duration,
    full_at: Option<Instant>,
}

impl Bucket {
    pub(crate) fn new(config: BucketConfig) -> Self {
        // A rate that is no rate (0, negative, NaN) hands out the burst and then practically nothing.
        let interval = Duration::try_from_secs_f64(config.qps.recip()).unwrap_or(Duration::from_hours(24));
        Self { interval, capacity: interval.saturating_mul(config.burst), full_at: None }
    }

    /// Takes a token, and says how long to wait until it is there.
    pub(super) fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let full_at = full_at.checked_add(self.interval).unwrap_or(full_at);
        self.full_at = Some(full_at);
        full_at.duration_since(now).saturating_sub(self.capacity)
    }

    /// Takes a token if there is one; otherwise says how long until there is.
    pub(crate) fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let before = self.full_at;
        match self.reserve(now) {
            Duration::ZERO => Ok(()),
            wait => {
                self.full_at = before;
                Err(wait)
            }
        }
    }

    /// Whether nothing of it is used.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }

    /// Goes on with another rate and burst. Tokens that were taken stay taken.
    pub(crate) fn retune(&mut self, config: BucketConfig, now: Instant) {
        let Self { interval, capacity, .. } = Self::new(config);
        if (self.interval, self.capacity) == (interval, capacity) {
            return;
        }
        let taken = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let factor = taken.as_secs_f64() / self.interval.as_secs_f64();
        let taken = Duration::try_from_secs_f64(interval.as_secs_f64() * factor).unwrap_or(capacity);
        *self = Self { interval, capacity, full_at: now.checked_add(taken) };
    }
}
