//! How long to leave alone what has failed: [`ExponentialBackoff`] says how long, [`KeyBackoffs`] keeps it for many keys. Pure: who asks says
//! what time it is.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;

/// A delay that doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExponentialBackoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl ExponentialBackoff {
    /// The delay after a failure, when there were `failures` before it.
    pub fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures);
        let delay = factor.and_then(|factor| self.base.checked_mul(factor));
        delay.unwrap_or(self.longest).min(self.longest)
    }
}

/// A backoff for each of many keys, for a controller's memory: what fails again and again beside the queue (pods of a node,
/// operations on a volume) is left alone for longer and longer. A key that has been well for as long as the longest delay
/// begins anew.
#[derive(Clone, Debug)]
pub struct KeyBackoffs<K> {
    backoff: ExponentialBackoff,
    failed: HashMap<K, FailedKey>,
}

#[derive(Clone, Copy, Debug)]
struct FailedKey {
    failures: u32,
    not_before: Timestamp,
}

impl<K: Eq + Hash> KeyBackoffs<K> {
    /// Nothing has failed yet.
    pub fn new(backoff: ExponentialBackoff) -> Self {
        Self { backoff, failed: HashMap::new() }
    }

    /// A key has failed: how long it is left alone.
    pub fn fail(&mut self, key: K, now: Timestamp) -> Duration {
        let (backoff, longest) = (self.backoff, self.backoff.longest);
        let anew = FailedKey { failures: 0, not_before: now };
        let entry = self.failed.entry(key).or_insert(anew);
        if entry.is_well(now, longest) {
            *entry = anew;
        }
        let delay = backoff.after(entry.failures);
        entry.failures = entry.failures.saturating_add(1);
        entry.not_before = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
        delay
    }

    /// How long a key is still to be left alone; `None` if it is not.
    pub fn remaining(&self, key: &K, now: Timestamp) -> Option<Duration> {
        let remaining = self.failed.get(key)?.not_before.duration_since(now);
        Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())
    }

    /// A key is forgotten: it succeeded, or is gone.
    pub fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Forgets the keys that would begin anew. To be called now and then by whoever cannot say when keys go.
    pub fn sweep(&mut self, now: Timestamp) {
        let longest = self.backoff.longest;
        self.failed.retain(|_, failed| !failed.is_well(now, longest));
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
    /// Whether it has not failed for so long after it could have been tried again.
    fn is_well(self, now: Timestamp, longest: Duration) -> bool {
        Duration::try_from(now.duration_since(self.not_before)).is_ok_and(|since| since >= longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = ExponentialBackoff { base: SECOND, longest: SECOND * 6 };
        assert_eq!(
            [0, 1, 2, 3, 31, 32, u32::MAX].map(|failures| backoff.after(failures).as_secs()),
            [1, 2, 4, 6, 6, 6, 6]
        );
        let huge = ExponentialBackoff { base: Duration::MAX, longest: Duration::MAX };
        assert_eq!(huge.after(1), Duration::MAX);
    }

    #[test]
    fn each_key_has_a_backoff_of_its_own() {
        let mut backoffs = KeyBackoffs::new(ExponentialBackoff { base: SECOND, longest: SECOND * 60 });
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
    fn a_key_that_was_well_for_long_begins_anew() {
        let mut backoffs = KeyBackoffs::new(ExponentialBackoff { base: SECOND, longest: SECOND * 10 });
        backoffs.fail("a", at(0));
        backoffs.fail("a", at(1));
        assert_eq!(backoffs.fail("a", at(12)), SECOND * 4, "it could be tried for 9 s");
        assert_eq!(backoffs.fail("a", at(26)), SECOND, "it could be tried for 10 s");
        backoffs.sweep(at(36));
        assert_eq!(backoffs.len(), 1);
        backoffs.sweep(at(37));
        assert!(backoffs.is_empty());
    }
}
