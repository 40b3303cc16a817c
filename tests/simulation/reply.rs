//! Answers of the model as they go over the line: bodies, and watches frame by frame. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::time::{sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;

use coxswain_machinery::client::{BoxError, ResponseBody};

use crate::line::Line;
use apiserver_model::Refusal;
use apiserver_model::http::Answer;

/// The connection broke.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by the simulation")]
pub(crate) struct Reset;

/// A refusal.
pub(crate) fn refused(refusal: &Refusal) -> Response<ResponseBody> {
    let mut response = Response::new(whole(refusal.body()));
    *response.status_mut() = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}

fn whole(body: impl Into<Bytes>) -> ResponseBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer; a watch comes frame by frame, each in its time, and may be cut.
pub(crate) fn response(
    answer: Answer,
    cut_after: Option<Duration>,
    line: &Arc<Line>,
) -> Response<ResponseBody> {
    match answer {
        Answer::Body(body, is_json) => {
            let mut response = Response::new(whole(body));
            let kind = if is_json { "application/json" } else { "application/vnd.kubernetes.protobuf" };
            response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
            response
        }
        Answer::Frames(frames) => {
            let line = Arc::clone(line);
            let frames = ReceiverStream::new(frames).then(move |(due, frame)| {
                let line = Arc::clone(&line);
                async move {
                    sleep_until(due).await;
                    line.whole().await;
                    Ok::<_, BoxError>(Frame::data(frame))
                }
            });
            let body = match cut_after {
                Some(after) => {
                    let end = Box::pin(sleep(after));
                    let cut = futures::stream::once(async { Err::<Frame<Bytes>, BoxError>(Box::new(Reset)) });
                    StreamBody::new(frames.take_until(end).chain(cut)).boxed_unsync()
                }
                None => StreamBody::new(frames).boxed_unsync(),
            };
            Response::new(body)
        }
    }
}
