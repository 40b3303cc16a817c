//! What the port tells telemetry. Telemetry implements it; the port knows no metric.

use std::time::Duration;

use super::health::Probe;
use crate::telemetry::CheckStatus;

/// How an attempt to authenticate or authorize ended. The names are the label values of the original's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Let in, or allowed.
    Success,
    /// Turned away, or denied.
    Failure,
    /// It could not be decided.
    Error,
}

impl RequestOutcome {
    /// The value of `authentication_attempts{result}`.
    pub fn authentication_label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Error => "error",
        }
    }

    /// The value of `authorization_attempts_total{result}`.
    pub fn authorization_label(self) -> &'static str {
        match self {
            Self::Success => "allowed",
            Self::Failure => "denied",
            Self::Error => "error",
        }
    }
}

/// Hears of what happens at the port. Calls are made inline: they must be quick and must not block.
pub trait ServeObserver: Send + Sync + 'static {
    /// A health check was run (`kubernetes_healthcheck`, `kubernetes_healthchecks_total`).
    fn health_checked(&self, _name: &str, _probe: Probe, _status: CheckStatus) {}

    /// `DELETE /metrics/slis`: forget the health results counted so far.
    fn reset_slis(&self) {}

    /// A request was authenticated or not; `user` is whom it was found to be (`authentication_attempts`,
    /// `authentication_duration_seconds`, `authenticated_user_requests`).
    fn authenticated(&self, _outcome: RequestOutcome, _user: Option<&str>, _took: Duration) {}

    /// A request was authorized or not (`authorization_attempts_total`, `authorization_duration_seconds`).
    fn authorized(&self, _outcome: RequestOutcome, _took: Duration) {}
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl ServeObserver for Unobserved {}
