//! Who gets where without credentials: to health, to reflection where that is wanted, and nowhere else.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tower::Service;

use crate::admin::authorize::unauthenticated;
use coxswain_machinery::serve::UserInfo;

const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: &str = "/grpc.reflection.";

/// Turns calls without credentials away. That an identity may do something is judged behind it.
#[derive(Clone, Debug)]
pub(super) struct Guard<S> {
    inner: S,
    anonymous_reflection: bool,
}

impl<S> Guard<S> {
    pub(super) fn new(inner: S, anonymous_reflection: bool) -> Self {
        Self { inner, anonymous_reflection }
    }

    fn lets_in(&self, request: &Request<Body>) -> bool {
        let path = request.uri().path();
        path.starts_with(HEALTH)
            || path.starts_with(REFLECTION) && self.anonymous_reflection
            || UserInfo::of(request.extensions()).is_some_and(|user| !user.is_anonymous())
    }
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.lets_in(&request) {
            Box::pin(self.inner.call(request))
        } else {
            Box::pin(std::future::ready(Ok(unauthenticated().into_http())))
        }
    }
}
