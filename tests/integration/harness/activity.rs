//! When a cluster may be looked at: nothing that concerns the look has been written for a moment, and the manager has nothing
//! left to do.
//!
//! Writes are those of the API server's audit log, whoever makes them, but for renewals of Leases. That the manager has nothing left to do is what its
//! metrics say: no key waits or is worked on, and no informer has events left. Keys that are due later are not seen; what
//! they write is, if it comes too late for a look: scenarios of parity are looked at once more at their end.

#![allow(clippy::disallowed_types, reason = "tests and benchmarks have an order of their own")]

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{AuditEvent, AuditTail, Caller, ControlPlane, Manager, Port};

/// How often log and metrics are read.
const POLL: Duration = Duration::from_millis(150);
/// Metrics of which each series is zero when a manager has nothing to do, in the original as in ours.
const WORK: [&str; 3] = ["workqueue_depth{", "workqueue_unfinished_work_seconds{", "informer_queued_items{"];

/// What the API server and a manager do.
pub(crate) struct Activity {
    seen: watch::Receiver<Seen>,
    _follower: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When metrics were asked for that showed nothing to do.
    idle: Option<Instant>,
    /// When the last write was read of, by namespace, or by the names of objects that are in none; see
    /// [`AuditEvent::exact_place`](super::AuditEvent::exact_place).
    writes: BTreeMap<String, Instant>,
}

impl Activity {
    /// Begins to follow.
    pub(crate) async fn follow(plane: &ControlPlane, manager: &Manager<'_>) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let mut follower = JoinSet::new();
        follower.spawn(follow(manager.port(Caller::Admin).await, plane.audit_tail(), sender));
        Self { seen, _follower: follower }
    }

    /// When something was last written to what it `concerns`.
    pub(crate) fn last_write(&self, concerns: impl Fn(&str) -> bool) -> Option<Instant> {
        self.seen.borrow().last_write(&concerns)
    }

    /// Waits until the manager was seen with nothing to do `calm` after `since` and after the last write to what it
    /// `concerns`; whether that was within `limit`.
    pub(crate) async fn quiet(
        &self,
        concerns: impl Fn(&str) -> bool,
        since: Instant,
        calm: Duration,
        limit: Duration,
    ) -> bool {
        let mut seen = self.seen.clone();
        let quiet = seen.wait_for(|seen| {
            let last = seen.last_write(&concerns).map_or(since, |last| last.max(since));
            seen.idle.is_some_and(|idle| idle >= last + calm)
        });
        timeout(limit, quiet).await.is_ok_and(|seen| seen.is_ok())
    }
}

impl Seen {
    fn last_write(&self, concerns: &impl Fn(&str) -> bool) -> Option<Instant> {
        self.writes.iter().filter(|(place, _)| concerns(place)).map(|(_, at)| *at).max()
    }
}

async fn follow(manager: Port, mut log: AuditTail, sender: watch::Sender<Seen>) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !sender.is_closed() {
        ticks.tick().await;
        let asked = Instant::now();
        let page = manager.try_get("/metrics").await;
        let is_idle = page.is_some_and(|page| page.status == 200 && is_idle(&page.text));
        // Read after the metrics: what was written before these were asked for is in the log.
        let events = log.more();
        sender.send_modify(|seen| {
            let now = Instant::now();
            let is_heartbeat = |event: &&AuditEvent| event.object_ref.resource == "leases";
            let writes = events.iter().filter(|event| event.is_write() && event.succeeded());
            for event in writes.filter(|event| !is_heartbeat(event)) {
                seen.writes.insert(event.exact_place(), now);
            }
            if is_idle {
                seen.idle = Some(asked);
            }
        });
    }
}

/// Whether a page of metrics shows queues, and nothing in them.
fn is_idle(page: &str) -> bool {
    let mut series = page.lines().filter(|line| WORK.iter().any(|name| line.starts_with(name))).peekable();
    let is_zero = |line: &str| line.rsplit(' ').next().is_some_and(|value| value.parse() == Ok(0.0));
    series.peek().is_some() && series.all(is_zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_idle_when_all_its_queues_are() {
        for (page, expected) in [
            ("workqueue_depth{name=\"a\"} 0\nworkqueue_adds_total{name=\"a\"} 7\n", true),
            ("workqueue_depth{name=\"a\"} 0\nworkqueue_depth{name=\"b\"} 1\n", false),
            ("workqueue_depth{name=\"a\"} 0\nworkqueue_unfinished_work_seconds{name=\"a\"} 0.02\n", false),
            ("workqueue_depth{name=\"a\"} 0\ninformer_queued_items{name=\"a\"} 3\n", false),
            ("workqueue_adds_total{name=\"a\"} 0\n", false),
        ] {
            assert_eq!(is_idle(page), expected, "{page}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_a_moment_after_the_last_write_of_ones_own() {
        let (sender, seen) = watch::channel(Seen::default());
        let activity = Activity { seen, _follower: JoinSet::new() };
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let quiet = || activity.quiet(|place| place == "mine", begin, second, second);
        assert!(!quiet().await, "nobody has seen the manager");
        let write = |place: &str, at| {
            sender.send_modify(|seen| {
                seen.writes.insert(place.to_owned(), at);
            });
        };
        write("mine", begin + second);
        write("other", begin + 9 * second);
        sender.send_modify(|seen| seen.idle = Some(begin + second));
        assert!(!quiet().await, "it was seen idle before it can have heard of the write");
        sender.send_modify(|seen| seen.idle = Some(begin + 2 * second));
        assert!(quiet().await, "what others write does not count");
        assert_eq!(activity.last_write(|place| place == "mine"), Some(begin + second));
    }
}
