//! What the port tells telemetry. Telemetry implements it; the port knows no metric.

use std::time::Duration;

use super::health::Probe;
use crate::telemetry::CheckStatus;

/// How an attempt to authenticate or authorize ended. The names are the label values of the original's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Let in, or allowed.
    Success,
    /// Turned away, or not allowed by anybody.
    Failure,
    /// Denied by somebody who says so, whatever others would say.
    Denied,
    /// It could not be decided.
    Error,
}

impl RequestOutcome {
    /// The value of `authentication_attempts{result}`.
    pub fn authentication_label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure | Self::Denied => "failure",
            Self::Error => "error",
        }
    }

    /// The value of `authorization_attempts_total{result}`.
    pub fn authorization_label(self) -> &'static str {
        match self {
            Self::Success => "allowed",
            Self::Failure => "no-opinion",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}

/// What the API server is asked about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// Whose token it is: a TokenReview.
    Token,
    /// What a user may do: a SubjectAccessReview.
    Access,
}

/// Hears of what happens at the port. Calls are made inline: they must be quick and must not block.
pub trait ServeObserver: Send + Sync + 'static {
    /// A health check was run (`kubernetes_healthcheck`, `kubernetes_healthchecks_total`).
    fn health_checked(&self, _name: &str, _probe: Probe, _status: CheckStatus) {}

    /// All checks of an endpoint, by name, as it is about to run them: no other check has a result any longer.
    fn health_checks(&self, _probe: Probe, _names: &[String]) {}

    /// The first of the certificates that a port serves expires at this time, in seconds since 1970.
    fn serving_certificate(&self, _port: u16, _not_after: i64) {}

    /// The next certificate of a bundle of client CAs expires at this time, in seconds since 1970.
    fn client_ca(&self, _source: &'static str, _not_after: i64) {}

    /// `DELETE /metrics/slis`: forget the health results counted so far.
    fn reset_slis(&self) {}

    /// A request was authenticated or not; `user` is whom it was found to be (`authentication_attempts`,
    /// `authentication_duration_seconds`, `authenticated_user_requests`).
    fn authenticated(&self, _outcome: RequestOutcome, _user: Option<&str>, _took: Duration) {}

    /// A request was authorized or not (`authorization_attempts_total`, `authorization_duration_seconds`).
    fn authorized(&self, _outcome: RequestOutcome, _took: Duration) {}

    /// A client's certificate led to an authority that is trusted, and is valid for so much longer
    /// (`apiserver_client_certificate_expiration_seconds`).
    fn certificate_trusted(&self, _valid_for: Duration) {}

    /// The API server was asked about a caller, and answered with this HTTP status; without one it did not answer
    /// (`apiserver_delegated_authn_request_total` and `_duration_seconds`, and the same of `authz`).
    fn reviewed(&self, _what: ReviewKind, _status: Option<u16>, _took: Duration) {}

    /// A token was looked for among those that are remembered, and asked about if it was not there
    /// (`authentication_token_cache_request_total` and `_duration_seconds`).
    fn token_looked_up(&self, _is_remembered: bool, _took: Duration) {}

    /// So many more requests, or fewer, wait for what is said of their tokens (`authentication_token_cache_active_fetch_count`).
    fn tokens_wait(&self, _more: i64) {}

    /// So many more tokens, or fewer, are being asked about; requests with the same one share the question
    /// (`authentication_token_cache_active_fetch_count`).
    fn tokens_fetched(&self, _more: i64) {}

    /// It was found out whose a token is, or not (`authentication_token_cache_fetch_total`).
    fn token_fetched(&self, _is_known: bool) {}
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl ServeObserver for Unobserved {}
