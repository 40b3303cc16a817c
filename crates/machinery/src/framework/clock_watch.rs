//! Notices that somebody has set the wall clock forward.
//!
//! Plans name times of the wall clock ("when this token expires"), and queues sleep for durations. A clock that is set forward, or
//! a machine that was suspended, would make a key come late by as much. No sleep is trusted for longer than [`PERIOD`]: then both
//! clocks are compared, and planned keys come earlier by what the wall clock has gained. For queues a clock that is set back needs
//! nothing: a key that comes too early is planned again. What waits by the steady clock for more than a minute may come too early as
//! well, and is planned again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::queue::WorkQueue;

/// How often the clocks are compared.
pub(super) const PERIOD: Duration = Duration::from_secs(30);
/// Less than this is no news. It adds up until it is.
const LEAST: SignedDuration = SignedDuration::from_secs(1);

/// The queues of a controller and the clock that their plans go by.
pub(super) struct ClockWatch {
    controller: &'static str,
    clock: SharedClock,
    queues: Vec<Arc<WorkQueue<Key>>>,
    /// The time of both clocks when they were compared.
    seen: (Timestamp, Instant),
}

impl ClockWatch {
    pub(super) fn new(
        controller: &'static str,
        clock: SharedClock,
        queues: Vec<Arc<WorkQueue<Key>>>,
    ) -> Self {
        let seen = (clock.now(), Instant::now());
        Self { controller, clock, queues, seen }
    }

    /// Compares the clocks until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(sleep(PERIOD)).await.is_some() {
            if let Some(gained) = self.gained() {
                tracing::info!(controller = self.controller, ?gained, "The wall clock was set forward");
                for queue in &self.queues {
                    queue.wall_clock_set_forward(gained);
                }
            }
        }
    }

    /// Returns how much the wall clock has gained since that was last returned; `None` if that is not worth a wake-up.
    fn gained(&mut self) -> Option<Duration> {
        let now = (self.clock.now(), Instant::now());
        let passed = now.1.saturating_duration_since(self.seen.1);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let gained = now.0.duration_since(self.seen.0).saturating_sub(passed);
        if (SignedDuration::ZERO..LEAST).contains(&gained) {
            return None;
        }
        self.seen = now;
        Duration::try_from(gained).ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::model::clock::ManualClock;
    use crate::queue::QueueMetrics;
    use crate::telemetry::Registry;

    const HOUR: Duration = Duration::from_hours(1);

    struct Watched {
        clock: Arc<ManualClock>,
        queue: Arc<WorkQueue<Key>>,
        stop: CancellationToken,
        _tasks: JoinSet<()>,
    }

    impl Watched {
        fn start() -> Self {
            let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
            let metrics = QueueMetrics::register(&Registry::new()).unwrap();
            let queue = Arc::new(WorkQueue::new("test", &metrics));
            let stop = CancellationToken::new();
            let watch = ClockWatch::new("test", Arc::clone(&clock) as SharedClock, vec![Arc::clone(&queue)]);
            let mut tasks = JoinSet::new();
            tasks.spawn(watch.run(stop.clone()));
            Self { clock, queue, stop, _tasks: tasks }
        }

        /// Both clocks go on.
        async fn pass(&self, seconds: u64) {
            const STEP: Duration = Duration::from_millis(100);
            for _ in 0..10 * seconds {
                self.clock.advance(STEP);
                tokio::time::sleep(STEP).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_watch_wall_clock_set_forward_wakes_planned_keys_within_a_minute() {
        let watched = Watched::start();
        watched.queue.add_planned(Key::new("ns", "planned"), HOUR);
        watched.queue.add_after(Key::new("ns", "backs-off"), HOUR);
        watched.queue.add_planned(Key::new("ns", "planned"), HOUR + HOUR);
        watched.pass(65).await;
        assert!(watched.queue.is_empty(), "nobody has set the clock");
        watched.clock.advance(Duration::from_mins(58));
        watched.pass(50).await;
        assert!(watched.queue.is_empty(), "its time has not come");
        watched.queue.add_planned(Key::new("ns", "in-quarantine"), Duration::from_secs(40));
        watched.pass(10).await;
        assert_eq!(watched.queue.len(), 1, "a backoff and a quarantine go by the steady clock");
        let item = watched.queue.get().await.unwrap();
        assert_eq!(item.key(), &Key::new("ns", "planned"));
        watched.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn clock_watch_slow_drift_adds_up_and_a_clock_set_back_does_nothing() {
        let watched = Watched::start();
        let (clock, queue) = (Arc::clone(&watched.clock), Arc::clone(&watched.queue));
        let mut watch = ClockWatch::new("test", clock, vec![queue]);
        let gained: Vec<_> = std::iter::repeat_with(|| {
            watched.clock.advance(Duration::from_millis(400));
            watch.gained()
        })
        .take(6)
        .collect();
        let all = Some(Duration::from_millis(1200));
        assert_eq!(gained, [None, None, all, None, None, all]);
        tokio::time::advance(HOUR).await;
        assert_eq!(watch.gained(), None, "it was set back by an hour");
        watched.clock.advance(Duration::from_secs(5));
        assert_eq!(watch.gained(), Some(Duration::from_secs(5)), "and forward a little");
        watched.stop.cancel();
    }
}
