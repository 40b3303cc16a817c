//! How long a key that failed has to wait: exponential backoff of its own, and a token bucket shared by all.

use std::time::Duration;

use tokio::time::Instant;

use crate::bounds::memory_size;
use crate::model::backoff::ExponentialBackoff;
use crate::model::bucket::{BucketLevel, TokenBucket};
use crate::random::HashMap;

/// How a queue delays keys that are added with [`add_rate_limited`](super::WorkQueue::add_rate_limited), and how exactly it keeps
/// delays. That delay is the longer of backoff and bucket. The default is that of most controllers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueConfig {
    /// Backoff after a key's first failure; it doubles with each further one.
    pub base_delay: Duration,
    /// The longest backoff.
    pub max_delay: Duration,
    /// Overall limit; `None` for none. See [`fair_by`](super::WorkQueue::fair_by).
    pub bucket: Option<BucketConfig>,
    /// How long after a delay the key may be taken up at most while the queue is idle (timer slack): keys that are due soon after
    /// one another are taken up together, and so are their requests. What is added without a delay never waits for it.
    pub slack: Duration,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketConfig {
    /// Tokens per second; must be above 0.
    pub qps: f64,
    /// Tokens that a full bucket holds.
    pub burst: u32,
}

/// The longest backoff by default.
const LONGEST_BACKOFF: Duration = Duration::from_secs(1000);

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: LONGEST_BACKOFF,
            bucket: Some(BucketConfig { qps: 10.0, burst: 100 }),
            slack: Duration::ZERO,
        }
    }
}

impl QueueConfig {
    /// Whether a retry after this backoff takes a token of the bucket. One after [`LONGEST_BACKOFF`] takes none: its own backoff bounds its
    /// rate, and keys that fail for ever would otherwise delay the retries of all others.
    pub(super) fn takes_token(backoff: Duration) -> bool {
        backoff < LONGEST_BACKOFF
    }

    /// The delay after a failure, when there were `failures` before it.
    pub(super) fn backoff(&self, failures: u32) -> Duration {
        ExponentialBackoff::doubling(self.base_delay, self.max_delay).after(failures)
    }

    /// The delay of a key that is to be worked on again although nothing came of it, when that happened `times` in a row before.
    /// Begins with 5 ms even if failures begin with more: mostly the key has a timer that fired early.
    pub(super) fn hold_off(&self, times: u32) -> Duration {
        let base = self.base_delay.min(Self::default().base_delay);
        ExponentialBackoff::doubling(base, self.max_delay).after(times)
    }
}

/// The retries of one part of the keys, such as a namespace, beside those of the others: who has used up a bucket of its own waits for
/// that, and leaves the shared one to the others. With one part the delays are those of the shared bucket alone.
#[derive(Debug)]
pub(super) struct Shares {
    config: BucketConfig,
    /// By hashes of the parts. Parts whose hashes are equal share a bucket.
    buckets: HashMap<u64, Bucket>,
    sweep_at: usize,
}

/// Buckets of parts that are kept without a look at whether they are used.
const KEEP_SHARES: usize = 64;

impl Shares {
    pub(super) fn new(config: BucketConfig) -> Self {
        Self { config, buckets: HashMap::default(), sweep_at: memory_size(KEEP_SHARES) }
    }

    /// Takes a token for a part, and returns how long to wait for it.
    pub(super) fn reserve(&mut self, part: u64, shared: &mut Bucket, now: Instant) -> Duration {
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            self.sweep_at = self.buckets.len() * 2 + memory_size(KEEP_SHARES);
        }
        let own = self.buckets.entry(part).or_insert_with(|| Bucket::new(self.config));
        let delay = own.reserve(now);
        if delay.is_zero() { shared.reserve(now) } else { delay }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }
}

/// A token bucket from which one may take in advance.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: TokenBucket,
    level: BucketLevel,
    began: Instant,
}

impl Bucket {
    pub(crate) fn new(config: BucketConfig) -> Self {
        let rate = TokenBucket::per_second(config.qps, config.burst);
        Self { rate, level: BucketLevel::default(), began: Instant::now() }
    }

    fn since_beginning(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Takes a token, and says how long to wait until it is there.
    pub(super) fn reserve(&mut self, now: Instant) -> Duration {
        let now = self.since_beginning(now);
        self.rate.reserve(&mut self.level, now)
    }

    /// Takes a token if there is one; otherwise says how long until there is.
    pub(crate) fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let wait = self.rate.wait_for(self.level, self.since_beginning(now), 1);
        if wait.is_zero() {
            self.reserve(now);
            Ok(())
        } else {
            Err(wait)
        }
    }

    /// Whether nothing of it is used.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.level.is_full(self.since_beginning(now))
    }

    /// Goes on with another rate and burst. Tokens that were taken stay taken.
    pub(crate) fn retune(&mut self, config: BucketConfig, now: Instant) {
        let bucket = TokenBucket::per_second(config.qps, config.burst);
        self.level = self.rate.retuned(bucket, self.level, self.since_beginning(now));
        self.rate = bucket;
    }
}
