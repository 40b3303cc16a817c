//! Tells a worker that the live reads of a reconcile take long, so that it can set the key aside and take another one.
//!
//! It changes no read, and gives none up: how long one may take is the client's to say.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

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

/// Waits for what is read. If that takes long, who listens is told so.
pub(super) async fn answered<T>(reads: impl Future<Output = T>) -> T {
    let Ok(listener) = LISTENER.try_with(Arc::clone) else { return reads.await };
    let mut reads = pin!(reads);
    if let Ok(found) = timeout(LONG, reads.as_mut()).await {
        return found;
    }
    listener.notify_one();
    reads.await
}
