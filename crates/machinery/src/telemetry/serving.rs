//! Metrics of the secure port's authentication and authorization, under the original's names.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::metrics::{MetricsError, Registrar, exponential_buckets};
use super::registry::Registry;

/// Who came to the secure port, and what became of it.
#[derive(Clone, Debug)]
pub struct ServeMetrics {
    users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_time: HistogramVec,
    authorizations: IntCounterVec,
    authorization_time: HistogramVec,
}

impl ServeMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        let buckets = || exponential_buckets(0.001, 2.0, 15);
        Ok(Self {
            users: registrar.counters(
                "authenticated_user_requests",
                "Authenticated requests by user name; all but a few well-known names are counted as \"other\".",
                &["username"],
            )?,
            authentications: registrar.counters(
                "authentication_attempts",
                "Requests by the result of their authentication: success, failure or error.",
                &["result"],
            )?,
            authentication_time: registrar.histograms(
                "authentication_duration_seconds",
                "Time that authentication took, by its result.",
                &["result"],
                buckets(),
            )?,
            authorizations: registrar.counters(
                "authorization_attempts_total",
                "Requests by the result of their authorization: allowed, denied or error.",
                &["result"],
            )?,
            authorization_time: registrar.histograms(
                "authorization_duration_seconds",
                "Time that authorization took, by its result.",
                &["result"],
                buckets(),
            )?,
        })
    }

    /// Counts an authentication; `user` is whom the request was found to come from.
    pub fn authenticated(&self, result: &str, user: Option<&str>, took: Duration) {
        if let Some(user) = user {
            self.users.with_label_values(&[bounded(user)]).inc();
        }
        self.authentications.with_label_values(&[result]).inc();
        self.authentication_time.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Counts an authorization.
    pub fn authorized(&self, result: &str, took: Duration) {
        self.authorizations.with_label_values(&[result]).inc();
        self.authorization_time.with_label_values(&[result]).observe(took.as_secs_f64());
    }
}

/// A label must not grow with the number of users, nor name them.
fn bounded(user: &str) -> &str {
    match user {
        "system:admin" | "system:anonymous" | "system:apiserver" | "kube-apiserver" | "admin" => user,
        _ => "other",
    }
}
