//! A limit on the time that a request takes: to the end of its response, or for a watch that is granted to its beginning.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::Sleep;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, hook};
use crate::client::RequestTimeout;
use crate::client::api::BoxError;
use crate::client::request::RequestIntent;

/// Ends requests that take longer than this, with [`RequestTimeout`].
#[derive(Clone, Copy)]
pub(in crate::client) struct Timeout(pub(in crate::client) Duration);

impl Middleware for Timeout {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let is_watch = RequestIntent::of(&request).is_watch();
        let limit = self.0;
        let mut sleep = Box::pin(tokio::time::sleep(limit));
        let response = tokio::select! {
            biased;
            response = next.oneshot(request) => response?,
            () = &mut sleep => return Err(RequestTimeout(limit).into()),
        };
        // The answer that refuses a watch has an end.
        let is_endless = is_watch && response.status().is_success();
        Ok(if is_endless { response } else { hook(response, Deadline { sleep, limit }) })
    }
}

struct Deadline {
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
}

impl Hook for Deadline {
    fn check(&mut self, cx: &mut Context<'_>) -> Result<(), BoxError> {
        if self.sleep.as_mut().poll(cx).is_ready() { Err(RequestTimeout(self.limit).into()) } else { Ok(()) }
    }
}
