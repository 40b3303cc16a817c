//! [`ListWatch`]: where a reflector gets its lists and watches. The API client in the manager, a script in tests.

use futures::future::BoxFuture;

use crate::api::Kind;
use crate::client::{ApiClient, ApiError, ListQuery, ResponseBody, WatchQuery};
use crate::wire::ListPage;

/// What a reflector needs of the API server.
pub trait ListWatch: Send + Sync + 'static {
    /// One page of a collection.
    fn list(&self, kind: &'static Kind, query: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>>;

    /// Opens a watch: a body of frames, each behind its four-byte big-endian length.
    fn watch(&self, kind: &'static Kind, query: WatchQuery) -> BoxFuture<'_, Result<ResponseBody, ApiError>>;
}

impl ListWatch for ApiClient {
    fn list(&self, kind: &'static Kind, query: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>> {
        // A reflector waits by itself.
        Box::pin(async move { ApiClient::list(&self.clone().impatient(), kind, &query).await })
    }

    fn watch(&self, kind: &'static Kind, query: WatchQuery) -> BoxFuture<'_, Result<ResponseBody, ApiError>> {
        Box::pin(async move { ApiClient::watch(self, kind, &query).await })
    }
}
