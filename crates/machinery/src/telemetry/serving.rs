//! Metrics of the secure port's authentication and authorization, under the original's names.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGaugeVec};

use super::metrics::{MetricsError, Registrar, exponential_buckets};
use super::registry::Registry;

/// Upper bounds of what is left of a certificate's time, in seconds: from half an hour to a year.
const VALID_FOR: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Who came to the secure port, and what became of it.
#[derive(Clone, Debug)]
pub struct ServeMetrics {
    users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_time: HistogramVec,
    authorizations: IntCounterVec,
    authorization_time: HistogramVec,
    certificates: Histogram,
    serving_certificates: IntGaugeVec,
    client_cas: IntGaugeVec,
    /// TokenReviews.
    pub delegated_authentication: ReviewMetrics,
    /// SubjectAccessReviews.
    pub delegated_authorization: ReviewMetrics,
    /// Tokens that are remembered.
    pub tokens: TokenCacheMetrics,
}

/// What the API server is asked about callers.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    requests: IntCounterVec,
    time: HistogramVec,
}

impl ReviewMetrics {
    fn register(registrar: Registrar<'_>, name: &str, what: &str) -> Result<Self, MetricsError> {
        Ok(Self {
            requests: registrar.counters(
                &format!("apiserver_delegated_{name}_request_total"),
                &format!("{what}, by HTTP status of the response; \"<error>\" without a response."),
                &["code"],
            )?,
            time: registrar.histograms(
                &format!("apiserver_delegated_{name}_request_duration_seconds"),
                &format!("Duration of {what} in seconds, by HTTP status of the response."),
                &["code"],
                vec![0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0],
            )?,
        })
    }

    /// Counts a request that was answered with this HTTP status, or not at all.
    pub fn observe(&self, status: Option<u16>, took: Duration) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        self.requests.with_label_values(&[&code]).inc();
        self.time.with_label_values(&[&code]).observe(took.as_secs_f64());
    }
}

/// How often it was known whose a token is, and how often it had to be asked.
#[derive(Clone, Debug)]
pub struct TokenCacheMetrics {
    requests: IntCounterVec,
    time: HistogramVec,
    fetches: IntCounterVec,
    active: IntGaugeVec,
}

impl TokenCacheMetrics {
    fn register(registrar: Registrar<'_>) -> Result<Self, MetricsError> {
        let metrics = Self {
            requests: registrar.counters(
                "authentication_token_cache_request_total",
                "Token cache lookups, by result: hit or miss.",
                &["status"],
            )?,
            time: registrar.histograms(
                "authentication_token_cache_request_duration_seconds",
                "Duration of token authentication in seconds, by result of the cache lookup: hit or miss.",
                &["status"],
                vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            )?,
            fetches: registrar.counters(
                "authentication_token_cache_fetch_total",
                "TokenReviews sent for the token cache, by result: ok or error.",
                &["status"],
            )?,
            active: registrar.int_gauges(
                "authentication_token_cache_active_fetch_count",
                "Number of TokenReviews in flight (in_flight) and of requests waiting for one (blocked).",
                &["status"],
            )?,
        };
        metrics.wait(0);
        metrics.in_flight(0);
        Ok(metrics)
    }

    /// Counts a request with a token that was remembered or not.
    pub fn looked_up(&self, is_remembered: bool, took: Duration) {
        let status = [if is_remembered { "hit" } else { "miss" }];
        self.requests.with_label_values(&status).inc();
        self.time.with_label_values(&status).observe(took.as_secs_f64());
    }

    /// So many more requests, or fewer, wait for what is said of their tokens.
    pub fn wait(&self, more: i64) {
        self.active.with_label_values(&["blocked"]).add(more);
    }

    /// So many more tokens, or fewer, are being asked about.
    pub fn in_flight(&self, more: i64) {
        self.active.with_label_values(&["in_flight"]).add(more);
    }

    /// Counts a token that was asked about.
    pub fn fetched(&self, is_known: bool) {
        self.fetches.with_label_values(&[if is_known { "ok" } else { "error" }]).inc();
    }
}

impl ServeMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        let buckets = || exponential_buckets(0.001, 2.0, 15);
        Ok(Self {
            users: registrar.counters(
                "authenticated_user_requests",
                "Authenticated requests, by user name; names other than a few well-known ones are counted as \
                 \"other\".",
                &["username"],
            )?,
            authentications: registrar.counters(
                "authentication_attempts",
                "Authentication attempts, by result: success, failure or error.",
                &["result"],
            )?,
            authentication_time: registrar.histograms(
                "authentication_duration_seconds",
                "Duration of authentication in seconds, by result.",
                &["result"],
                buckets(),
            )?,
            authorizations: registrar.counters(
                "authorization_attempts_total",
                "Authorization attempts, by result: allowed, no-opinion, denied or error.",
                &["result"],
            )?,
            authorization_time: registrar.histograms(
                "authorization_duration_seconds",
                "Duration of authorization in seconds, by result.",
                &["result"],
                buckets(),
            )?,
            certificates: registrar.histogram(
                "apiserver_client_certificate_expiration_seconds",
                "Remaining lifetime of client certificates at the time of the request in seconds.",
                VALID_FOR.to_vec(),
            )?,
            serving_certificates: registrar.int_gauges(
                "coxswain_serving_certificate_not_after_seconds",
                "Earliest expiry of a serving certificate in seconds since 1970, by port.",
                &["port"],
            )?,
            client_cas: registrar.int_gauges(
                "coxswain_client_ca_not_after_seconds",
                "Earliest expiry of a client CA in seconds since 1970, by source.",
                &["source"],
            )?,
            delegated_authentication: ReviewMetrics::register(registrar, "authn", "TokenReviews")?,
            delegated_authorization: ReviewMetrics::register(registrar, "authz", "SubjectAccessReviews")?,
            tokens: TokenCacheMetrics::register(registrar)?,
        })
    }

    /// Sets when the first certificate of a port expires.
    pub fn serving_certificate(&self, port: u16, not_after: i64) {
        self.serving_certificates.with_label_values(&[&port.to_string()]).set(not_after);
    }

    /// Sets when the next CA of a bundle expires.
    pub fn client_ca(&self, source: &str, not_after: i64) {
        self.client_cas.with_label_values(&[source]).set(not_after);
    }

    /// Counts a client whose certificate is valid for so much longer.
    pub fn certificate_trusted(&self, valid_for: Duration) {
        self.certificates.observe(valid_for.as_secs_f64());
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

/// A label must not grow with the number of users, nor name them. These the original was seen to name.
fn bounded(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        _ => "other",
    }
}
