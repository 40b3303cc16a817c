//! Elections that the API server decides: the tests are the API server.

use futures::future::BoxFuture;
use jiff::Timestamp;

use super::*;
use crate::api::coordination::LeaseCandidate;
use crate::client::ApiError;
use crate::wire::path;
use crate::wire::splice::{Edit, edit};

fn coordinated(server: &Arc<Server>, identity: &str) -> Arc<Elector<Fake>> {
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    Arc::new(Elector::new(Fake(Arc::clone(server)), identity, TIMING, clock).coordinated())
}

fn name(server: &Arc<Server>, holder: &str) {
    Fake(Arc::clone(server)).name(holder);
}

fn prefer(server: &Arc<Server>, preferred: &str) {
    Fake(Arc::clone(server)).prefer(preferred);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_named_takes_nothing() {
    let server = Arc::new(Server::default());
    let (a, stop) = (coordinated(&server, "a"), CancellationToken::new());
    let waits = async || timeout(TIMING.lease * 4, a.acquire(&stop)).await.is_err();
    assert!(waits().await, "there is no Lease");
    name(&server, "b");
    assert!(waits().await, "it has expired");
    name(&server, "");
    assert!(waits().await, "it is free");
    name(&server, "a");
    prefer(&server, "b");
    assert!(waits().await, "another is to have it");
    assert!(server.requests.lock().iter().all(|verb| *verb == "get"), "nothing is written");
    assert!(!a.is_protected());
}

#[tokio::test(start_paused = true)]
async fn who_is_named_leads_at_once_and_renews() {
    let server = Arc::new(Server::default());
    let (a, stop) = (coordinated(&server, "a"), CancellationToken::new());
    let naming = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!a.is_protected());
        name(&server, "a");
        tokio::time::Instant::now()
    };
    let (acquired, named) = tokio::join!(a.acquire(&stop), naming);
    assert!(acquired && a.is_protected());
    assert!(named.elapsed() < Duration::from_millis(10));
    let before = server.requests.lock().len();
    assert!(timeout(Duration::from_mins(1), a.hold(&stop)).await.is_err());
    let requests = server.requests.lock().split_off(before);
    assert!(requests.len() >= 29 && requests.iter().all(|verb| *verb == "update"), "{requests:?}");
    a.release().await;
    assert_eq!(holder(&server), "");
    assert!(timeout(TIMING.lease * 4, a.acquire(&stop)).await.is_err(), "it is named once only");
}

#[tokio::test(start_paused = true)]
async fn a_leader_learns_that_another_is_preferred_and_renews_until_it_gives_way() {
    let server = Arc::new(Server::default());
    let (a, b, stop) = (coordinated(&server, "a"), coordinated(&server, "b"), CancellationToken::new());
    name(&server, "a");
    assert!(a.acquire(&stop).await);
    assert!(timeout(Duration::from_mins(1), a.until_asked_to_give_way()).await.is_err());
    let asking = async {
        prefer(&server, "b");
        let asked = tokio::time::Instant::now();
        a.until_asked_to_give_way().await;
        assert!(asked.elapsed() <= TIMING.retry, "{:?}", asked.elapsed());
        tokio::time::sleep(TIMING.lease * 2).await;
        assert!(a.is_protected() && holder(&server) == "a", "what is in flight may end");
        stop.cancel();
    };
    assert!(tokio::join!(a.hold(&stop), asking).0);
    a.hand_over(None).await.unwrap();
    assert!(!a.is_protected());
    assert_eq!(holder(&server), "");
    let stop = CancellationToken::new();
    name(&server, "b");
    assert!(b.acquire(&stop).await);
    assert!(timeout(Duration::from_secs(1), a.until_asked_to_give_way()).await.is_err(), "once");
    assert!(timeout(TIMING.lease * 2, a.acquire(&stop)).await.is_err());
}

/// The API server may give it to another at any moment.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_emptied_or_deleted_is_lost() {
    let empty: fn(&Arc<Server>) = |server| name(server, "");
    let delete: fn(&Arc<Server>) = |server| *server.lease.lock() = None;
    for end in [empty, delete] {
        let server = Arc::new(Server::default());
        let (a, stop) = (coordinated(&server, "a"), CancellationToken::new());
        name(&server, "a");
        assert!(a.acquire(&stop).await);
        end(&server);
        let ended = tokio::time::Instant::now();
        assert!(!a.hold(&stop).await);
        assert!(ended.elapsed() <= TIMING.retry, "{:?}", ended.elapsed());
        assert!(!a.is_protected() && !a.is_leading());
    }
}

/// The API server prefers now this one and now that, and gives away what is free or has expired; requests fail for longer
/// than a Lease lasts.
#[tokio::test(start_paused = true)]
async fn whoever_leads_is_named_in_the_lease() {
    let server = Arc::new(Server::default());
    let stop = CancellationToken::new();
    let candidates: Vec<_> = ["a", "b", "c"].map(|name| coordinated(&server, name)).into();
    let mut tasks = tokio::task::JoinSet::new();
    for each in &candidates {
        let (each, stop) = (Arc::clone(each), stop.clone());
        tasks.spawn(async move {
            while each.acquire(&stop).await {
                let term = stop.child_token();
                tokio::select! {
                    biased;
                    held = each.hold(&term) => if held { return },
                    // What cannot be given up expires.
                    () = each.until_asked_to_give_way() => drop(each.hand_over(None).await),
                }
            }
        });
    }
    let (mut led, mut version, mut unchanged) = (crate::random::HashSet::default(), 0, Duration::ZERO);
    for turn in 0..4000_usize {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.down.store(turn % 120 > 80, Ordering::SeqCst);
        let protected: Vec<_> = candidates.iter().filter(|each| each.is_protected()).collect();
        assert!(protected.len() <= 1, "turn {turn}: {} lead", protected.len());
        for each in protected {
            assert_eq!(holder(&server), each.identity(), "turn {turn}");
            led.insert(each.identity().to_owned());
        }
        let held = server.lease.lock().clone();
        let held = held.map(|(version, raw)| Fake::observed(version, &raw));
        let now = held.as_ref().map_or(0, |held| held.version);
        unchanged = if now == version { unchanged + Duration::from_millis(500) } else { Duration::ZERO };
        version = now;
        let is_free = held.as_ref().is_none_or(|held| held.record.holder.is_empty());
        let next = candidates[turn % 3].identity();
        if is_free || unchanged > TIMING.lease {
            name(&server, next);
        } else if turn % 50 == 0 {
            prefer(&server, next);
        }
    }
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(led.len(), 3, "{led:?}");
}

/// A server that has one LeaseCandidate.
#[derive(Clone, Default)]
struct Candidates(Arc<Held>);

#[derive(Default)]
struct Held {
    candidate: parking_lot::Mutex<Option<Vec<u8>>>,
    requests: parking_lot::Mutex<Vec<&'static str>>,
    refuses: std::sync::atomic::AtomicBool,
    changed: tokio::sync::Notify,
}

impl Candidates {
    fn enter(&self, verb: &'static str) -> Result<(), ApiError> {
        self.0.requests.lock().push(verb);
        if self.0.refuses.load(Ordering::SeqCst) { Err(Fake::refused("Forbidden", 403)) } else { Ok(()) }
    }

    fn store(&self, raw: Option<Vec<u8>>) {
        *self.0.candidate.lock() = raw;
        self.0.changed.notify_waiters();
    }

    fn held(&self) -> Option<ObservedCandidate> {
        let raw = bytes::Bytes::from(self.0.candidate.lock().clone()?);
        Some(ObservedCandidate::of(&LeaseCandidate::decode(&raw).unwrap(), raw))
    }

    /// Asks, as of a second since 1970.
    fn ping(&self, second: i64) {
        let raw = self.held().unwrap().raw;
        let time = super::super::record::micro_time(Timestamp::from_second(second).unwrap());
        self.store(Some(edit(&raw, &[Edit::SetBytes(path!(LeaseCandidate, spec.pingTime), time)]).unwrap()));
    }

    async fn until(&self, holds: impl Fn(&ObservedCandidate) -> bool) {
        until_seen(|| self.held().is_some_and(|held| holds(&held))).await;
    }
}

impl CandidateApi for Candidates {
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedCandidate>, ApiError>> {
        Box::pin(async { self.enter("get").map(|()| self.held()) })
    }

    fn create(&self, edits: Vec<Edit>) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            self.enter("create")?;
            self.store(Some(edit(&LeaseCandidate::default().to_bytes(), &edits).unwrap()));
            Ok(())
        })
    }

    fn update<'a>(
        &'a self,
        observed: &'a ObservedCandidate,
        edits: Vec<Edit>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            self.enter("update")?;
            self.store(Some(edit(&observed.raw, &edits).unwrap()));
            Ok(())
        })
    }

    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(Option<ObservedCandidate>) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        Box::pin(async move {
            self.enter("watch")?;
            loop {
                let changed = self.0.changed.notified();
                if seen(self.held()) {
                    return Ok(true);
                }
                changed.await;
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_says_who_it_is_and_answers_when_it_is_asked() {
    let server = Candidates::default();
    let candidacy =
        Candidacy { lease: "manager".into(), binary: "1.36.3".into(), emulation: "1.35.0".into() };
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let candidate = Contender::new(server.clone(), candidacy.clone(), TIMING.retry, Arc::clone(&clock));
    let acting = async {
        server.0.refuses.store(true, Ordering::SeqCst);
        tokio::time::sleep(TIMING.retry * 10).await;
        assert!(server.0.requests.lock().len() <= 11, "{:?}", server.0.requests.lock());
        server.0.refuses.store(false, Ordering::SeqCst);
        server.until(|held| held.candidacy == candidacy && held.renewed <= clock.now()).await;
        let raw = server.held().unwrap().raw;
        let strategy = get(&raw, path!(LeaseCandidate, spec.strategy)).unwrap();
        assert_eq!(strategy, Some(Value::Bytes(b"OldestEmulationVersion")));

        let before = server.0.requests.lock().len();
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(server.0.requests.lock().len(), before, "nobody asks");
        // Asked by a clock behind ours, then by one that is ahead.
        let now = clock.now().as_second();
        for asked in [now - 60, now + 3600] {
            server.ping(asked);
            let began = tokio::time::Instant::now();
            server.until(|held| held.renewed.as_second() >= asked.max(now)).await;
            assert!(began.elapsed() < Duration::from_millis(10));
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        let requests = server.0.requests.lock().split_off(before);
        assert!(requests.len() <= 6, "{requests:?}");
        server.store(None);
        server.until(|held| held.candidacy == candidacy).await;
    };
    tokio::select! {
        biased;
        () = acting => {}
        never = candidate.stand() => match never {},
    }
}
