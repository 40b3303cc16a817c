//! Tells a worker that the live reads of a reconcile take long, so that it can set the key aside and take another one.
//!
//! An API group that is slow is known by the first who waits for it: the others who ask it are set aside at once. If each were
//! waited for, a group that some hundred keys ask would keep all workers.
//!
//! It changes no read, and gives none up: how long one may take is the client's to say.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::random::HashSet;
use crate::wire::Str;

/// From when on reads take long. A metrics API that is well answers within a tenth of it.
const LONG: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Who hears of the reads that are made here.
    static LISTENER: Arc<Notify>;
}

/// See the module. It hears of one reconcile.
#[derive(Debug, Default)]
pub(super) struct SlowReads(Arc<Notify>);

impl SlowReads {
    /// Hears of the reads that this makes.
    pub(super) fn hear<F: Future>(&self, reconcile: F) -> impl Future<Output = F::Output> + use<F> {
        LISTENER.scope(Arc::clone(&self.0), reconcile)
    }

    /// Returns once some have taken long.
    pub(super) async fn begun(&self) {
        self.0.notified().await;
    }
}

/// Waits for what is read. If that takes long, who listens is told so; and at once, if it `is_slow`.
pub(super) async fn answered<T>(reads: impl Future<Output = T>, is_slow: bool) -> T {
    let Ok(listener) = LISTENER.try_with(Arc::clone) else { return reads.await };
    let mut reads = pin!(reads);
    let patience = if is_slow { Duration::ZERO } else { LONG };
    if let Ok(found) = timeout(patience, reads.as_mut()).await {
        return found;
    }
    listener.notify_one();
    reads.await
}

/// The API groups that are slow now. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowGroups(Arc<Mutex<HashSet<Str>>>);

impl SlowGroups {
    /// Waits for an answer of a group. From when it takes long the group is slow, until it answers somebody soon.
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
