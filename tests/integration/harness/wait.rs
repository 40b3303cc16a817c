//! Waiting for conditions, never for time; and for one's turn. How long a test of chance goes on.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use super::timing;

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

/// How much of what has no natural end a test does: what is `usual`, or all in `make test-all`.
pub(crate) fn by_depth<T>(usual: T, full: T) -> T {
    if std::env::var_os("COXSWAIN_FULL").is_some() { full } else { usual }
}

/// Planes that may work at a time, beside the one that is shared by all: more only wait for each other on a small machine.
static TURNS: Semaphore = Semaphore::const_new(PLANES);
const PLANES: usize = 2;

/// A turn among the tests that start a control plane of their own, while no other has one. Held until it is dropped.
pub(crate) async fn turn() -> SemaphorePermit<'static> {
    take(PLANES as u32).await
}

/// A turn that another may have beside this one: for tests that wait more than they work.
pub(crate) async fn turn_beside_another() -> SemaphorePermit<'static> {
    take(1).await
}

async fn take(turns: u32) -> SemaphorePermit<'static> {
    let _waiting = timing::waits();
    TURNS.acquire_many(turns).await.expect("it is never closed")
}
