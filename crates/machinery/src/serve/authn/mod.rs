//! Delegated authentication: a front proxy's headers, a client certificate, a bearer token; else anonymous.
//!
//! Credentials that are shown and do not hold up are an error, even where another method shows none: whoever tries
//! with a bad certificate or token is turned away rather than let in as anonymous.

mod cluster;
mod request_header;
mod token;
pub(super) mod trust;

use std::sync::Arc;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;

use super::observe::{RequestOutcome, ServeObserver};
use super::user::UserInfo;
pub(super) use cluster::ClusterTrust;
pub(super) use request_header::{HeaderRules, RequestHeader};
pub(super) use token::TokenAuthenticator;
use trust::TrustStore;

/// Why nobody was found behind a request. For the log: the client is told only that it is not authorized.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub(super) struct Unauthenticated(Vec<String>);

/// A client's certificate chain, leaf first; empty when it showed none.
pub(super) type ClientCerts = Arc<[CertificateDer<'static>]>;

/// The methods, in the order in which they are asked.
pub(super) struct Authenticator {
    pub(super) request_header: Option<Arc<RequestHeader>>,
    pub(super) client_ca: Option<Arc<TrustStore>>,
    pub(super) tokens: Option<TokenAuthenticator>,
    pub(super) observer: Arc<dyn ServeObserver>,
}

impl Authenticator {
    /// Finds out who calls, and takes the credentials out of the headers: no handler sees them.
    pub(super) async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        certs: &ClientCerts,
    ) -> Result<Arc<UserInfo>, Unauthenticated> {
        let begun = tokio::time::Instant::now();
        let found = self.find(headers, certs).await;
        headers.remove(http::header::AUTHORIZATION);
        if let Some(request_header) = &self.request_header {
            request_header.strip(headers);
        }
        let took = begun.elapsed();
        match &found {
            Ok(user) => self.observer.authenticated(RequestOutcome::Success, Some(&user.name), took),
            Err(_) => self.observer.authenticated(RequestOutcome::Error, None, took),
        }
        found
    }

    async fn find(&self, headers: &HeaderMap, certs: &ClientCerts) -> Result<Arc<UserInfo>, Unauthenticated> {
        let mut reasons = Vec::new();
        if let Some((leaf, chain)) = certs.split_first() {
            if let Some(method) = &self.request_header {
                match method.authenticate(headers, leaf, chain) {
                    Ok(Some(user)) => return Ok(Arc::new(user.authenticated())),
                    Ok(None) => {}
                    Err(reason) => reasons.push(format!("front proxy: {reason}")),
                }
            }
            if let Some(store) = &self.client_ca {
                match store.user(leaf, chain, &*self.observer) {
                    Ok(Some(user)) => return Ok(Arc::new(user.authenticated())),
                    Ok(None) => {}
                    Err(reason) => reasons.push(format!("client certificate: {reason}")),
                }
            }
        }
        if let Some(tokens) = &self.tokens
            && let Some(token) = token::bearer(headers)
        {
            match tokens.authenticate(token).await {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => reasons.push("invalid bearer token".to_owned()),
                Err(error) => reasons.push(format!("bearer token: {error}")),
            }
        }
        if reasons.is_empty() { Ok(Arc::new(UserInfo::anonymous())) } else { Err(Unauthenticated(reasons)) }
    }
}
