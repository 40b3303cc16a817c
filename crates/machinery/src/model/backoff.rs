//! How long to leave alone what has failed: [`ExponentialBackoff`] says how long, [`KeyBackoffs`] keeps it for many keys.
//! Pure: who asks says what time it is.

use std::hash::Hash;
use std::time::Duration;

use super::clock::SteadyTime;
use crate::random::HashMap;

/// A delay that grows by the same factor with each failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialBackoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// By what it grows.
    pub factor: f64,
    /// The longest delay.
    pub longest: Duration,
}

impl ExponentialBackoff {
    /// One that doubles, as most do.
    pub const fn doubling(base: Duration, longest: Duration) -> Self {
        Self { base, factor: 2.0, longest }
    }

    /// The delay after a failure, when there were `failures` before it.
    pub fn after(self, failures: u32) -> Duration {
        let grown = self.factor.powi(i32::try_from(failures).unwrap_or(i32::MAX));
        let delay = Duration::try_from_secs_f64(self.base.as_secs_f64() * grown);
        delay.unwrap_or(self.longest).min(self.longest)
    }

    /// The delay after one more failure, which is counted in `failures`.
    pub fn next(self, failures: &mut u32) -> Duration {
        let delay = self.after(*failures);
        *failures = failures.saturating_add(1);
        delay
    }
}

/// A backoff for each of many keys, for a controller's memory: what fails again and again beside the queue is left alone for
/// longer and longer. It is for failed pods by DaemonSet, generation and node (1 s to 15 min), and for operations on a volume
/// (500 ms to 122 s): attach and detach by node, bind, provision and delete. A key that has not failed for twice the longest
/// delay begins anew.
#[derive(Clone, Debug)]
pub struct KeyBackoffs<K> {
    backoff: ExponentialBackoff,
    failed: HashMap<K, FailedKey>,
}

#[derive(Clone, Copy, Debug)]
struct FailedKey {
    failures: u32,
    last: SteadyTime,
    delay: Duration,
}

impl<K: Eq + Hash> KeyBackoffs<K> {
    /// Nothing has failed yet.
    pub fn new(backoff: ExponentialBackoff) -> Self {
        Self { backoff, failed: HashMap::default() }
    }

    /// A key has failed: how long it is left alone.
    pub fn fail(&mut self, key: K, now: SteadyTime) -> Duration {
        let backoff = self.backoff;
        let anew = FailedKey { failures: 0, last: now, delay: Duration::ZERO };
        let entry = self.failed.entry(key).or_insert(anew);
        if entry.is_over(now, backoff.longest) {
            *entry = anew;
        }
        entry.delay = backoff.next(&mut entry.failures);
        entry.last = now;
        entry.delay
    }

    /// How long a key is still to be left alone; `None` if it is not.
    pub fn remaining(&self, key: &K, now: SteadyTime) -> Option<Duration> {
        let failed = self.failed.get(key)?;
        failed.delay.checked_sub(now.since(failed.last)).filter(|remaining| !remaining.is_zero())
    }

    /// A key is forgotten: it succeeded, or is gone.
    pub fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Forgets the keys that would begin anew. To be called now and then by whoever cannot say when keys go.
    pub fn sweep(&mut self, now: SteadyTime) {
        let longest = self.backoff.longest;
        self.failed.retain(|_, failed| !failed.is_over(now, longest));
    }

    /// Keys that have failed and are not forgotten.
    pub fn len(&self) -> usize {
        self.failed.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }
}

impl FailedKey {
    /// Whether it failed so long ago that this does not count any more.
    fn is_over(self, now: SteadyTime, longest: Duration) -> bool {
        now.since(self.last) > longest.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: u32) -> SteadyTime {
        SteadyTime::default().plus(SECOND * second)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = ExponentialBackoff::doubling(SECOND, SECOND * 6);
        assert_eq!(
            [0, 1, 2, 3, 31, 32, u32::MAX].map(|failures| backoff.after(failures).as_secs()),
            [1, 2, 4, 6, 6, 6, 6]
        );
        let huge = ExponentialBackoff::doubling(Duration::MAX, Duration::MAX);
        assert_eq!(huge.after(1), Duration::MAX);
        let none = ExponentialBackoff::doubling(Duration::ZERO, SECOND);
        assert_eq!([1, 31].map(|failures| none.after(failures)), [Duration::ZERO; 2]);
    }

    #[test]
    fn doubled_delays_are_exact() {
        for base in [Duration::from_millis(5), Duration::from_millis(800), Duration::from_nanos(7)] {
            let backoff = ExponentialBackoff::doubling(base, Duration::MAX);
            for failures in 0..20 {
                assert_eq!(backoff.after(failures), base * 2_u32.pow(failures), "{base:?} after {failures}");
            }
        }
    }

    #[test]
    fn delays_can_grow_by_less() {
        let backoff = ExponentialBackoff { base: SECOND, factor: 1.5, longest: SECOND * 3 };
        let mut failures = 0;
        let delays = [(); 4].map(|()| backoff.next(&mut failures).as_millis());
        assert_eq!((delays, failures), ([1000, 1500, 2250, 3000], 4));
    }

    #[test]
    fn each_key_has_a_backoff_of_its_own() {
        let mut backoffs = KeyBackoffs::new(ExponentialBackoff::doubling(SECOND, SECOND * 60));
        assert_eq!([at(0), at(1)].map(|now| backoffs.fail("a", now)), [SECOND, SECOND * 2]);
        assert_eq!(backoffs.fail("b", at(1)), SECOND);
        assert_eq!(backoffs.remaining(&"a", at(1)), Some(SECOND * 2));
        assert_eq!(backoffs.remaining(&"a", at(2)), Some(SECOND));
        assert_eq!(backoffs.remaining(&"a", at(3)), None);
        assert_eq!(backoffs.remaining(&"c", at(0)), None);
        backoffs.forget(&"a");
        assert_eq!(backoffs.fail("a", at(4)), SECOND);
    }

    #[test]
    fn a_key_that_has_not_failed_for_long_begins_anew() {
        let mut backoffs = KeyBackoffs::new(ExponentialBackoff::doubling(SECOND, SECOND * 10));
        backoffs.fail("a", at(0));
        backoffs.fail("a", at(1));
        assert_eq!(backoffs.fail("a", at(21)), SECOND * 4, "it failed 20 s ago");
        assert_eq!(backoffs.fail("a", at(42)), SECOND, "it failed 21 s ago");
        backoffs.sweep(at(62));
        assert_eq!(backoffs.len(), 1);
        backoffs.sweep(at(63));
        assert!(backoffs.is_empty());
    }
}
