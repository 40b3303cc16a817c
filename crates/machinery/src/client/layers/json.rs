//! JSON instead of protobuf on the wire, for `--kube-api-content-type=application/json`.
//!
//! What lies above asks in protobuf and is answered in protobuf, as always. Requests that are JSON by themselves pass as they
//! are, and so do answers that say why a request failed: these are understood in either form. Never retries.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Middleware, Next};
use crate::client::api::{BoxError, ResponseBody};
use crate::client::body::collect;
use crate::client::request::{LONGEST_OBJECT, RequestIntent};
use crate::wire::json::{JsonError, object_from_json, object_to_json, watch_event_from_json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
/// How many times as long as the protobuf the JSON of the same object may be.
const LONGER: usize = 4;
/// The longest event of a watch.
const MAX_LINE: usize = LONGER * LONGEST_OBJECT;

/// Speaks JSON with the API server.
#[derive(Clone, Copy)]
pub(in crate::client) struct JsonOnTheWire;

impl Middleware for JsonOnTheWire {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let Some(accept) = request.headers().get(ACCEPT).and_then(in_json) else {
            return next.oneshot(request).await;
        };
        if is_metadata(&accept) {
            // The client reads metadata in either form.
            let mut request = with_json_body(request).await?;
            request.headers_mut().insert(ACCEPT, accept);
            return next.oneshot(request).await;
        }
        let intent = RequestIntent::of(&request);
        let mut request = with_json_body(request).await?;
        request.headers_mut().insert(ACCEPT, accept);
        let response = next.oneshot(request).await?;
        if !response.status().is_success() || !is_json(response.headers()) {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        let body = if intent.is_watch() {
            events(body, watch_event_from_json)
        } else {
            let json = collect(body, LONGER * intent.body_limit()).await?;
            Full::from(object_from_json(&json)?).map_err(|never| match never {}).boxed_unsync()
        };
        Ok(ApiResponse::from_parts(parts, body))
    }
}

/// What is to be accepted instead of protobuf, of the same kind; `None` if no protobuf is asked for.
fn in_json(accept: &HeaderValue) -> Option<HeaderValue> {
    let rest = accept.to_str().ok()?.strip_prefix(PROTOBUF)?;
    if let Some((_, others)) = rest.split_once(',') {
        return HeaderValue::try_from(others).ok();
    }
    let rest = rest.strip_suffix(";stream=watch").unwrap_or(rest);
    HeaderValue::try_from(format!("{JSON}{rest}")).ok()
}

fn is_metadata(accept: &HeaderValue) -> bool {
    accept.to_str().is_ok_and(|accept| accept.contains("as=PartialObjectMetadata"))
}

/// Whether an answer is in JSON, by its media type.
pub(in crate::client) fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(JSON)
}

/// The request with its object in JSON, if that is in protobuf.
async fn with_json_body(request: ApiRequest) -> Result<ApiRequest, BoxError> {
    if request.headers().get(CONTENT_TYPE).is_none_or(|content_type| content_type != PROTOBUF) {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let object = body.collect().await?.to_bytes();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(ApiRequest::from_parts(parts, Full::from(object_to_json(&object)?)))
}

/// Makes an event in JSON into one in protobuf.
type ReadEvent = fn(&[u8]) -> Result<Vec<u8>, JsonError>;

/// The body of a watch in JSON as frames of protobuf.
pub(in crate::client) fn events(body: ResponseBody, read: ReadEvent) -> ResponseBody {
    Events { body, read, buffer: BytesMut::new(), searched: 0 }.boxed_unsync()
}

/// The events of a watch: lines of JSON, made into frames.
struct Events {
    body: ResponseBody,
    read: ReadEvent,
    buffer: BytesMut,
    /// So many bytes of the buffer hold no end of a line.
    searched: usize,
}

impl Events {
    /// The next line that is there as a whole.
    fn line(&mut self) -> Option<Bytes> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end + 1);
        self.searched = 0;
        Some(line.freeze())
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            while let Some(line) = this.line() {
                if !line.trim_ascii().is_empty() {
                    return Poll::Ready(Some(frame(&line, this.read)));
                }
            }
            if this.buffer.len() > MAX_LINE {
                return Poll::Ready(Some(Err(too_long().into())));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => this.buffer.extend(frame.into_data().ok()),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // What is left is half an event: the watch is taken up again from the last whole one.
                None => return Poll::Ready(None),
            }
        }
    }
}

fn too_long() -> JsonError {
    JsonError::new(format!("a watch event has more than {MAX_LINE} bytes"))
}

/// An event as a frame: its length, and the event in protobuf.
fn frame(line: &[u8], read: ReadEvent) -> Result<Frame<Bytes>, BoxError> {
    let event = read(line)?;
    let length = u32::try_from(event.len()).map_err(|_| too_long())?;
    Ok(Frame::data([&length.to_be_bytes(), event.as_slice()].concat().into()))
}
