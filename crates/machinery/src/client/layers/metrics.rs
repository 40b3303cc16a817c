//! `rest_client_*` metrics, under the names, labels and buckets of client-go.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body::Body;
use prometheus::{HistogramVec, IntCounterVec, IntGauge};

use tokio::time::Instant;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, hook, is_watch};
use crate::client::api::BoxError;
use crate::telemetry::tracing::{Ids, present};
use crate::telemetry::{MetricsError, Registrar, Registry, TracedHistogramVec};

const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const BYTES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// The request metrics that all clients of the process share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientMetrics(Arc<Series>);

#[derive(Debug)]
struct Series {
    requests: IntCounterVec,
    duration: TracedHistogramVec,
    rate_limiter: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    transports: IntGauge,
    transport_calls: IntCounterVec,
}

impl ClientMetrics {
    /// Makes the metrics and registers them; once per registry.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        let histograms = |name: &str, help: &str, buckets: &[f64]| {
            registrar.histograms(name, help, &["host", "verb"], buckets.to_vec())
        };
        Ok(Self(Arc::new(Series {
            requests: registrar.counters(
                "rest_client_requests_total",
                "Requests to the API server by status code, method and host.",
                &["code", "host", "method"],
            )?,
            duration: registrar.traced_histograms(
                "rest_client_request_duration_seconds",
                "Time from sending a request to the end of its response, by verb and host. Watches are left out.",
                &["host", "verb"],
                SECONDS.to_vec(),
            )?,
            rate_limiter: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests waited for the client's own rate limit, by verb and host.",
                &SECONDS,
            )?,
            request_size: histograms(
                "rest_client_request_size_bytes",
                "Size of request bodies, by verb and host.",
                &BYTES,
            )?,
            response_size: histograms(
                "rest_client_response_size_bytes",
                "Size of response bodies, by verb and host. Watches are left out.",
                &BYTES,
            )?,
            transports: registrar.int_gauge(
                "rest_client_transport_cache_entries",
                "Transports that clients share: one for each set of credentials and way of keeping connections alive.",
            )?,
            transport_calls: registrar.counters(
                "rest_client_transport_create_calls_total",
                "Transports that clients asked for: hit if there was one to share, miss if it had to be made.",
                &["result"],
            )?,
        })))
    }

    /// A client got a transport that others have as well.
    pub(in crate::client) fn transport_shared(&self) {
        self.0.transport_calls.with_label_values(&["hit"]).inc();
    }

    /// A transport was made; it is there for as long as what is returned.
    pub(in crate::client) fn transport_made(&self) -> CountedTransport {
        self.0.transport_calls.with_label_values(&["miss"]).inc();
        self.0.transports.inc();
        CountedTransport(self.0.transports.clone())
    }

    pub(super) fn observe_rate_limiter(&self, host: &str, method: &Method, waited: Duration) {
        self.0.rate_limiter.with_label_values(&[host, method.as_str()]).observe(waited.as_secs_f64());
    }
}

/// A transport as long as it is there.
#[derive(Debug)]
pub(in crate::client) struct CountedTransport(IntGauge);

impl Drop for CountedTransport {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts and measures each request.
#[derive(Clone)]
pub(in crate::client) struct RequestMetrics {
    pub(in crate::client) metrics: ClientMetrics,
    pub(in crate::client) host: Arc<str>,
}

impl Middleware for RequestMetrics {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let method = request.method().clone();
        let labels = [&*self.host, method.as_str()];
        let size = request.body().size_hint().exact().unwrap_or(0);
        self.metrics.0.request_size.with_label_values(&labels).observe(size as f64);
        let mut open = (!is_watch(&request)).then(|| Open {
            metrics: self.metrics.clone(),
            host: Arc::clone(&self.host),
            method: method.clone(),
            began: Instant::now(),
            span: if self.metrics.0.duration.is_traced() { present() } else { None },
            bytes: None,
        });
        let result = next.oneshot(request).await;
        let status = result.as_ref().ok().map(http::Response::status);
        let code = status.as_ref().map_or("<error>", http::StatusCode::as_str);
        self.metrics.0.requests.with_label_values(&[code, &*self.host, method.as_str()]).inc();
        let response = result?;
        Ok(match open.take() {
            None => response,
            Some(mut open) => {
                open.bytes = Some(0);
                hook(response, open)
            }
        })
    }
}

/// A request under way, observed when it is dropped: at the end of the body, on an error, or when it is cancelled.
struct Open {
    metrics: ClientMetrics,
    host: Arc<str>,
    method: Method,
    began: Instant,
    /// The span that it was sent in.
    span: Option<Ids>,
    /// Bytes of the response so far; `None` before there is one.
    bytes: Option<u64>,
}

impl Hook for Open {
    fn data(&mut self, len: usize) {
        self.bytes = Some(self.bytes.unwrap_or(0) + len as u64);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let labels = [&*self.host, self.method.as_str()];
        let elapsed = self.began.elapsed().as_secs_f64();
        self.metrics.0.duration.observe_in(&labels, elapsed, || self.span);
        if let Some(bytes) = self.bytes {
            self.metrics.0.response_size.with_label_values(&labels).observe(bytes as f64);
        }
    }
}
