//! [`TokenBucket`]: so many at once, and one more after each interval. Pure: who asks says what time it is.
//!
//! It keeps one number, when the bucket will be full again, so there are no tokens to count up, and a bucket for each of
//! thousands of objects costs a word. Times are durations since a moment of the asker's choice.

use std::time::Duration;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    interval: Duration,
    capacity: Duration,
}

/// How full a bucket is: when it will be full again. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketLevel(Duration);

impl BucketLevel {
    /// Whether no token is missing.
    pub fn is_full(self, now: Duration) -> bool {
        self.0 <= now
    }
}

impl TokenBucket {
    /// One token per `interval`, and at most `burst` of them.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, capacity: interval.saturating_mul(burst) }
    }

    /// So many tokens per second. A rate that is none (0, negative, NaN) gives the burst, and then practically nothing.
    pub fn per_second(rate: f64, burst: u32) -> Self {
        let seconds = if rate > 0.0 { rate.recip() } else { f64::NAN };
        Self::new(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(24)), burst)
    }

    /// Takes a token, in advance if there is none, and says how long to wait until it is there.
    pub fn reserve(self, level: &mut BucketLevel, now: Duration) -> Duration {
        level.0 = level.0.max(now).saturating_add(self.interval);
        level.0.saturating_sub(now).saturating_sub(self.capacity)
    }

    /// How long until there are so many tokens, of which it must hold as many.
    pub fn wait_for(self, level: BucketLevel, now: Duration, tokens: u32) -> Duration {
        let full_at = level.0.max(now).saturating_add(self.interval.saturating_mul(tokens));
        full_at.saturating_sub(now).saturating_sub(self.capacity)
    }

    /// The level of a bucket that goes on as another, with other tokens: those that were taken stay taken.
    pub fn retuned(self, other: Self, level: BucketLevel, now: Duration) -> BucketLevel {
        if self == other {
            return level;
        }
        let taken = level.0.saturating_sub(now).as_secs_f64() / self.interval.as_secs_f64();
        let taken =
            Duration::try_from_secs_f64(other.interval.as_secs_f64() * taken).unwrap_or(other.capacity);
        BucketLevel(now.saturating_add(taken))
    }

    /// Takes a token if there is one, and says whether there was. A clock that was set back empties a bucket at most.
    pub fn take(self, level: &mut BucketLevel, now: Duration) -> bool {
        let empty = now.saturating_add(self.capacity);
        let after = level.0.clamp(now, empty).saturating_add(self.interval);
        let is_there = after <= empty;
        level.0 = if is_there { after } else { level.0.min(empty) };
        is_there
    }

    /// Gives back a token that was taken and not used.
    pub fn give_back(self, level: &mut BucketLevel) {
        level.0 = level.0.saturating_sub(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_one_after_each_interval() {
        let bucket = TokenBucket::new(SECOND, 2);
        let mut level = BucketLevel::default();
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        let taken = [0, 0, 0, 5, 10, 11, 20, 100, 100, 100].map(|tenths| bucket.take(&mut level, at(tenths)));
        assert_eq!(taken, [true, true, false, false, true, false, true, true, true, false]);
        // In advance, each waits for its own.
        let mut level = BucketLevel::default();
        let waits = [0, 0, 0, 0, 25].map(|tenths| bucket.reserve(&mut level, at(tenths)).as_millis());
        assert_eq!(waits, [0, 0, 1000, 2000, 500]);
        let waits = [0, 1, 2].map(|tokens| bucket.wait_for(level, at(50), tokens).as_millis());
        assert_eq!(waits, [0, 0, 0]);
        let waits = [0, 1, 2].map(|tokens| bucket.wait_for(level, at(30), tokens).as_millis());
        assert_eq!(waits, [0, 1000, 2000]);
    }

    #[test]
    fn rates_that_are_none_give_the_burst_alone() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let (bucket, mut level) = (TokenBucket::per_second(rate, 1), BucketLevel::default());
            assert!(bucket.reserve(&mut level, SECOND).is_zero());
            assert!(bucket.reserve(&mut level, SECOND) >= Duration::from_hours(23), "{rate}");
        }
        let (bucket, mut level) = (TokenBucket::per_second(f64::INFINITY, 0), BucketLevel::default());
        assert!(bucket.reserve(&mut level, SECOND).is_zero());
    }

    #[test]
    fn a_clock_that_was_set_back_empties_a_bucket_at_most() {
        let bucket = TokenBucket::new(SECOND, 3);
        let mut level = BucketLevel::default();
        assert!(bucket.take(&mut level, Duration::from_hours(9)));
        assert!(!bucket.take(&mut level, Duration::from_hours(1)));
        assert!(bucket.take(&mut level, Duration::from_hours(1) + SECOND));
    }

    proptest! {
        /// In any stretch of time no more tokens are given than the burst and what it earns.
        #[test]
        fn no_more_is_given_than_there_is(
            interval in 1_u64..50, burst in 0_u32..10, steps in prop::collection::vec(0_u64..100, 1..60),
        ) {
            let bucket = TokenBucket::new(Duration::from_millis(interval), burst);
            let (mut level, mut now, mut given) = (BucketLevel::default(), 0, 0_u64);
            for step in steps {
                now += step;
                given += u64::from(bucket.take(&mut level, Duration::from_millis(now)));
                prop_assert!(given <= u64::from(burst) + now / interval);
            }
        }
    }
}
