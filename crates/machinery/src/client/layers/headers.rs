//! The user agent of every request.

use http::HeaderValue;
use http::header::USER_AGENT;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Middleware, Next};
use crate::client::api::BoxError;
use crate::options::versions::{COXSWAIN, KUBERNETES};

/// The field manager of kube-controller-manager.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// Names the program and the controller in every request. Audit logs show it, and the API server takes the field manager of
/// each write that names none from its beginning, up to the first slash.
///
/// That beginning is `kube-controller-manager`, so that rules of GitOps tools, which name this manager, and entries of
/// `managedFields` mean the same under both managers. The build's part tells the two apart.
#[derive(Clone)]
pub(in crate::client) struct UserAgent(HeaderValue);

impl UserAgent {
    /// Returns `kube-controller-manager/KUBERNETES (OS/ARCH) kubernetes/coxswain-VERSION/NAME`, the form of client-go, with the
    /// architecture by Go's names. Characters of `name` that a header cannot have are left out.
    pub(in crate::client) fn new(name: &str) -> Self {
        let os = std::env::consts::OS;
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        let name: String = name.chars().filter(char::is_ascii_graphic).collect();
        let agent =
            format!("{FIELD_MANAGER}/{KUBERNETES} ({os}/{arch}) kubernetes/coxswain-{COXSWAIN}/{name}");
        Self(HeaderValue::try_from(agent).unwrap_or(HeaderValue::from_static(FIELD_MANAGER)))
    }
}

impl Middleware for UserAgent {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        request.headers_mut().insert(USER_AGENT, self.0.clone());
        next.oneshot(request).await
    }
}
