//! Where events are written to.

use futures::future::BoxFuture;

use crate::api::events::{EVENTS, Event};
use crate::client::{ApiClient, ApiError};
use crate::model::Key;
use crate::model::plan::Patch;
use crate::wire::Message;

/// Writes events.
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event in its namespace.
    fn create<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Patches an event that was created before.
    fn patch<'a>(&'a self, key: &'a Key, patch: &'a Patch) -> BoxFuture<'a, Result<(), ApiError>>;
}

/// The API server, as the identity of the client.
impl EventSink for ApiClient {
    fn create<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let bytes = event.to_bytes();
            ApiClient::create(self, &EVENTS, &event.metadata.namespace, &bytes).await.map(drop)
        })
    }

    fn patch<'a>(&'a self, key: &'a Key, patch: &'a Patch) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move { ApiClient::patch(self, &EVENTS, key, None, patch).await.map(drop) })
    }
}
