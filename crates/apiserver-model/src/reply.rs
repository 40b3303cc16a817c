//! Answers as they go over a line: bodies, and watches frame by frame, each in its time. It decides nothing.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::time::sleep_until;
use tokio_stream::wrappers::ReceiverStream;

use coxswain_machinery::client::{BoxError, ResponseBody};

use super::Refusal;
use super::http::Answer;

/// A whole body.
pub fn whole(body: impl Into<Bytes>, is_json: bool) -> Response<ResponseBody> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    let kind = if is_json { "application/json" } else { "application/vnd.kubernetes.protobuf" };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A refusal.
pub fn refused(refusal: &Refusal) -> Response<ResponseBody> {
    let mut response = whole(refusal.body(), false);
    *response.status_mut() = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// What the model answers, over a line to which nothing happens.
pub fn response(answer: Result<Answer, Refusal>) -> Response<ResponseBody> {
    match answer {
        Ok(Answer::Body(body, is_json)) => whole(body, is_json),
        Ok(Answer::Frames(frames)) => {
            let frames = ReceiverStream::new(frames).then(|(due, frame)| async move {
                sleep_until(due).await;
                Ok::<_, BoxError>(Frame::data(frame))
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        Err(refusal) => refused(&refusal),
    }
}
