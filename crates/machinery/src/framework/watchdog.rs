//! Finds reconciles that hold a thread of the controllers: each poll of a reconcile that takes longer than [`LIMIT`].
//!
//! A thread that computes polls no other task, so one slow poll delays the reconciles of all controllers. Each poll is noted while it
//! lasts, and a task on another thread ([`Watchdog::run`]) looks at the notes, so that a poll is reported while it still hangs. It is
//! counted once by controller, logged with its key, and shown by the health check of its controller. It decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::time::sleep;

use crate::model::Key;
use crate::model::clock::Stopwatch;
use crate::telemetry::{MetricsError, Registrar, Registry};

/// A poll that takes longer than this holds its thread for too long.
const LIMIT: Duration = Duration::from_millis(100);
/// How often the polls under way are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often a slow poll of one controller is logged at most.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// How long a slow poll is shown after its end.
const SHOWN_FOR: Duration = Duration::from_mins(5);

/// A monotonic clock.
pub(super) type Elapsed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Watches the polls of all reconciles. Clones watch together.
#[derive(Clone)]
pub struct Watchdog(Arc<Shared>);

struct Shared {
    now: Elapsed,
    slow_polls: IntCounterVec,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    next: u64,
    /// The polls under way: at most one of each thread.
    polls: Vec<Noted>,
    /// The last slow poll of each controller.
    slow: BTreeMap<&'static str, Slow>,
}

struct Noted {
    id: u64,
    controller: &'static str,
    key: Key,
    began: Duration,
    is_counted: bool,
    is_logged: bool,
}

struct Slow {
    key: Key,
    took: Duration,
    seen: Duration,
    logged: Duration,
}

/// A poll of a reconcile that held a thread for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowPoll {
    /// The key that was reconciled.
    pub key: Key,
    /// How long the poll took, or has taken until now.
    pub took: Duration,
    /// Whether the poll still holds its thread.
    pub hangs: bool,
}

impl Watchdog {
    /// Registers the metric, and watches nothing yet.
    ///
    /// # Errors
    /// Another metric has the name.
    pub fn new(registry: &Registry) -> Result<Self, MetricsError> {
        let began = Stopwatch::start();
        Self::with_clock(registry, Arc::new(move || began.elapsed()))
    }

    pub(super) fn with_clock(registry: &Registry, now: Elapsed) -> Result<Self, MetricsError> {
        let slow_polls = Registrar::new(registry).counters(
            "coxswain_reconcile_slow_polls_total",
            "Reconciles that blocked a controller thread for more than 100 ms, by controller.",
            &["controller"],
        )?;
        Ok(Self(Arc::new(Shared { now, slow_polls, held: Mutex::default() })))
    }

    /// Looks at the polls under way again and again. It must run on another thread than the controllers.
    pub async fn run(self) {
        loop {
            sleep(LOOK).await;
            self.look();
        }
    }

    /// The slow poll of a controller that hangs, or the last one that ended a short time ago.
    pub fn slow_poll(&self, controller: &str) -> Option<SlowPoll> {
        let now = (self.0.now)();
        let held = self.0.held.lock();
        let hanging = held.polls.iter().filter(|poll| poll.controller == controller);
        let longest = hanging.min_by_key(|poll| poll.began).filter(|poll| poll.takes(now) > LIMIT);
        if let Some(poll) = longest {
            return Some(SlowPoll { key: poll.key.clone(), took: poll.takes(now), hangs: true });
        }
        let slow = held.slow.get(controller).filter(|slow| now.saturating_sub(slow.seen) < SHOWN_FOR)?;
        Some(SlowPoll { key: slow.key.clone(), took: slow.took, hangs: false })
    }

    /// Watches the polls of `work`, which reconciles this key.
    pub(super) fn watch<F: Future>(&self, controller: &'static str, key: Key, work: F) -> Watched<F> {
        Watched { watchdog: self.clone(), controller, key, work: Box::pin(work) }
    }

    fn begin(&self, controller: &'static str, key: &Key) -> Guard<'_> {
        let began = (self.0.now)();
        let mut held = self.0.held.lock();
        let id = held.next;
        held.next = id.wrapping_add(1);
        let poll = Noted { id, controller, key: key.clone(), began, is_counted: false, is_logged: false };
        held.polls.push(poll);
        Guard { watchdog: self, id }
    }

    fn end(&self, id: u64) {
        let now = (self.0.now)();
        let mut held = self.0.held.lock();
        let Some(at) = held.polls.iter().position(|poll| poll.id == id) else { return };
        let mut poll = held.polls.swap_remove(at);
        // A hang that was logged is logged once more with all that it took.
        let ended = poll.is_logged;
        let mut report = held.note(&mut poll, now);
        report.logs |= ended;
        drop(held);
        self.report(&poll, now, report);
    }

    /// Reports the polls that hang.
    fn look(&self) {
        let now = (self.0.now)();
        let mut held = self.0.held.lock();
        let mut polls = std::mem::take(&mut held.polls);
        let mut reports = Vec::new();
        for poll in &mut polls {
            let report = held.note(poll, now);
            if report.is_new || report.logs {
                reports.push((poll.copy(), report));
            }
        }
        held.polls = polls;
        drop(held);
        for (poll, report) in reports {
            self.report(&poll, now, report);
        }
    }

    fn report(&self, poll: &Noted, now: Duration, report: Report) {
        if report.is_new {
            self.0.slow_polls.with_label_values(&[poll.controller]).inc();
        }
        if report.logs {
            tracing::warn!(
                controller = poll.controller,
                object = %poll.key,
                took = ?poll.takes(now),
                "A reconcile blocks a controller thread"
            );
        }
    }
}

/// The reports that a poll causes.
#[derive(Clone, Copy)]
struct Report {
    is_new: bool,
    logs: bool,
}

impl Noted {
    fn takes(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began)
    }

    fn copy(&self) -> Self {
        Self { key: self.key.clone(), ..*self }
    }
}

impl Held {
    /// Remembers a poll that is slow.
    fn note(&mut self, poll: &mut Noted, now: Duration) -> Report {
        let took = poll.takes(now);
        if took <= LIMIT {
            return Report { is_new: false, logs: false };
        }
        let slow = self.slow.get(poll.controller);
        let logged = slow.map(|slow| slow.logged);
        let logs = !poll.is_logged && logged.is_none_or(|logged| now.saturating_sub(logged) >= LOG_EVERY);
        let logged = if logs { now } else { logged.unwrap_or(now) };
        // The longest of the last minutes is shown.
        let longer = slow.filter(|slow| slow.took > took && now.saturating_sub(slow.seen) < SHOWN_FOR);
        let (key, took, seen) = match longer {
            Some(slow) => (slow.key.clone(), slow.took, slow.seen),
            None => (poll.key.clone(), took, now),
        };
        self.slow.insert(poll.controller, Slow { key, took, seen, logged });
        let is_new = !poll.is_counted;
        poll.is_counted = true;
        poll.is_logged |= logs;
        Report { is_new, logs }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("polls", &self.0.held.lock().polls.len()).finish_non_exhaustive()
    }
}

/// Ends the note of a poll, also when the poll panics.
struct Guard<'a> {
    watchdog: &'a Watchdog,
    id: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.watchdog.end(self.id);
    }
}

/// A future whose polls are watched.
pub(super) struct Watched<F> {
    watchdog: Watchdog,
    controller: &'static str,
    key: Key,
    /// On the heap while it lasts: some hundred workers wait most of the time, each with room for a reconcile otherwise.
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _guard = this.watchdog.begin(this.controller, &this.key);
        this.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};
    use std::sync::mpsc;
    use std::thread;

    use futures::FutureExt as _;

    use super::*;
    use crate::telemetry::encode_text;

    /// A watchdog on a clock that the test moves.
    struct Bench {
        watchdog: Watchdog,
        registry: Registry,
        time: Arc<Mutex<Duration>>,
    }

    fn bench() -> Bench {
        let (registry, time) = (Registry::new(), Arc::<Mutex<Duration>>::default());
        let clock = Arc::clone(&time);
        let watchdog = Watchdog::with_clock(&registry, Arc::new(move || *clock.lock())).unwrap();
        Bench { watchdog, registry, time }
    }

    impl Bench {
        fn later(&self, by: Duration) {
            *self.time.lock() += by;
        }

        /// One poll of this key that takes so long.
        fn poll(&self, name: &str, takes: Duration) {
            let work = poll_fn(|_| {
                self.later(takes);
                Poll::Ready(())
            });
            self.watchdog.watch("c", Key::new("ns", name), work).now_or_never().unwrap();
        }

        fn counted(&self) -> Option<u64> {
            let page = encode_text(&self.registry);
            let line = page.lines().find_map(|line| {
                line.strip_prefix("coxswain_reconcile_slow_polls_total{controller=\"c\"} ").map(str::to_owned)
            });
            line.map(|count| count.parse().unwrap())
        }

        fn shown(&self) -> Option<(String, Duration, bool)> {
            self.watchdog.slow_poll("c").map(|poll| (poll.key.to_string(), poll.took, poll.hangs))
        }
    }

    #[test]
    fn poll_within_the_limit_is_not_reported() {
        let bench = bench();
        bench.poll("fine", LIMIT);
        assert_eq!((bench.counted(), bench.shown()), (None, None));
        assert!(bench.watchdog.0.held.lock().polls.is_empty());
    }

    #[test]
    fn slow_poll_is_counted_and_shown_for_five_minutes() {
        let bench = bench();
        let took = Duration::from_secs(3);
        bench.poll("slow", took);
        bench.poll("fine", Duration::ZERO);
        let shown = Some(("ns/slow".to_owned(), took, false));
        assert_eq!((bench.counted(), bench.shown()), (Some(1), shown.clone()));
        assert_eq!(bench.watchdog.slow_poll("another"), None);
        bench.later(SHOWN_FOR / 2);
        assert_eq!(bench.shown(), shown);
        bench.later(SHOWN_FOR / 2);
        assert_eq!(bench.shown(), None);
    }

    #[test]
    fn hanging_poll_is_counted_once_and_shown_while_it_lasts() {
        let bench = bench();
        let work = poll_fn(|_| {
            bench.watchdog.look();
            assert_eq!(bench.counted(), None, "it has just begun");
            bench.later(LIMIT * 2);
            for _ in 0..3 {
                // As another thread does.
                bench.watchdog.look();
                assert_eq!(bench.counted(), Some(1));
                assert_eq!(bench.shown(), Some(("ns/key".to_owned(), LIMIT * 2, true)));
            }
            bench.later(LIMIT);
            Poll::Ready(())
        });
        bench.watchdog.watch("c", Key::new("ns", "key"), work).now_or_never().unwrap();
        assert_eq!(bench.counted(), Some(1));
        assert_eq!(bench.shown(), Some(("ns/key".to_owned(), LIMIT * 3, false)));
    }

    #[test]
    fn each_poll_of_a_future_is_measured_by_itself() {
        let bench = bench();
        let mut polls = 0;
        let work = poll_fn(|_| {
            bench.later(LIMIT);
            polls += 1;
            if polls < 10 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut watched = bench.watchdog.watch("c", Key::new("ns", "key"), work);
        while (&mut watched).now_or_never().is_none() {
            bench.later(LIMIT * 10);
        }
        assert_eq!(bench.counted(), None);
    }

    #[test]
    fn slow_polls_of_a_controller_are_logged_once_a_minute() {
        let bench = bench();
        let mut held = bench.watchdog.0.held.lock();
        let logs =
            [1, 30, 60, 61, 62, 121].map(|at| held.note(&mut noted("a"), Duration::from_secs(at)).logs);
        assert_eq!(logs, [true, false, false, true, false, true]);
    }

    /// A poll that hangs from within the minute of an earlier line is logged when that minute is over, and once.
    #[test]
    fn hanging_poll_is_logged_when_its_turn_comes() {
        let bench = bench();
        let mut held = bench.watchdog.0.held.lock();
        assert!(held.note(&mut noted("a"), Duration::from_secs(1)).logs);
        let mut hangs = noted("b");
        let reports = [30, 31, 61, 62, 200].map(|at| held.note(&mut hangs, Duration::from_secs(at)));
        assert_eq!(reports.map(|report| report.is_new), [true, false, false, false, false]);
        assert_eq!(reports.map(|report| report.logs), [false, false, true, false, false]);
    }

    #[test]
    fn longest_poll_of_the_last_minutes_is_shown() {
        let bench = bench();
        let long = Duration::from_secs(40);
        bench.poll("long", long);
        bench.poll("short", LIMIT * 2);
        assert_eq!(bench.shown(), Some(("ns/long".to_owned(), long, false)));
        bench.later(SHOWN_FOR);
        bench.poll("short", LIMIT * 2);
        assert_eq!(bench.shown(), Some(("ns/short".to_owned(), LIMIT * 2, false)));
    }

    fn noted(name: &str) -> Noted {
        let key = Key::new("ns", name);
        Noted { id: 0, controller: "c", key, began: Duration::ZERO, is_counted: false, is_logged: false }
    }

    #[test]
    fn panicking_poll_is_forgotten() {
        let bench = bench();
        let work = bench.watchdog.watch("c", Key::EMPTY, poll_fn(|_| -> Poll<()> { panic!("on purpose") }));
        let work = std::panic::AssertUnwindSafe(work).catch_unwind();
        assert!(work.now_or_never().unwrap().is_err());
        assert!(bench.watchdog.0.held.lock().polls.is_empty());
    }

    /// With the real clock: a poll that blocks its thread is visible from another one.
    #[test]
    fn poll_that_blocks_its_thread_is_visible_from_another_thread() {
        let watchdog = Watchdog::new(&Registry::new()).unwrap();
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let blocked = watchdog.watch("c", Key::new("ns", "key"), async move { ended.recv().unwrap() });
        thread::scope(|scope| {
            scope.spawn(move || blocked.now_or_never().unwrap());
            let shown = loop {
                if let Some(shown) = watchdog.slow_poll("c") {
                    break shown;
                }
                thread::sleep(Duration::from_millis(5));
            };
            assert!(shown.hangs && shown.took > LIMIT, "{shown:?}");
            end.send(()).unwrap();
        });
        assert!(!watchdog.slow_poll("c").unwrap().hangs);
        watchdog.watch("c", Key::EMPTY, ready(())).now_or_never().unwrap();
    }
}
