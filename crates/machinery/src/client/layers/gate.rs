//! The write gate: losing the lease stops every write.
//!
//! It is closed when the loss is known, and guarded for the time before: a process that was frozen for longer than its
//! lease wakes up with work in hand and does not know yet that another leads. What has passed it goes on behind a
//! [`Fence`], so that it can still be cut off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, hook};
use crate::client::api::BoxError;
use crate::client::fence::{CutOff, Fence, Guards, WriteGuard};
use crate::client::transport::TransportError;

/// A write that was not sent, because this process does not lead any more or is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write not sent: leadership is lost or the manager is shutting down")]
pub struct WritesStopped;

/// A gate that all clients of controllers share. Open at first; once closed it stays closed until leadership begins
/// anew. Cheap to clone.
#[derive(Clone, Default)]
pub struct WriteGate(Arc<State>);

#[derive(Default)]
struct State {
    closed: AtomicBool,
    /// What writes that enter now have in common.
    fence: Mutex<Arc<Fence>>,
    /// Cancelled when the gate closes; a new one each time that it opens.
    term: Mutex<CancellationToken>,
    writes: TaskTracker,
}

/// The time from when a gate opens until it closes. A request that is repeated belongs to the term in which it was first sent.
#[derive(Clone, Debug)]
pub(in crate::client) struct Term {
    closed: CancellationToken,
    fence: Arc<Fence>,
}

impl Term {
    /// Whether the gate was closed in the meantime. A write of this term is not sent then, even if the gate is open again.
    pub(in crate::client) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Returns when the gate is closed, or when the writes on their way are cut off.
    pub(in crate::client) async fn ended(&self) {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = self.fence.until_cut() => {}
        }
    }
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

    /// From now on a write passes only while `guard` says so at each moment until it is sent, and all guards before it.
    pub fn guard(&self, guard: WriteGuard) {
        self.0.fence.lock().guards().add(guard);
    }

    /// Opens the gate again, with `guard` in the place of all guards before: a new term of leadership begins. Only for
    /// whoever has closed it. Writes of terms before are cut off.
    pub fn reopen(&self, guard: WriteGuard) {
        let guards = Guards::default();
        guards.add(guard);
        let before = std::mem::replace(&mut *self.0.fence.lock(), Arc::new(Fence::new(guards)));
        before.cut();
        self.0.writes.reopen();
        *self.0.term.lock() = CancellationToken::new();
        // Last: whoever sees the gate open is judged by the new guard.
        self.0.closed.store(false, Ordering::SeqCst);
    }

    /// Lets no further write through. Those on their way are left to end; [`Self::drained`] waits for them.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.term.lock().cancel();
        self.0.writes.close();
    }

    /// Returns the present term.
    pub(in crate::client) fn term(&self) -> Term {
        Term { closed: self.0.term.lock().clone(), fence: Arc::clone(&self.0.fence.lock()) }
    }

    /// Cuts off the writes on their way: when this returns, nothing more of them leaves this machine, and their
    /// connections are reset. They fail soon afterwards. An open gate stays open; what enters it later has other
    /// connections.
    pub fn cut(&self) {
        let before = {
            let mut fence = self.0.fence.lock();
            let next = Arc::new(Fence::new(fence.guards().clone()));
            std::mem::replace(&mut *fence, next)
        };
        before.cut();
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
    fn enter(&self) -> Result<Pass, WritesStopped> {
        let under_way = self.0.writes.token();
        // Before the guards are asked: whoever cuts afterwards cuts this write.
        let fence = Arc::clone(&self.0.fence.lock());
        let open = !self.is_closed() && fence.lets_pass();
        if open { Ok(Pass { _under_way: under_way, fence }) } else { Err(WritesStopped) }
    }
}

/// A write under way.
struct Pass {
    _under_way: TaskTrackerToken,
    fence: Arc<Fence>,
}

/// A write of which the answer is being read. A cut ends that by its connection.
struct Answered(Option<Pass>);

impl Hook for Answered {
    fn done(&mut self) {
        self.0 = None;
    }
}

impl Middleware for WriteGate {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return next.oneshot(request).await;
        }
        let pass = self.enter()?;
        // After it has entered: a term that ends from here on is over with a gate that knows of this write.
        if request.extensions().get::<Term>().is_some_and(Term::is_closed) {
            return Err(WritesStopped.into());
        }
        // For the transport, which keeps its connection behind it.
        request.extensions_mut().insert(Arc::clone(&pass.fence));
        let response = tokio::select! {
            biased;
            response = next.oneshot(request) => response?,
            () = pass.fence.until_cut() => return Err(TransportError::new(CutOff.into(), false).into()),
        };
        Ok(hook(response, Answered(Some(pass))))
    }
}

#[cfg(any(test, feature = "testing"))]
impl WriteGate {
    /// Sends a write that nobody answers, until it fails.
    pub fn send_to_nobody(&self) -> futures::future::BoxFuture<'static, crate::client::ApiError> {
        let below = tower::service_fn(|_: ApiRequest| std::future::pending());
        let service = crate::client::HttpService::new(tower::Layer::layer(&super::With(self.clone()), below));
        let mut request = ApiRequest::default();
        *request.method_mut() = Method::POST;
        Box::pin(async move {
            let error = service.oneshot(request).await.err().unwrap_or_else(|| "it was answered".into());
            crate::client::ApiError::transport("write", error)
        })
    }
}
