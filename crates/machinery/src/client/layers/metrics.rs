//! `rest_client_*` metrics, under the names, labels and buckets of client-go.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use http_body::Body;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

use tokio::time::Instant;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, Hook, Middleware, Next, hook};
use crate::client::api::BoxError;
use crate::client::request::RequestIntent;
use crate::telemetry::tracing::{Ids, present};
use crate::telemetry::{MetricsError, Registrar, Registry, TracedHistogram, TracedHistogramVec};

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
    server_clock: ServerClock,
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
                "Requests to the API server, by status code, method and host.",
                &["code", "host", "method"],
            )?,
            duration: registrar.traced_histograms(
                "rest_client_request_duration_seconds",
                "Time from sending a request to the end of its response, by verb and host, excluding watches.",
                &["host", "verb"],
                SECONDS.to_vec(),
            )?,
            rate_limiter: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests waited for the client-side rate limit, by verb and host.",
                &SECONDS,
            )?,
            request_size: histograms(
                "rest_client_request_size_bytes",
                "Size of request bodies, by verb and host.",
                &BYTES,
            )?,
            response_size: histograms(
                "rest_client_response_size_bytes",
                "Size of response bodies, by verb and host, excluding watches.",
                &BYTES,
            )?,
            transports: registrar.int_gauge(
                "rest_client_transport_cache_entries",
                "Number of cached transports, one for each set of credentials and connection settings.",
            )?,
            transport_calls: registrar.counters(
                "rest_client_transport_create_calls_total",
                "Requests for a transport, by result: hit if a cached one was used, miss if one was created.",
                &["result"],
            )?,
            server_clock: ServerClock::default(),
        })))
    }

    /// Returns the present time of the API server, to a second; `None` before its first answer.
    pub fn server_time(&self) -> Option<Timestamp> {
        self.0.server_clock.now()
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

    /// The metrics of requests to one host.
    pub(in crate::client) fn of_host(&self, host: Arc<str>) -> HostMetrics {
        HostMetrics { metrics: self.clone(), host, methods: Arc::default() }
    }
}

/// The clock of the API server, by the `Date` of its answers.
#[derive(Debug, Default)]
struct ServerClock(Mutex<Option<(Timestamp, Instant)>>);

/// Groups that kube-apiserver serves itself, in requests of each replica. Answers of other API servers have the time of their machines.
const OWN_GROUPS: [&str; 1] = ["coordination.k8s.io"];

/// Returns whether kube-apiserver itself answers a request: for objects of the core group, or of [`OWN_GROUPS`].
fn is_own(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    match parts.next() {
        Some("api") => true,
        Some("apis") => parts.next().is_some_and(|group| OWN_GROUPS.contains(&group)),
        _ => false,
    }
}

/// How long a time that was read is used, before another answer is read.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// `Date` has whole seconds, so the time is half a second later on average.
const HALF_A_SECOND: SignedDuration = SignedDuration::from_millis(500);

impl ServerClock {
    fn read(&self, headers: &HeaderMap) {
        let now = Instant::now();
        let mut held = self.0.lock();
        if held.is_some_and(|(_, read)| now.duration_since(read) < CLOCK_PERIOD) {
            return;
        }
        let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        if let Some(date) = date.and_then(|date| date.checked_add(HALF_A_SECOND).ok()) {
            *held = Some((date, now));
        }
    }

    fn now(&self) -> Option<Timestamp> {
        let (date, read) = (*self.0.lock())?;
        date.checked_add(SignedDuration::try_from(read.elapsed()).ok()?).ok()
    }
}

/// The request metrics of one host, of which each series is looked up once. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::client) struct HostMetrics {
    metrics: ClientMetrics,
    host: Arc<str>,
    methods: Arc<[MethodMetrics; METHODS.len()]>,
}

/// The methods that clients use.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The series of one method, each from when it is first needed.
#[derive(Debug, Default)]
struct MethodMetrics {
    /// Requests that were answered with 200.
    ok: OnceLock<IntCounter>,
    duration: OnceLock<TracedHistogram>,
    rate_limiter: OnceLock<Histogram>,
    request_size: OnceLock<Histogram>,
    response_size: OnceLock<Histogram>,
}

impl HostMetrics {
    /// The series of a kind for a method, looked up unless it is among those that are `held`.
    fn series<T: Clone>(
        &self,
        method: &Method,
        held: impl Fn(&MethodMetrics) -> &OnceLock<T>,
        look_up: impl Fn(&Series, &[&str; 2]) -> T,
    ) -> T {
        let look_up = || look_up(&self.metrics.0, &[&self.host, method.as_str()]);
        let known = METHODS.iter().position(|known| known == method).and_then(|at| self.methods.get(at));
        known.map_or_else(look_up, |known| held(known).get_or_init(look_up).clone())
    }

    pub(super) fn observe_rate_limiter(&self, method: &Method, waited: Duration) {
        let look_up = |series: &Series, labels: &[&str; 2]| series.rate_limiter.with_label_values(labels);
        self.series(method, |held| &held.rate_limiter, look_up).observe(waited.as_secs_f64());
    }

    fn observe_request_size(&self, method: &Method, bytes: u64) {
        let look_up = |series: &Series, labels: &[&str; 2]| series.request_size.with_label_values(labels);
        self.series(method, |held| &held.request_size, look_up).observe(bytes as f64);
    }

    fn observe_response_size(&self, method: &Method, bytes: u64) {
        let look_up = |series: &Series, labels: &[&str; 2]| series.response_size.with_label_values(labels);
        self.series(method, |held| &held.response_size, look_up).observe(bytes as f64);
    }

    fn observe_duration(&self, method: &Method, took: Duration, span: Option<Ids>) {
        let look_up = |series: &Series, labels: &[&str; 2]| series.duration.with_label_values(labels);
        self.series(method, |held| &held.duration, look_up).observe_in(took.as_secs_f64(), || span);
    }

    /// Counts an answer with this status, or none.
    fn count(&self, method: &Method, status: Option<StatusCode>) {
        if status == Some(StatusCode::OK) {
            let look_up = |series: &Series, &[host, method]: &[&str; 2]| {
                series.requests.with_label_values(&["200", host, method])
            };
            return self.series(method, |held| &held.ok, look_up).inc();
        }
        let code = status.as_ref().map_or("<error>", StatusCode::as_str);
        self.metrics.0.requests.with_label_values(&[code, &*self.host, method.as_str()]).inc();
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
pub(in crate::client) struct RequestMetrics(pub(in crate::client) HostMetrics);

impl Middleware for RequestMetrics {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        let method = request.method().clone();
        self.0.observe_request_size(&method, request.body().size_hint().exact().unwrap_or(0));
        let is_own = is_own(request.uri().path());
        let mut open = (!RequestIntent::of(&request).is_watch()).then(|| Open {
            metrics: self.0.clone(),
            method: method.clone(),
            began: Instant::now(),
            span: if self.0.metrics.0.duration.is_traced() { present() } else { None },
            bytes: None,
        });
        let result = next.oneshot(request).await;
        self.0.count(&method, result.as_ref().ok().map(http::Response::status));
        let response = result?;
        if is_own {
            self.0.metrics.0.server_clock.read(response.headers());
        }
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
    metrics: HostMetrics,
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
        self.metrics.observe_duration(&self.method, self.began.elapsed(), self.span);
        if let Some(bytes) = self.bytes {
            self.metrics.observe_response_size(&self.method, bytes);
        }
    }
}
