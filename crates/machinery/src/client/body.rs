//! Response bodies are read up to a limit, never without one.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::api::{BoxError, ResponseBody};

/// The answer is longer than its intent allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response has more than {0} bytes")]
pub(super) struct AnswerTooLong(pub(super) usize);

/// A body whose data is counted.
struct Bounded {
    body: ResponseBody,
    left: usize,
    limit: usize,
}

impl Bounded {
    fn new(body: ResponseBody, limit: usize) -> Self {
        Self { body, left: limit, limit }
    }

    /// Returns the next piece of data, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, BoxError> {
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            self.left = self.left.checked_sub(data.len()).ok_or(AnswerTooLong(self.limit))?;
            return Ok(Some(data));
        }
        Ok(None)
    }
}

/// Reads a body to its end, as the pieces in which it came.
///
/// # Errors
/// [`AnswerTooLong`] when it has more than `limit` bytes, and the errors of the body.
pub(super) async fn pieces(body: ResponseBody, limit: usize) -> Result<VecDeque<Bytes>, BoxError> {
    let (mut body, mut pieces) = (Bounded::new(body, limit), VecDeque::new());
    while let Some(piece) = body.next().await? {
        pieces.push_back(piece);
    }
    Ok(pieces)
}

/// Reads a body to its end.
///
/// # Errors
/// [`AnswerTooLong`] when it has more than `limit` bytes, and the errors of the body.
pub(super) async fn collect(body: ResponseBody, limit: usize) -> Result<Bytes, BoxError> {
    let mut pieces = pieces(body, limit).await?;
    if pieces.len() < 2 {
        return Ok(pieces.pop_front().unwrap_or_default());
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    // Each piece is freed when it has been copied.
    while let Some(piece) = pieces.pop_front() {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Reads a body to its end and keeps nothing of it.
///
/// # Errors
/// [`AnswerTooLong`] when it has more than `limit` bytes, and the errors of the body.
pub(super) async fn drain(body: ResponseBody, limit: usize) -> Result<(), BoxError> {
    let mut body = Bounded::new(body, limit);
    while body.next().await?.is_some() {}
    Ok(())
}

/// Reads the first `limit` bytes of a body, or all if it has fewer.
///
/// # Errors
/// The errors of the body.
pub(super) async fn collect_start(mut body: ResponseBody, limit: usize) -> Result<Bytes, BoxError> {
    let mut start = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let left = limit - start.len();
        start.extend_from_slice(data.get(..left).unwrap_or(&data));
        if start.len() == limit {
            break;
        }
    }
    Ok(start.freeze())
}
