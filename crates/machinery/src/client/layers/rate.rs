//! The token buckets of a client: `--kube-api-qps` and `--kube-api-burst`, waited on inside of the call.
//!
//! As in kube-controller-manager, scales, each version of a metrics API, and everything else have a bucket each: an evaluation of
//! an autoscaler takes one token of three buckets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, HostMetrics, Middleware, Next};
use crate::client::api::BoxError;
use crate::client::request::{Layout, Purpose, RequestIntent};
use crate::model::bucket::{BucketLevel, TokenBucket};
use crate::random::HashMap;
use crate::wire::Str;

/// client-go's defaults, which it takes when queries per second or the burst are given as 0.
const DEFAULT_QPS: f64 = 5.0;
const DEFAULT_BURST: u32 = 10;

/// How long tokens are saved up at most when many requests wait, for these to go together: a request that is alone with its
/// timer, its packets and its events costs more than one in a crowd. `docs/performance.md` has the figures.
const GATHER_SECONDS: f64 = 0.05;

/// A token bucket with client-go's semantics: full at first, one token per request, first come first served. When several
/// wait they go in groups, none later than the last of them would have gone by itself.
///
/// Who waits holds nothing: the one at the head of the queue sleeps until there are tokens, the others wait for the
/// head. So a request that is dropped while it waits gives its place to the next at once.
pub struct RateLimiter {
    per_second: f64,
    burst: u32,
    bucket: TokenBucket,
    began: Instant,
    /// Requests that wait, the head of the queue included.
    waiting: AtomicUsize,
    /// tokio's mutex hands itself over in the order of asking: it is the queue.
    level: Mutex<BucketLevel>,
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("per_second", &self.per_second)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

impl RateLimiter {
    /// A bucket for `qps` queries per second and bursts of `burst`; `None`, no limit, when `qps` is negative. For 0
    /// either is client-go's default (5 and 10).
    pub fn new(qps: f32, burst: u32) -> Option<Self> {
        if qps < 0.0 || !qps.is_finite() {
            return None;
        }
        let per_second = if qps == 0.0 { DEFAULT_QPS } else { f64::from(qps) };
        let burst = if burst == 0 { DEFAULT_BURST } else { burst };
        Some(Self {
            per_second,
            burst,
            bucket: TokenBucket::per_second(per_second, burst),
            began: Instant::now(),
            waiting: AtomicUsize::new(0),
            level: Mutex::new(BucketLevel::default()),
        })
    }

    /// Takes a token, waiting for one in turn; says how long that took.
    pub async fn acquire(&self) -> Duration {
        let began = Instant::now();
        let _waits = Waits::begin(&self.waiting);
        let mut level = self.level.lock().await;
        loop {
            let now = self.began.elapsed();
            if self.bucket.take(&mut level, now) {
                return began.elapsed();
            }
            // A day is as good as for ever, and keeps an absurd rate from overflowing.
            let wait = self.bucket.wait_for(*level, now, self.group()).min(Duration::from_hours(24));
            tokio::time::sleep(wait).await;
        }
    }

    /// How many of those that wait go together.
    fn group(&self) -> u32 {
        let most = ((self.per_second * GATHER_SECONDS) as u32).min(self.burst);
        most.min(u32::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(u32::MAX)).max(1)
    }
}

/// Counted among those that wait, for as long as it is there.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limiter that a request is subject to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RateClass {
    /// The scale of an object of any kind.
    Scale,
    /// This group and version of a metrics API.
    Metrics(Str),
    /// Everything else.
    Other,
}

/// The API groups that have limiters of their own.
const METRICS_APIS: [&str; 3] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];

impl RateClass {
    pub(in crate::client) fn of_path(layout: Layout, path: &str) -> Self {
        if layout.subresource.is_some_and(|subresource| subresource.of(path) == "scale") {
            return Self::Scale;
        }
        match layout.group {
            Some(group) if METRICS_APIS.contains(&group.of(path)) => {
                Self::Metrics(layout.group_version(path).into())
            }
            _ => Self::Other,
        }
    }

    fn of(request: &ApiRequest) -> Self {
        let purpose = request.extensions().get::<Purpose>();
        purpose.map_or(Self::Other, |purpose| Self::of_path(purpose.layout, request.uri().path()))
    }
}

/// The limiters of one client, each with the same rate and burst.
#[derive(Clone, Debug)]
pub(in crate::client) struct RateLimits(Arc<Limiters>);

#[derive(Debug)]
struct Limiters {
    qps: f32,
    burst: u32,
    other: Arc<RateLimiter>,
    /// Those of scales and metrics APIs, each from when it is first needed.
    own: parking_lot::Mutex<HashMap<RateClass, Arc<RateLimiter>>>,
}

impl RateLimits {
    /// Limiters as [`RateLimiter::new`] makes them; `None`, no limit, when `qps` is negative.
    pub(in crate::client) fn new(qps: f32, burst: u32) -> Option<Self> {
        let other = Arc::new(RateLimiter::new(qps, burst)?);
        Some(Self(Arc::new(Limiters { qps, burst, other, own: parking_lot::Mutex::default() })))
    }

    /// Returns the rate per second and the burst of each limiter.
    pub(in crate::client) fn rate(&self) -> (f64, u32) {
        (self.0.other.per_second, self.0.other.burst)
    }

    fn of(&self, class: &RateClass) -> Arc<RateLimiter> {
        let Limiters { qps, burst, other, own } = &*self.0;
        if *class == RateClass::Other {
            return Arc::clone(other);
        }
        let mut own = own.lock();
        if let Some(limiter) = own.get(class) {
            return Arc::clone(limiter);
        }
        let limiter = RateLimiter::new(*qps, *burst).map_or_else(|| Arc::clone(other), Arc::new);
        own.insert(class.clone(), Arc::clone(&limiter));
        limiter
    }
}

/// The token of one request, which was acquired before the request was made, and the time that this took. Travels in the request's
/// extensions.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct RateToken(Duration);

/// Takes a token per request. Watches are free, as in the original: reflectors back off by themselves, and a manager that
/// starts would otherwise spend its bucket on opening them.
#[derive(Clone)]
pub(in crate::client) struct RateLimit {
    pub(in crate::client) limits: Option<RateLimits>,
    pub(in crate::client) metrics: HostMetrics,
}

impl RateLimit {
    /// Waits for a token for a request of this class; `None` if there is no limit.
    pub(in crate::client) async fn acquire(&self, class: &RateClass) -> Option<RateToken> {
        let limiter = self.limits.as_ref()?.of(class);
        Some(RateToken(limiter.acquire().await))
    }
}

impl Middleware for RateLimit {
    async fn handle<S: Next>(&self, mut request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        if RequestIntent::of(&request).is_watch() {
            return next.oneshot(request).await;
        }
        let token = match request.extensions_mut().remove::<RateToken>() {
            Some(token) => Some(token),
            None => self.acquire(&RateClass::of(&request)).await,
        };
        if let Some(RateToken(waited)) = token {
            tracing::Span::current().record("coxswain.rate_limit.wait_us", waited.as_micros() as i64);
            self.metrics.observe_rate_limiter(request.method(), waited);
        }
        next.oneshot(request).await
    }
}
