//! Answers of `StreamEvents` that hold their encoding.
//!
//! To a thousand readers, an event costs one encoding and a thousand copies of its bytes. The generated server sends
//! this type in place of the message that it encodes (`build.rs` says so); clients know nothing of it.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};

use super::record::LogEvent;
use crate::admin::proto;
use crate::admin::proto::stream_events_response::Item;

/// A `StreamEventsResponse`, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedResponse(Bytes);

impl EncodedResponse {
    /// Encodes an answer.
    pub fn of(item: Item) -> Self {
        Self(proto::StreamEventsResponse { item: Some(item) }.encode_to_vec().into())
    }

    /// The answer that carries an event, encoded by whoever asks first.
    pub fn of_event(event: &Arc<LogEvent>) -> Self {
        Self(event.encoded.get_or_init(|| Self::of(Item::Event(event.to_proto())).0).clone())
    }

    /// The encoding.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Message for EncodedResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// Adds a field to the encoding: fields one after the other are a message.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let mut part = proto::StreamEventsResponse::default();
        part.merge_field(tag, wire_type, buf, context)?;
        let mut whole = self.0.to_vec();
        part.encode_raw(&mut whole);
        self.0 = whole.into();
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0 = Bytes::new();
    }
}
