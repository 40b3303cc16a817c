//! Answers of the model as they go over a line that may be cut. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::{sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;

use coxswain_machinery::client::{BoxError, ResponseBody};

use crate::line::Line;
use apiserver_model::http::Answer;
use apiserver_model::reply::whole;

/// The connection broke.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by the simulation")]
pub(crate) struct Reset;

/// An answer; a watch comes frame by frame, each in its time, and may be cut.
pub(crate) fn response(
    answer: Answer,
    cut_after: Option<Duration>,
    line: &Arc<Line>,
) -> Response<ResponseBody> {
    match answer {
        Answer::Body(body, is_json) => whole(body, is_json),
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
