//! The client: requests to the API server, as each controller and as the manager itself.
//!
//! [`ApiClient`] speaks Kubernetes (paths, protobuf, `Status` errors) over an [`HttpService`], a stack of tower
//! layers. It caches nothing, retries nothing and decides nothing.

mod api;
mod error;

pub use api::{ApiClient, BoxError, DeleteOptions, HttpService, ListQuery, ResponseBody, WatchQuery};
pub use error::ApiError;

/// The error by which the timeout layer says that there was no answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct RequestTimeout(pub std::time::Duration);
