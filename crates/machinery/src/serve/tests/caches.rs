//! The caches of reviews: bounds, lifetimes, one request for many callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use proptest::prelude::*;
use tokio::sync::Notify;
use tokio::time::advance;

use crate::serve::cache::{Digest, Flights, Hasher, TtlCache};

fn key(n: u8) -> Digest {
    [n; 32]
}

const TTL: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn values_live_for_their_ttl() {
    let cache = TtlCache::new(8);
    cache.insert(key(1), "a", TTL);
    cache.insert(key(2), "b", 2 * TTL);
    cache.insert(key(3), "c", Duration::ZERO);
    assert_eq!(cache.get(&key(3)), None);
    advance(Duration::from_millis(9_999)).await;
    assert_eq!(cache.get(&key(1)), Some("a"));
    advance(Duration::from_millis(1)).await;
    assert_eq!(cache.get(&key(1)), None);
    assert_eq!(cache.get(&key(2)), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_goes_when_it_is_full_and_a_value_put_anew_is_not_old() {
    let cache = TtlCache::new(2);
    cache.insert(key(1), "a", TTL);
    cache.insert(key(2), "b", TTL);
    cache.insert(key(1), "a2", TTL);
    cache.insert(key(3), "c", TTL);
    assert_eq!(cache.get(&key(1)), Some("a2"));
    assert_eq!(cache.get(&key(2)), None);
    assert_eq!(cache.get(&key(3)), Some("c"));
}

proptest! {
    #[test]
    fn it_never_holds_more_than_it_may(keys in prop::collection::vec(any::<u8>(), 0..200), capacity in 1_usize..10) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let cache = TtlCache::new(capacity);
            for n in keys {
                cache.insert(key(n), n, TTL);
                prop_assert!(cache.len() <= capacity);
                prop_assert_eq!(cache.get(&key(n)), Some(n));
            }
            Ok(())
        })?;
    }

    #[test]
    fn lists_that_differ_have_other_digests(a in prop::collection::vec(".*", 0..4), b in prop::collection::vec(".*", 0..4)) {
        let hasher = Hasher::new().unwrap();
        let digest = |list: &[String]| hasher.digest(list.iter().map(String::as_bytes));
        prop_assert_eq!(a == b, digest(&a) == digest(&b));
    }
}

#[test]
fn digests_are_keyed() {
    let (one, other) = (Hasher::new().unwrap(), Hasher::new().unwrap());
    assert_ne!(one.digest([b"token".as_slice()]), other.digest([b"token".as_slice()]));
}

#[tokio::test]
async fn calls_that_all_gave_up_leave_nothing_behind_and_are_made_anew() {
    let flights: Flights<u32> = Flights::default();
    let started = Arc::new(AtomicUsize::new(0));
    let never = Arc::new(Notify::new());
    for n in 0..200_u8 {
        let (started, never) = (Arc::clone(&started), Arc::clone(&never));
        let call = flights.join(key(n), move || {
            started.fetch_add(1, Ordering::SeqCst);
            async move {
                never.notified().await;
                1
            }
            .boxed()
        });
        assert!(call.now_or_never().is_none());
    }
    assert_eq!(started.load(Ordering::SeqCst), 200);
    assert!(flights.len() <= 64, "{flights:?}");
    assert_eq!(flights.join(key(7), || async { 2 }.boxed()).await, 2);
}
