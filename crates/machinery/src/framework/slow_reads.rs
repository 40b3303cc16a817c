//! Tells a worker that the live reads of a reconcile take long, so that it can set the key aside and take another one.
//!
//! An API group that is slow is known by the first who waits for it: the others who ask it are set aside at once. If each were
//! waited for, a group that some hundred keys ask would keep all workers.
//!
//! Clocks start when a request has its token: a read that waits for the client's own rate limit says nothing about the API, and
//! another key would only wait behind it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::latest;
use crate::random::HashSet;
use crate::wire::Str;

/// From when on reads take long. A metrics API that is well answers within a tenth of it.
const LONG: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The listener of the reads that are made here.
    static LISTENER: Arc<Listener>;
}

#[derive(Debug)]
struct Listener {
    begun: Notify,
    has_room: bool,
}

/// See the module. It hears of one reconcile.
#[derive(Debug)]
pub(super) struct SlowReads(Arc<Listener>);

impl SlowReads {
    /// For a worker that has room to set the key aside, or not.
    pub(super) fn new(has_room: bool) -> Self {
        Self(Arc::new(Listener { begun: Notify::new(), has_room }))
    }

    /// Hears of the reads that this makes.
    pub(super) fn hear<F: Future>(&self, reconcile: F) -> impl Future<Output = F::Output> + use<F> {
        LISTENER.scope(Arc::clone(&self.0), reconcile)
    }

    /// Returns once some have taken long.
    pub(super) async fn begun(&self) {
        self.0.begun.notified().await;
    }
}

/// Whether a reconcile whose reads take long can be set aside. It is where nobody listens.
pub(super) fn has_room() -> bool {
    LISTENER.try_with(|listener| listener.has_room).unwrap_or(true)
}

/// When the request that a read waits for got its token; `None` while it waits for one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadClock(Arc<latest::Sender<Option<Instant>>>);

impl ReadClock {
    /// A clock that runs, for what needs no token.
    pub(super) fn started() -> Self {
        let clock = Self::default();
        clock.start();
        clock
    }

    pub(super) fn start(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    pub(super) fn stop(&self) {
        self.0.send_replace(None);
    }

    /// Returns once the clock has run for [`LONG`] without a break, counted from this call.
    pub(super) async fn runs_long(&self) {
        let asked = Instant::now();
        let mut started = self.0.subscribe();
        loop {
            let running = *started.borrow_and_update();
            let Some(since) = running else {
                // The sender is as long there as the clock.
                let _ = started.changed().await;
                continue;
            };
            tokio::select! {
                biased;
                _ = started.changed() => {}
                () = sleep_until(since.max(asked) + LONG) => return,
            }
        }
    }
}

/// Waits for what is read. If that takes long by its clock, the listener is told so; and at once, if it `is_slow`.
pub(super) async fn answered<T>(clock: &ReadClock, is_slow: bool, read: impl Future<Output = T>) -> T {
    let Ok(listener) = LISTENER.try_with(Arc::clone) else { return read.await };
    let mut read = pin!(read);
    let long = async {
        if !is_slow {
            clock.runs_long().await;
        }
    };
    tokio::select! {
        biased;
        found = read.as_mut() => return found,
        () = long => {}
    }
    listener.begun.notify_one();
    read.await
}

/// The API groups that are slow now. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowGroups(Arc<Mutex<HashSet<Str>>>);

impl SlowGroups {
    /// Waits for an answer of a group, to a request that has its token. From when it takes long the group is slow, until it answers somebody soon.
    pub(super) async fn answered<T>(&self, group: &str, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if let Ok(found) = timeout(LONG, answer.as_mut()).await {
            self.0.lock().remove(group);
            return found;
        }
        self.0.lock().insert(group.into());
        answer.await
    }

    /// Whether a group is slow.
    pub(super) fn has(&self, group: &str) -> bool {
        self.0.lock().contains(group)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_waits_for_tokens_does_not_run() {
        let clock = ReadClock::default();
        let runs_long = async |secs| timeout(Duration::from_secs(secs), clock.runs_long()).await.is_ok();
        assert!(!runs_long(3600).await, "there is no token yet");
        clock.start();
        sleep(Duration::from_mins(1)).await;
        let began = Instant::now();
        assert!(runs_long(10).await);
        assert_eq!(began.elapsed(), LONG, "it counts from the call");
        let mut long = pin!(clock.runs_long());
        assert!(timeout(LONG / 2, long.as_mut()).await.is_err());
        clock.stop();
        assert!(timeout(LONG * 60, long.as_mut()).await.is_err(), "the next request waits for a token");
        clock.start();
        assert!(timeout(LONG / 2, long.as_mut()).await.is_err());
        assert!(timeout(LONG, long.as_mut()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_is_slow_from_when_it_lets_wait_until_it_answers_soon() {
        let slow = SlowGroups::default();
        let answer = |millis| slow.answered("a", sleep(Duration::from_millis(millis)));
        answer(900).await;
        assert!(!slow.has("a"));
        let mut late = pin!(answer(5000));
        assert!(timeout(Duration::from_millis(1500), late.as_mut()).await.is_err());
        assert!(slow.has("a") && !slow.has("b"), "while it is waited for");
        late.await;
        assert!(slow.has("a"), "nobody knows better yet");
        answer(10).await;
        assert!(!slow.has("a"));
    }
}
