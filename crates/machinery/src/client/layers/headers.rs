//! The header that says who asks.

use http::HeaderValue;
use http::header::USER_AGENT;
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
