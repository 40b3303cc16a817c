//! The token bucket of a client: `--kube-api-qps` and `--kube-api-burst`, waited on inside of the call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::ServiceExt;

use super::{ApiRequest, ApiResponse, HostMetrics, Middleware, Next};
use crate::client::api::BoxError;
use crate::client::request::RequestIntent;
use crate::model::bucket::{BucketLevel, TokenBucket};

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

/// Takes a token per request. Watches are free, as in the original: reflectors back off by themselves, and a manager that
/// starts would otherwise spend its bucket on opening them.
#[derive(Clone)]
pub(in crate::client) struct RateLimit {
    pub(in crate::client) limiter: Option<Arc<RateLimiter>>,
    pub(in crate::client) metrics: HostMetrics,
}

impl Middleware for RateLimit {
    async fn handle<S: Next>(&self, request: ApiRequest, next: S) -> Result<ApiResponse, BoxError> {
        if let Some(limiter) = self.limiter.as_ref().filter(|_| !RequestIntent::of(&request).is_watch()) {
            let waited = limiter.acquire().await;
            tracing::Span::current().record("coxswain.rate_limit.wait_us", waited.as_micros() as i64);
            self.metrics.observe_rate_limiter(request.method(), waited);
        }
        next.oneshot(request).await
    }
}
