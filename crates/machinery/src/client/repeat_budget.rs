//! [`RepeatBudget`]: the repetitions that a client may send of requests that the API server refuses with a time to come back.
//!
//! Repetitions share the client's rate limit with all other requests, so they have a part of it: all together a half, and those of
//! one namespace a quarter. A webhook that refuses each object of a tenant takes no repetitions from another tenant.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::bucket::{BucketLevel, TokenBucket};
use crate::random::HashMap;
use crate::wire::Str;

/// The smallest burst of one namespace. A slow start of 500 writes, the most that one sync creates, sends groups of 1 to 128 and then
/// one of 245: a refusal of all of them must not fail the rest.
const SMALLEST_BURST: u32 = 256;
/// Bursts of the client's rate limit that one namespace may repeat at once.
const BURSTS: u32 = 4;
/// Part of the client's rate at which one namespace earns repetitions.
const NAMESPACE_PART: f64 = 0.25;
/// Namespaces of which all may have used up their share at the same time.
const NAMESPACES: u32 = 2;
/// Callers of one shared read whose waits end within this time join the same repetition.
const JOIN_WITHIN: Duration = Duration::from_millis(100);

/// The rate limit of a client, for one class of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientRate {
    pub(super) per_second: f64,
    pub(super) burst: u32,
}

/// A request that was refused and would be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repetition<'a> {
    /// Verb and path.
    pub(super) label: &'a str,
    /// Identifies a read that several callers share; `None` if the caller sends the request itself.
    pub(super) shared: Option<u64>,
    pub(super) now: Instant,
    pub(super) wait: Duration,
}

/// See the module. Without a rate limit there is no limit of repetitions either.
#[derive(Debug)]
pub(super) struct RepeatBudget {
    buckets: Option<Buckets>,
    began: Instant,
    used: Mutex<Used>,
}

#[derive(Clone, Copy, Debug)]
struct Buckets {
    all: TokenBucket,
    namespace: TokenBucket,
}

#[derive(Debug, Default)]
struct Used {
    all: BucketLevel,
    /// Levels that are not full. An entry costs a token of `all`, so their number is limited.
    namespaces: HashMap<Str, BucketLevel>,
    /// When the repetition of a shared read begins that a caller has paid for.
    shared: HashMap<u64, Instant>,
}

impl RepeatBudget {
    pub(super) fn new(rate: Option<ClientRate>) -> Self {
        let buckets = rate.map(|ClientRate { per_second, burst }| {
            let burst = burst.saturating_mul(BURSTS).max(SMALLEST_BURST);
            let per_second = per_second * NAMESPACE_PART;
            Buckets {
                all: TokenBucket::per_second(
                    per_second * f64::from(NAMESPACES),
                    burst.saturating_mul(NAMESPACES),
                ),
                namespace: TokenBucket::per_second(per_second, burst),
            }
        });
        Self { buckets, began: Instant::now(), used: Mutex::default() }
    }

    /// Takes a repetition if there is one and `may_wait` grants the wait before it. A wait that is not granted costs nothing, and
    /// `may_wait` is not asked if there is no repetition.
    pub(super) fn take(&self, repetition: Repetition<'_>, may_wait: impl FnOnce() -> bool) -> bool {
        let Some(buckets) = &self.buckets else { return may_wait() };
        let Repetition { label, shared, now, wait } = repetition;
        let mut used = self.used.lock();
        let begins = now + wait;
        let paid = shared.and_then(|read| used.shared.get(&read));
        if paid.is_some_and(|paid| begins <= *paid + JOIN_WITHIN && now < *paid) {
            return may_wait();
        }
        let elapsed = now.saturating_duration_since(self.began);
        let namespace = namespace_of(label);
        let mut all = used.all;
        let mut own = used.namespaces.get(namespace).copied().unwrap_or_default();
        let is_there = buckets.all.take(&mut all, elapsed) && buckets.namespace.take(&mut own, elapsed);
        if !is_there || !may_wait() {
            return false;
        }
        used.namespaces.retain(|_, level| !level.is_full(elapsed));
        used.shared.retain(|_, begins| *begins > now);
        used.all = all;
        used.namespaces.insert(namespace.into(), own);
        if let Some(read) = shared {
            used.shared.insert(read, begins);
        }
        true
    }
}

/// Returns the namespace in the path of a request; empty if its object has none.
fn namespace_of(label: &str) -> &str {
    let after = label.split_once("/namespaces/").map_or("", |(_, after)| after);
    after.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn namespace_of_a_label_is_the_segment_after_namespaces() {
        for (label, namespace) in [
            ("POST /api/v1/namespaces/a/pods", "a"),
            ("PATCH /apis/apps/v1/namespaces/b/deployments/namespaces/status", "b"),
            ("GET /api/v1/namespaces/c", "c"),
            ("GET /api/v1/namespaces", ""),
            ("GET /api/v1/nodes/n", ""),
            ("", ""),
        ] {
            assert_eq!(namespace_of(label), namespace, "{label}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_that_is_not_granted_costs_no_repetition() {
        let label = "POST /api/v1/namespaces/n/pods";
        let take = |budget: &RepeatBudget, is_granted: bool| {
            let (now, wait) = (Instant::now(), Duration::from_secs(1));
            budget.take(Repetition { label, shared: None, now, wait }, || is_granted)
        };
        let granted = |refusals: usize| {
            let budget = RepeatBudget::new(Some(ClientRate { per_second: 20.0, burst: 30 }));
            assert!((0..refusals).all(|_| !take(&budget, false)));
            (0..1_000).filter(|_| take(&budget, true)).count()
        };
        assert_eq!(granted(1_000), granted(0));
        assert!((1..1_000).contains(&granted(0)), "a namespace has a limit");
    }

    #[tokio::test(start_paused = true)]
    async fn levels_that_are_full_again_and_waits_that_are_over_are_dropped() {
        let budget = RepeatBudget::new(Some(ClientRate { per_second: 20.0, burst: 30 }));
        let take = |namespace: usize| {
            let label = format!("POST /api/v1/namespaces/n{namespace}/pods");
            let (shared, wait) = (Some(namespace as u64), Duration::from_secs(1));
            budget.take(Repetition { label: &label, shared, now: Instant::now(), wait }, || true)
        };
        let granted = (0..2_000).filter(|namespace| take(*namespace)).count();
        assert_eq!(granted, 512);
        tokio::time::advance(Duration::from_mins(2)).await;
        assert!(take(0));
        let used = budget.used.lock();
        assert_eq!((used.namespaces.len(), used.shared.len()), (1, 1));
    }
}
