//! The write gate: losing the lease stops every write.
//!
//! It is closed when the loss is known, and guarded for the time before: a process that was frozen for longer than its
//! lease wakes up with work in hand and does not know yet that another leads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use parking_lot::RwLock;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, hook};
use crate::client::api::BoxError;

/// A write that was not sent, because this process does not lead any more or is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: writes have stopped, for leadership is lost or the manager is shutting down")]
pub struct WritesStopped;

/// Says of this moment whether writes may pass. It must not block.
pub type WriteGuard = Arc<dyn Fn() -> bool + Send + Sync>;

/// A gate that all clients of controllers share. Open at first; once closed it stays closed until leadership begins
/// anew. Cheap to clone.
#[derive(Clone, Default)]
pub struct WriteGate(Arc<State>);

#[derive(Default)]
struct State {
    closed: AtomicBool,
    guards: RwLock<Vec<WriteGuard>>,
    writes: TaskTracker,
}

impl fmt::Debug for WriteGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGate")
            .field("closed", &self.is_closed())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

impl WriteGate {
    /// An open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on a write passes only while `guard` says so at the moment before it is sent, and all guards before it.
    pub fn guard(&self, guard: WriteGuard) {
        self.0.guards.write().push(guard);
    }

    /// Opens the gate again, with `guard` in the place of all guards before: a new term of leadership begins. Only for
    /// whoever has closed it.
    pub fn reopen(&self, guard: WriteGuard) {
        *self.0.guards.write() = vec![guard];
        self.0.writes.reopen();
        // Last: whoever sees the gate open is judged by the new guard.
        self.0.closed.store(false, Ordering::SeqCst);
    }

    /// Lets no further write through. Those on their way are left to end; [`Self::drained`] waits for them.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.writes.close();
    }

    /// Whether writes have stopped.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    /// Writes under way.
    pub fn in_flight(&self) -> usize {
        self.0.writes.len()
    }

    /// Returns once the gate is closed and no write is under way. The wait has no bound of its own: writes end by
    /// their timeout at the latest.
    pub async fn drained(&self) {
        self.0.writes.wait().await;
    }

    /// Lets one write through. It counts as under way before the gate is looked at: so whoever closes the gate
    /// either sees it, or it sees the gate closed.
    fn enter(&self) -> Result<TaskTrackerToken, WritesStopped> {
        let pass = self.0.writes.token();
        let open = !self.is_closed() && self.0.guards.read().iter().all(|guard| guard());
        if open { Ok(pass) } else { Err(WritesStopped) }
    }
}

struct Pass(Option<TaskTrackerToken>);

impl Hook for Pass {
    fn done(&mut self) {
        self.0 = None;
    }
}

impl Middleware for WriteGate {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return next.oneshot(request).await;
        }
        let pass = self.enter()?;
        let response = next.oneshot(request).await?;
        Ok(hook(response, Pass(Some(pass))))
    }
}
