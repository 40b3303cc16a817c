//! Takes a watch's body apart into frames, each behind its four-byte big-endian length.
//!
//! A frame that lies within one chunk is a slice of it; only one that is split over chunks is put together in a buffer
//! of our own. No frame may be longer than [`MAX_FRAME`], and a length is never believed before its bytes are there:
//! the buffer grows with what has come.

use bytes::{Buf, Bytes, BytesMut};

use crate::client::LONGEST_OBJECT;

/// Longest frame accepted: as long as the longest object that the client reads.
pub(super) const MAX_FRAME: usize = LONGEST_OBJECT;
/// A buffer of our own that has grown beyond this is given back as soon as it is empty.
const KEPT: usize = 64 << 10;
const PREFIX: usize = 4;

/// A frame's length is not believable: the stream is out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a watch frame has {0} bytes; the limit is {MAX_FRAME}")]
pub(crate) struct FrameTooLong(usize);

/// A reassembler of frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The chunk received last, as far as it is not used.
    chunk: Bytes,
    /// The beginning of a frame whose end has not come.
    partial: BytesMut,
}

impl Frames {
    /// Takes in a chunk; only when [`Frames::next`] has returned `None` for the chunk before.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !self.chunk.is_empty() {
            self.partial.extend_from_slice(&self.chunk);
        }
        self.chunk = chunk;
    }

    /// The next whole frame, or `None` when more must be received first.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        if self.partial.is_empty() {
            let Some(length) = length_of(&self.chunk)? else { return Ok(self.hold()) };
            if self.chunk.len() < PREFIX + length {
                return Ok(self.hold());
            }
            self.chunk.advance(PREFIX);
            return Ok(Some(self.chunk.split_to(length)));
        }
        self.fill(PREFIX);
        let Some(length) = length_of(&self.partial)? else { return Ok(None) };
        self.fill(PREFIX + length);
        if self.partial.len() < PREFIX + length {
            return Ok(None);
        }
        let frame = if self.partial.capacity() > KEPT {
            std::mem::take(&mut self.partial).freeze()
        } else {
            self.partial.split().freeze()
        };
        Ok(Some(frame.slice(PREFIX..)))
    }

    /// Whether the body may end here: no frame has begun.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.chunk.is_empty() && self.partial.is_empty()
    }

    /// Gives the buffer back, as far as nothing is in it.
    pub(super) fn release(&mut self) {
        if self.partial.is_empty() {
            self.partial = BytesMut::new();
        }
    }

    /// Keeps the rest of the chunk as the beginning of a frame, and lets the chunk go.
    fn hold(&mut self) -> Option<Bytes> {
        self.partial.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        None
    }

    /// Moves bytes from the chunk so that the partial frame has up to `size`.
    fn fill(&mut self, size: usize) {
        let wanted = size.saturating_sub(self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk.split_to(wanted));
    }
}

fn length_of(bytes: &[u8]) -> Result<Option<usize>, FrameTooLong> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > MAX_FRAME { Err(FrameTooLong(length)) } else { Ok(Some(length)) }
}
