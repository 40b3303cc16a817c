//! Bearer tokens: put on each request from a source that refreshes them.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Middleware, Next};
use crate::client::api::BoxError;

/// There is no token to send a request with, so it was not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("get token of {identity}: {why}")]
pub struct TokenError {
    /// Whose token: a service account as `namespace/name`, or a file.
    pub identity: String,
    /// Why there is none; never any part of one.
    pub why: String,
}

/// Where bearer tokens come from. One source is shared by all clients of the identity.
pub trait TokenSource: Send + Sync + 'static {
    /// The value of the `Authorization` header, marked as sensitive. Waits while there is none yet.
    fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, TokenError>>;

    /// The API server answered 401 to this value: a hint to refresh early.
    fn rejected(&self, authorization: &HeaderValue);
}

/// The header value for a token, hidden from `Debug`; `None` when the token holds what no header can.
pub(in crate::client) fn authorization(token: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret().trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Puts the source's token on each request.
#[derive(Clone)]
pub(in crate::client) struct Bearer(pub(in crate::client) Arc<dyn TokenSource>);

impl Middleware for Bearer {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let authorization = self.0.authorization().await?;
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        let response = next.oneshot(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.0.rejected(&authorization);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_trimmed_and_hidden() {
        let value = authorization(&SecretString::from("s3cret\n")).unwrap();
        assert_eq!(value.as_bytes(), b"Bearer s3cret");
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert!(authorization(&SecretString::from("two\nlines")).is_none());
    }
}
