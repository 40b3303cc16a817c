//! How a loop works, as data: workers, backoff, tries, resync, seed keys. Decides nothing about objects.

use std::time::Duration;

use crate::client::QpsFactor;
use crate::model::Key;
use crate::model::backoff::ExponentialBackoff;
pub use crate::queue::{BucketConfig, QueueConfig};

/// How a loop works. The default is one worker that tries a failed key without end and waits for changes.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own; any set of them may be made")]
pub struct LoopSettings {
    /// Keys taken at the same time, see [`workers`].
    pub workers: usize,
    /// Whether the loop takes one key at a time, and none before the caches have seen what was written for any other. For
    /// loops that give out what there is only one of: addresses, ranges, volumes. `workers` does not count then. When an instance starts,
    /// another process may have written before: no key is taken before the cache of the loop's kind shows all that a live list finds.
    pub serial: bool,
    /// How often every object of the loop's kind is reconciled without a change; never if `None`.
    pub resync: Option<Duration>,
    /// How long a key that failed waits: its own backoff, and a token bucket shared by all keys of the loop.
    pub backoff: QueueConfig,
    /// How often in a row a key is tried that the API server refuses each time; without end if `None`. While the server does not answer,
    /// no key is given up: that says nothing about it, and no change need come when it is over.
    pub tries: Option<Tries>,
    /// Limit of the time for which a key waits for caches to show its own writes; none if `None`. With a limit, a watch that stalls can cause
    /// duplicates. Controllers set it if a feature gate asks for it, or if late caches are harmless because they create nothing. A loop
    /// with one key for everything does not wait at all (zero) if each of its writes carries the version that was judged: otherwise a
    /// write of one object would delay all others. Its memory leaves out the objects that were written ([`Memory::record_effects`]).
    ///
    /// [`Memory::record_effects`]: super::Memory::record_effects
    pub longest_wait: Option<Duration>,
    /// Whether a key that failed is left alone for as long as the server has asked to wait, however short its backoff is.
    pub heeds_retry_after: bool,
    /// Whether a key for which a live read takes long is set aside until it is answered, while its worker takes others: where what
    /// answers is somebody else's, as the APIs of metrics are.
    pub sets_aside: bool,
    /// Whether the creates of an object are withheld for five minutes after its terminating namespace has refused one.
    pub withholds_refused_creates: bool,
    /// How fast the controller may ask, compared with others. The fastest of its loops counts.
    pub qps_factor: QpsFactor,
    /// Keys that are queued when the loop starts: for loops that follow no object. See [`LoopSettings::rounds`].
    pub seeds: Vec<Key>,
}

/// For how long a key is left alone that the original gives up: what refuses it may end without a change of any object that calls it,
/// as with a quota that is raised or a webhook that is mended. A key that is never given up waits as long at most.
/// Differs: retries-after-the-limit.
const REST: Duration = Duration::from_secs(1000);

/// Delay until a key is reconciled again after a write met a tolerated conflict. The newer version of the object queues the key earlier. A
/// webhook can answer with a conflict each time, and then no newer version arrives.
pub(super) const AFTER_CONFLICT: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(10), REST);

/// By how much such a rest is longer at most, as a fraction: keys that were given up together are not tried together.
const REST_JITTER: f64 = 0.25;

/// How often a key is tried that is refused each time, and what becomes of it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// Tries in all. The first counts, and so does each one after it.
    pub most: u32,
    /// After which pause the key is tried once more, and again after each further one; not before a change concerns it if `None`. A
    /// change that concerns the key begins the tries from the start.
    pub then: Option<Duration>,
}

/// What becomes of a key that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// It is tried again after its backoff.
    Retry,
    /// It was tried often enough in a row. It is tried once after this pause; not before a change concerns it if `None`.
    GiveUp(Option<Duration>),
}

impl Tries {
    /// What most controllers of the original have that give up at all.
    pub const USUAL: Self = Self::retries(15);

    /// A first try and so many more, as in the original; then one after each [`REST`].
    pub const fn retries(retries: u32) -> Self {
        Self { most: retries.saturating_add(1), then: Some(REST) }
    }
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self {
            workers: 1,
            serial: false,
            resync: None,
            backoff: QueueConfig::default(),
            tries: None,
            longest_wait: None,
            heeds_retry_after: false,
            sets_aside: false,
            withholds_refused_creates: false,
            qps_factor: QpsFactor::ONE,
            seeds: Vec::new(),
        }
    }
}

impl LoopSettings {
    /// So many workers, see [`workers`]; the rest by default.
    pub fn with_workers(configured: i32) -> Self {
        Self { workers: workers(configured), ..Self::default() }
    }

    /// Returns the settings of a loop that reconciles everything under one key, in rounds of this period. A failure delays the next round
    /// by the period at most: no change queues the key earlier, and an outage must not outlast itself.
    pub fn rounds(period: Duration) -> Self {
        let usual = QueueConfig::default();
        let max_delay = usual.max_delay.min(period.max(usual.base_delay));
        Self { backoff: QueueConfig { max_delay, ..usual }, seeds: vec![Key::EMPTY], ..Self::default() }
    }

    /// Keys taken at the same time.
    pub(super) fn at_a_time(&self) -> usize {
        if self.serial { 1 } else { self.workers.max(1) }
    }

    /// Whether a worker takes other keys while the reconcile of one waits for an API server that asked for that. A loop that takes one key at
    /// a time relies on being alone.
    pub(super) fn waits_beside(&self) -> bool {
        self.sets_aside || self.at_a_time() > 1
    }

    /// Returns the action after a failure. `refused` is true if the failure is a refusal, and `refusals` counts the refusals of the key,
    /// including this one. Failures without an answer use up no tries. Their backoff grows with all failures, because requests within
    /// milliseconds would add to the load of the server. The backoff of a refusal follows the refusals alone.
    pub(super) fn after_failure(&self, refusals: u32, refused: bool) -> AfterFailure {
        match self.tries {
            Some(tries) if refused && refusals >= tries.most => {
                AfterFailure::GiveUp(tries.then.map(with_jitter))
            }
            _ => AfterFailure::Retry,
        }
    }
}

/// A pause with jitter.
fn with_jitter(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + REST_JITTER * crate::random::fraction())
}

/// How many workers a `--concurrent-…-syncs` flag asks for; at least one, so that nothing ever stands still.
pub fn workers(configured: i32) -> usize {
    usize::try_from(configured).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_tried_as_often_as_is_set() {
        let then = Some(Duration::from_mins(1));
        let settings = |tries| LoopSettings { tries, ..LoopSettings::default() };
        let table = [
            (None, 1, AfterFailure::Retry, AfterFailure::Retry),
            (None, u32::MAX, AfterFailure::Retry, AfterFailure::Retry),
            (Some(Tries { most: 3, then }), 2, AfterFailure::Retry, AfterFailure::Retry),
            (Some(Tries { most: 3, then }), 3, AfterFailure::GiveUp(then), AfterFailure::Retry),
            (Some(Tries { most: 3, then }), 4, AfterFailure::GiveUp(then), AfterFailure::Retry),
            (Some(Tries { most: 3, then: None }), 3, AfterFailure::GiveUp(None), AfterFailure::Retry),
            (Some(Tries { most: 0, then: None }), 1, AfterFailure::GiveUp(None), AfterFailure::Retry),
            (Some(Tries::USUAL), 15, AfterFailure::Retry, AfterFailure::Retry),
            (Some(Tries::USUAL), 16, AfterFailure::GiveUp(Some(REST)), AfterFailure::Retry),
        ];
        for (tries, refusals, refused, not_answered) in table {
            let without_jitter = |after| match after {
                AfterFailure::GiveUp(Some(pause)) => {
                    let then = tries.and_then(|tries: Tries| tries.then).unwrap();
                    assert!((then..then.mul_f64(1.0 + REST_JITTER)).contains(&pause), "{pause:?}");
                    AfterFailure::GiveUp(Some(then))
                }
                after => after,
            };
            let after =
                [true, false].map(|refused| without_jitter(settings(tries).after_failure(refusals, refused)));
            assert_eq!(after, [refused, not_answered], "{tries:?} after {refusals}");
        }
    }

    #[test]
    fn backoff_of_rounds_is_at_most_their_period() {
        let longest = |seconds| LoopSettings::rounds(Duration::from_secs(seconds)).backoff.max_delay;
        assert_eq!(
            [0, 5, 600, 86_400].map(|period| longest(period).as_millis()),
            [5, 5000, 600_000, 1_000_000]
        );
    }

    #[test]
    fn a_serial_loop_has_one_worker_and_every_loop_has_one() {
        let at_a_time =
            |workers, serial| LoopSettings { workers, serial, ..LoopSettings::default() }.at_a_time();
        assert_eq!([at_a_time(5, false), at_a_time(5, true), at_a_time(0, false)], [5, 1, 1]);
        assert_eq!([-1, 0, 1, 7].map(workers), [1, 1, 1, 7]);
    }
}
