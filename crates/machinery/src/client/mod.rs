//! The client: requests to the API server, as each controller and as the manager itself.
//!
//! [`ApiClient`] speaks Kubernetes (paths, protobuf, `Status` errors) over an [`HttpService`], a stack of tower
//! layers. It caches nothing and decides nothing. It repeats only what the API server has refused with a time to come back
//! (`patience.rs`). Requests are built in [`request`] alone, from typed parts.
//!
//! ```text
//! Connection (config)     kubeconfig → --master → in-cluster
//!     │
//! Transport               lanes of HTTP/2 connections as one identity: the manager's, or nobody's
//!     │
//! layers                  name, trace, rate, token, gate, metrics, timeout
//!     │
//! ApiClient               one per controller, made by ClientBuilder
//!     │
//! Discovery, RestMapper   which resources the server has
//! ```

mod api;
mod body;
mod builder;
mod config;
mod credentials;
mod discovery;
mod error;
mod fence;
mod in_cluster;
mod kubeconfig;
mod layers;
mod live;
mod metadata;
mod object_list;
mod patience;
mod pod_port;
mod repeat_budget;
mod request;
mod send;
mod tls;
mod transport;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use api::{
    ApiClient, BoxError, DeleteOptions, Deletion, HttpService, ListQuery, ResponseBody, WatchQuery,
};
pub use builder::{ClientBuildError, ClientBuilder, ClientOptions, QpsFactor};
pub use config::{ConfigError, Connection, Origin};
pub use config::{describe_kube, describe_kubeconfig, proxy_url};
pub use credentials::ServiceAccountTokens;
pub use discovery::{
    ApiResource, ApiResources, Discovery, DiscoveryError, NotReady, RestMapper, wait_for_api_server,
};
pub use error::ApiError;
pub use fence::WriteGuard;
pub use in_cluster::{SERVICE_ACCOUNT_FILES, in_cluster as in_cluster_config};
pub use kubeconfig::read_kubeconfig;
pub(crate) use layers::RateClass;
pub use layers::{
    ClientMetrics, Fault, FaultRule, Faults, RateLimiter, TokenError, TokenSource, WriteGate, WritesStopped,
};
pub use live::{AccessQuestion, AccessVerdict, Pieces};
pub(crate) use object_list::ListPosition;
pub use object_list::{ObjectList, UnreadableObject};
pub(crate) use patience::WaitSeats;
pub use pod_port::{PodPort, PodPortError};
pub(crate) use request::LONGEST_OBJECT;
pub use request::{FieldSelector, InvalidPath, Query, RequestIntent, RequestPath, RequestUri};
pub(crate) use send::Interrupted;
pub use tls::tls_config;
pub use transport::{KeepAlive, Transport, TransportError};

/// The error by which the timeout layer says that there was no answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out after {0:?}")]
pub struct RequestTimeout(pub std::time::Duration);
