//! Headers that every request of a client carries: who asks, and as part of which trace.

use std::sync::Arc;

use http::HeaderValue;
use http::header::{HeaderName, USER_AGENT};
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Middleware, Next};
use crate::client::api::BoxError;

/// The Kubernetes version whose API this manager is built for.
const KUBERNETES: &str = "v1.36";

/// Says in every request which controller asks, as client-go's user agents do; audit logs and API priority and
/// fairness show it.
#[derive(Clone)]
pub(in crate::client) struct UserAgent(HeaderValue);

impl UserAgent {
    /// `coxswain/VERSION (OS/ARCH) kubernetes/VERSION /NAME`, the architecture by Go's names. What cannot be in a
    /// header is left out of the name.
    pub(in crate::client) fn new(name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let os = std::env::consts::OS;
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        let name: String = name.chars().filter(char::is_ascii_graphic).collect();
        let agent = format!("coxswain/{version} ({os}/{arch}) kubernetes/{KUBERNETES} /{name}");
        Self(HeaderValue::try_from(agent).unwrap_or(HeaderValue::from_static("coxswain")))
    }
}

impl Middleware for UserAgent {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        request.headers_mut().insert(USER_AGENT, self.0.clone());
        next.oneshot(request).await
    }
}

/// Gives the W3C `traceparent` of the present span, when there is one.
pub type TraceParent = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Puts the present span's `traceparent` on requests, which joins the API server's own spans to ours.
#[derive(Clone)]
pub(in crate::client) struct TraceContext(pub(in crate::client) Option<TraceParent>);

impl Middleware for TraceContext {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let parent = self.0.as_ref().and_then(|provider| provider());
        // A value that is no header is a bug of the provider; a request without a trace is better than none.
        if let Some(value) = parent.and_then(|parent| HeaderValue::try_from(parent).ok()) {
            request.headers_mut().insert(HeaderName::from_static("traceparent"), value);
        }
        next.oneshot(request).await
    }
}
