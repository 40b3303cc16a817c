//! The layers between [`ApiClient`](super::ApiClient) and the transport, each of one concern.
//!
//! A layer is a [`Middleware`]: one function from a request and what lies below to a response. [`Stack`] makes a
//! tower service of it. From the outside in, a controller's client is:
//!
//! ```text
//! user agent → trace → rate limit → bearer token → write gate → (JSON) → metrics → timeout → (faults) → transport
//! ```
//!
//! The gate lies below everything that waits, so that a write which was still queueing when leadership went never
//! leaves; metrics and the timeout lie below the rate limit, so that waiting for one's own bucket counts as neither
//! latency nor lateness. No layer repeats a request: `patience.rs` does, above all of them.

mod bearer;
mod body;
mod faults;
mod gate;
mod headers;
mod json;
mod metrics;
mod rate;
mod timeout;
mod trace;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service};

use super::api::{BoxError, ResponseBody};

pub(super) use bearer::{Bearer, authorization};
pub use bearer::{TokenError, TokenSource};
pub(super) use body::{Hook, hook};
pub use faults::{Fault, FaultRule, Faults};
pub(super) use gate::Term;
pub use gate::{WriteGate, WritesStopped};
pub(super) use headers::UserAgent;
pub(super) use json::{JsonOnTheWire, events, is_json};
pub use metrics::ClientMetrics;
pub(super) use metrics::{CountedTransport, HostMetrics, RequestMetrics};
pub(crate) use rate::RateClass;
pub use rate::RateLimiter;
pub(super) use rate::{RateLimit, RateLimits, RateToken};
pub(super) use timeout::Timeout;
pub(super) use trace::Trace;

/// A request as layers see it: path and query only, the body in memory.
pub(super) type ApiRequest = Request<Full<Bytes>>;
/// A response as layers see it.
pub(super) type ApiResponse = Response<ResponseBody>;

/// What lies below a layer.
pub(super) trait Next:
    Service<ApiRequest, Response = ApiResponse, Error = BoxError, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Next for S where
    S: Service<ApiRequest, Response = ApiResponse, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// What a layer does with one request.
pub(super) trait Middleware: Clone + Send + Sync + 'static {
    /// Sends `request` on through `next`, or not.
    fn handle<S: Next>(
        &self,
        request: ApiRequest,
        next: S,
    ) -> impl Future<Output = Result<ApiResponse, BoxError>> + Send;
}

/// A [`Middleware`] as a tower layer.
#[derive(Clone)]
pub(super) struct With<M>(pub(super) M);

impl<M: Middleware, S> Layer<S> for With<M> {
    type Service = Stack<M, S>;

    fn layer(&self, below: S) -> Self::Service {
        Stack(Arc::new(Layered { middleware: self.0.clone(), below }))
    }
}

/// A [`Middleware`] above a service. A request clones it, and that clones nothing of what lies below.
pub(super) struct Stack<M, S>(Arc<Layered<M, S>>);

struct Layered<M, S> {
    middleware: M,
    below: S,
}

impl<M, S> Clone for Stack<M, S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Middleware, S: Next> Service<ApiRequest> for Stack<M, S> {
    type Response = ApiResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ApiResponse, BoxError>>;

    /// Always ready: a layer drives what is below to readiness for each request by itself, so that whatever waits
    /// (the rate limit, a token) waits inside of the call, where it can be cancelled and is measured.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ApiRequest) -> Self::Future {
        let layered = Arc::clone(&self.0);
        Box::pin(async move { layered.middleware.handle(request, layered.below.clone()).await })
    }
}
