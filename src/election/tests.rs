//! Elections between candidates on one Lease in memory, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{advance, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::coordination::Lease;
use crate::api::meta::{ObjectMeta, Status};
use crate::client::ApiError;
use crate::model::clock::{Clock, SharedClock};
use crate::wire::splice::{edit, get, put_bytes};
use crate::wire::{Message, Str, Value};

const TIMING: Timing = Timing {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// The wall clock of paused time.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
            + jiff::SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

#[derive(Default)]
struct Server {
    lease: Mutex<Option<(u64, Vec<u8>)>>,
    requests: Mutex<Vec<&'static str>>,
    down: AtomicBool,
    changed: Notify,
}

#[derive(Clone)]
struct Fake(Arc<Server>);

impl Fake {
    fn refused(reason: &str, code: u16) -> ApiError {
        ApiError::Refused {
            request: "lease".into(),
            code,
            reason: reason.into(),
            message: reason.into(),
            status: Box::new(Status::default()),
            retry_after: None,
        }
    }

    fn enter(&self, verb: &'static str) -> Result<(), ApiError> {
        self.0.requests.lock().push(verb);
        if self.0.down.load(Ordering::SeqCst) { Err(Self::refused("down", 503)) } else { Ok(()) }
    }

    fn observed(version: u64, raw: &[u8]) -> Observed {
        let mut raw = raw.to_vec();
        raw =
            edit(&raw, &[crate::wire::splice::Edit::SetBytes(vec![1, 6], version.to_string().into_bytes())])
                .unwrap();
        let raw = Bytes::from(raw);
        Observed { record: Record::from(&Lease::decode(&raw).unwrap()), raw }
    }

    fn store(&self, raw: Vec<u8>) -> Observed {
        let mut held = self.0.lease.lock();
        let version = held.as_ref().map_or(1, |(version, _)| version + 1);
        let observed = Self::observed(version, &raw);
        *held = Some((version, raw));
        self.0.changed.notify_waiters();
        observed
    }
}

impl LeaseApi for Fake {
    fn get(&self) -> BoxFuture<'_, Result<Option<Observed>, ApiError>> {
        Box::pin(async {
            self.enter("get")?;
            Ok(self.0.lease.lock().as_ref().map(|(version, raw)| Self::observed(*version, raw)))
        })
    }

    fn create<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<Observed, ApiError>> {
        Box::pin(async {
            self.enter("create")?;
            if self.0.lease.lock().is_some() {
                return Err(Self::refused("AlreadyExists", 409));
            }
            let mut empty = Lease { metadata: ObjectMeta::default(), ..Lease::default() }.to_bytes();
            put_bytes(&mut empty, 77, b"unknown");
            Ok(self.store(edit(&empty, &record.edits()).unwrap()))
        })
    }

    fn update<'a>(
        &'a self,
        observed: &'a Observed,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Observed, ApiError>> {
        Box::pin(async {
            self.enter("update")?;
            let version: u64 = Lease::decode(&observed.raw).unwrap().metadata.version().unwrap();
            if self.0.lease.lock().as_ref().map(|held| held.0) != Some(version) {
                return Err(Self::refused("Conflict", 409));
            }
            Ok(self.store(edit(&observed.raw, &record.edits()).unwrap()))
        })
    }

    fn released(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let changed = self.0.changed.notified();
                let released = self
                    .0
                    .lease
                    .lock()
                    .as_ref()
                    .is_some_and(|(version, raw)| Self::observed(*version, raw).record.holder.is_empty());
                if released {
                    return;
                }
                changed.await;
            }
        })
    }
}

fn candidate(server: &Arc<Server>, identity: &str) -> Arc<Elector<Fake>> {
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    Arc::new(Elector::new(Fake(Arc::clone(server)), identity, TIMING, clock))
}

fn holder(server: &Server) -> Str {
    let held = server.lease.lock();
    let (version, raw) = held.as_ref().unwrap();
    Fake::observed(*version, raw).record.holder
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_renews_without_reading() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    assert!(timeout(Duration::from_secs(9), a.hold(&stop)).await.is_err());
    assert_eq!(*server.requests.lock(), ["get", "create", "update", "update", "update", "update", "update"]);
    assert_eq!(holder(&server), "a");
}

#[tokio::test(start_paused = true)]
async fn a_standby_waits_for_the_lease_to_expire_by_its_own_clock() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    let stop = CancellationToken::new();
    assert!(a.acquire(&stop).await);
    let began = tokio::time::Instant::now();
    assert!(b.acquire(&stop).await);
    let waited = began.elapsed();
    assert!(waited >= TIMING.lease, "took over after {waited:?}");
    assert!(waited < TIMING.lease + TIMING.retry.mul_f64(2.5), "took over after {waited:?}");
    let record = b.leadership().borrow().record.clone().unwrap();
    assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    let stop = CancellationToken::new();
    assert!(a.acquire(&stop).await);
    let standby = {
        let (b, stop) = (Arc::clone(&b), stop.clone());
        tokio::task::JoinSet::from_iter([async move { b.acquire(&stop).await }])
    };
    advance(Duration::from_millis(100)).await;
    let began = tokio::time::Instant::now();
    a.release().await;
    assert!(!a.leadership().borrow().leading);
    assert_eq!(standby.join_all().await, [true]);
    assert!(began.elapsed() < Duration::from_millis(10));
    assert_eq!(holder(&server), "b");
}

/// A renewal that was under way when the manager was told to stop.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_renewed_without_an_answer_is_released() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    let found = Fake(Arc::clone(&server)).get().await.unwrap().unwrap();
    let renewed = Record::next(Some(&found.record), "a", 15, found.record.renewed);
    Fake(Arc::clone(&server)).update(&found, &renewed).await.unwrap();
    a.release().await;
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn another_leaders_lease_is_not_released() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    let found = Fake(Arc::clone(&server)).get().await.unwrap().unwrap();
    let theirs = Record::next(Some(&found.record), "b", 15, found.record.renewed);
    Fake(Arc::clone(&server)).update(&found, &theirs).await.unwrap();
    a.release().await;
    assert_eq!(holder(&server), "b");
}

/// Two replicas are told to stop at once: the second may just be taking what the first released.
#[tokio::test(start_paused = true)]
async fn an_acquisition_under_way_at_the_stop_is_known() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    stop.cancel();
    let acquired = a.acquire(&stop).await;
    assert_eq!(acquired, server.lease.lock().is_some());
    a.release().await;
    assert!(server.lease.lock().is_none() || holder(&server).is_empty());
}

/// A leader whose elector is frozen, not failing.
#[tokio::test(start_paused = true)]
async fn a_frozen_leaders_lease_does_not_protect_it() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(!a.is_protected());
    assert!(a.acquire(&stop).await);
    assert!(a.is_protected());
    assert!(timeout(Duration::from_mins(1), a.hold(&stop)).await.is_err());
    assert!(a.is_protected(), "each renewal counts");
    advance(TIMING.renew_deadline + TIMING.retry).await;
    assert!(a.is_leading(), "nothing has run since");
    assert!(!a.is_protected());
    assert!(timeout(Duration::from_secs(1), a.hold(&stop)).await.is_err());
    assert!(a.is_protected(), "nobody took it");
    a.release().await;
    assert!(!a.is_protected());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_leading_before_the_lease_is_over() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    server.down.store(true, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    assert!(!a.hold(&stop).await);
    assert_eq!(began.elapsed(), TIMING.renew_deadline);
    assert!(!a.leadership().borrow().leading);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_leading() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    let found = Fake(Arc::clone(&server)).get().await.unwrap().unwrap();
    let theirs = Record::next(Some(&found.record), "thief", 15, found.record.renewed);
    Fake(Arc::clone(&server)).update(&found, &theirs).await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(!a.hold(&stop).await);
    assert!(began.elapsed() < TIMING.retry);
}

#[tokio::test(start_paused = true)]
async fn what_a_lease_holds_beyond_the_record_survives() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    let stop = CancellationToken::new();
    assert!(a.acquire(&stop).await);
    a.release().await;
    assert!(b.acquire(&stop).await);
    let held = server.lease.lock();
    assert_eq!(get(&held.as_ref().unwrap().1, &[77]).unwrap(), Some(Value::Bytes(b"unknown")));
}

/// Many candidates with the server failing at random: never two leaders by their own accounts.
#[tokio::test(start_paused = true)]
async fn there_are_never_two_leaders() {
    let server = Arc::new(Server::default());
    let stop = CancellationToken::new();
    let candidates: Vec<_> = (0..4).map(|index| candidate(&server, &format!("c{index}"))).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for each in &candidates {
        let (each, stop) = (Arc::clone(each), stop.clone());
        tasks.spawn(async move {
            while each.acquire(&stop).await {
                if each.hold(&stop).await {
                    return;
                }
            }
        });
    }
    let mut leaders_seen = std::collections::HashSet::new();
    for second in 0..2000_u32 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.down.store(second % 100 > 60, Ordering::SeqCst);
        if second % 250 == 249 {
            for each in &candidates {
                each.release().await;
            }
        }
        let leading: Vec<_> = candidates.iter().filter(|each| each.leadership().borrow().leading).collect();
        assert!(leading.len() <= 1, "second {second}: {} leaders", leading.len());
        leaders_seen.extend(leading.iter().map(|each| each.identity().to_owned()));
    }
    stop.cancel();
    tasks.join_all().await;
    assert!(leaders_seen.len() > 1, "leadership never moved: {leaders_seen:?}");
}
