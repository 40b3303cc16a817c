//! Waiting for conditions, never for time; and for one's turn.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Waits until `observe` gives something that satisfies `holds`, and returns it. Fails with the last observation after
/// `limit`.
pub(crate) async fn until<T, F>(
    what: &str,
    limit: Duration,
    mut observe: impl FnMut() -> F,
    holds: impl Fn(&T) -> bool,
) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let deadline = Instant::now() + limit;
    loop {
        let observed = observe().await;
        if holds(&observed) {
            return observed;
        }
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}; last seen: {observed:?}");
        sleep(POLL).await;
    }
}

/// Waits until `holds` is true.
pub(crate) async fn eventually<F>(what: &str, limit: Duration, holds: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    until(what, limit, holds, |held| *held).await;
}

/// A turn among the tests that start a control plane of their own: one of them at a time is enough for a small
/// machine. Held until it is dropped.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
