//! Who gets where without credentials: to health, to reflection where that is wanted, and nowhere else.
//!
//! Reflection is a stream that the library serves, so its places are counted here.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::places::{StreamPlaces, held};
use crate::admin::authorize::{is_known, unauthenticated};

const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: &str = "/grpc.reflection.";

/// Turns calls without credentials away. That an identity may do something is judged behind it.
#[derive(Clone, Debug)]
pub(super) struct Guard<S> {
    inner: S,
    anonymous_reflection: bool,
    places: StreamPlaces,
}

impl<S> Guard<S> {
    pub(super) fn new(inner: S, anonymous_reflection: bool, places: StreamPlaces) -> Self {
        Self { inner, anonymous_reflection, places }
    }

    fn lets_in(&self, request: &Request<Body>) -> bool {
        let path = request.uri().path();
        path.starts_with(HEALTH)
            || path.starts_with(REFLECTION) && self.anonymous_reflection
            || is_known(request.extensions())
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
        let refused =
            |status: Status| -> Self::Future { Box::pin(std::future::ready(Ok(status.into_http()))) };
        if !self.lets_in(&request) {
            return refused(unauthenticated());
        }
        if !request.uri().path().starts_with(REFLECTION) {
            let share = match self.places.call(request.extensions()) {
                Ok(share) => share,
                Err(status) => return refused(status),
            };
            let answer = self.inner.call(request);
            return Box::pin(async move {
                let _share = share;
                answer.await
            });
        }
        let place = match self.places.take(request.extensions()) {
            Ok(place) => place,
            Err(status) => return refused(status),
        };
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(held(answer.await?, place)) })
    }
}
