//! The admin API.
pub mod proto;
pub mod events { pub type EncodedResponse = crate::admin::proto::StreamEventsResponse; }
