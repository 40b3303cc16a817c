//! Response bodies that something hangs on: a deadline, a count, a seat that is given up when the body ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::ApiResponse;
use crate::client::api::{BoxError, ResponseBody};

/// What hangs on a body. It is dropped with the body, at its end or before.
pub(in crate::client) trait Hook: Send + Unpin + 'static {
    /// Called before the body is polled; an error ends it.
    fn check(&mut self, _cx: &mut Context<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Called with the length of each piece of data.
    fn data(&mut self, _len: usize) {}

    /// Called when the body has ended, well or with an error.
    fn done(&mut self) {}
}

/// The response with `hook` on its body.
pub(in crate::client) fn hook<H: Hook>(response: ApiResponse, hook: H) -> ApiResponse {
    response.map(|body| Hooked { body, hook }.boxed_unsync())
}

struct Hooked<H> {
    body: ResponseBody,
    hook: H,
}

impl<H: Hook> Body for Hooked<H> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Err(error) = this.hook.check(cx) {
            this.hook.done();
            return Poll::Ready(Some(Err(error)));
        }
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.hook.data(data.len());
                }
            }
            Poll::Ready(_) => this.hook.done(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
