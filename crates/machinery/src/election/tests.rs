//! Elections between candidates on one Lease in memory, in paused time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{advance, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fixture::{Fake, PausedClock, Server, TIMING};
use super::*;
use crate::informer::{CONFIRM_AFTER, Epochs};
use crate::model::clock::SharedClock;
use crate::serve::HealthCheck as _;
use crate::telemetry::Registry;
use crate::wire::splice::get;
use crate::wire::{Message as _, Str, Value};

mod coordinated;

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
    assert!(waited < TIMING.lease + Duration::from_millis(10), "took over after {waited:?}");
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

#[tokio::test(start_paused = true)]
async fn of_two_first_candidates_the_later_has_met_no_error() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(a.acquire(&CancellationToken::new()).await);
    server.finds_nothing.store(true, Ordering::SeqCst);
    assert!(matches!(b.take_or_renew().await, Ok(false)));
    assert_eq!(*server.requests.lock(), ["get", "create", "get", "create"]);
    server.finds_nothing.store(false, Ordering::SeqCst);
    assert!(matches!(b.take_or_renew().await, Ok(false)));
    assert_eq!(holder(&server), "a");
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

/// Others count from when they saw a renewal, and that may be as early as it was sent.
#[tokio::test(start_paused = true)]
async fn protection_counts_from_when_a_renewal_was_sent_and_ends_with_a_call() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    let ends = parking_lot::Mutex::new(Vec::new());
    let began = tokio::time::Instant::now();
    let holding = async {
        tokio::select! {
            held = a.hold(&stop) => held,
            never = a.at_ends_of_protection(|| ends.lock().push(began.elapsed())) => match never {},
        }
    };
    // The first renewal is answered in no time, the second after four seconds, and then no more.
    let acting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        *server.answers_after.lock() = Duration::from_secs(4);
        until_seen(|| server.requests.lock().len() == 4).await;
        server.down.store(true, Ordering::SeqCst);
    };
    let (held, ()) = tokio::join!(holding, acting);
    assert!(!held);
    let sent = TIMING.retry;
    let protected = TIMING.renew_deadline + TIMING.retry;
    assert_eq!(ends.into_inner(), [sent + protected], "whole, and once");
    assert!(protected < TIMING.lease);
}

async fn until_seen(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_comes_late_but_in_time_protects_anew() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    let ends = std::sync::atomic::AtomicUsize::new(0);
    let holding = async {
        tokio::select! {
            held = a.hold(&stop) => held,
            never = a.at_ends_of_protection(|| { ends.fetch_add(1, Ordering::SeqCst); }) => match never {},
        }
    };
    // Each is answered just before the elector gives up: protected by the one before for less than that.
    *server.answers_after.lock() = Duration::from_millis(9999);
    let acting = async {
        until_seen(|| ends.load(Ordering::SeqCst) == 3).await;
        until_seen(|| a.is_protected()).await;
        stop.cancel();
    };
    assert!(tokio::join!(holding, acting).0, "it has led all the time");
}

/// The record has whole seconds; what is left over protects nobody.
#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_second_does_not_protect() {
    let server = Arc::new(Server::default());
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let timing = Timing {
        lease: Duration::from_millis(2900),
        renew_deadline: Duration::from_millis(2500),
        retry: Duration::from_secs(1),
    };
    let a = Elector::new(Fake(Arc::clone(&server)), "a", timing, clock);
    assert!(a.acquire(&CancellationToken::new()).await);
    advance(Duration::from_millis(1999)).await;
    assert!(a.is_protected());
    advance(Duration::from_millis(1)).await;
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
    let mut leaders_seen = crate::random::HashSet::default();
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

/// Candidates that never give up: each leads whenever it can and gives its name to the log.
struct Race {
    stop: CancellationToken,
    tasks: tokio::task::JoinSet<()>,
    log: Arc<parking_lot::Mutex<Vec<(String, tokio::time::Instant)>>>,
}

impl Race {
    fn new() -> Self {
        Self { stop: CancellationToken::new(), tasks: tokio::task::JoinSet::new(), log: Arc::default() }
    }

    fn enter(&mut self, candidate: &Arc<Elector<Fake>>) {
        let (candidate, stop, log) = (Arc::clone(candidate), self.stop.clone(), Arc::clone(&self.log));
        self.tasks.spawn(async move {
            if candidate.acquire(&stop).await {
                log.lock().push((candidate.identity().to_owned(), tokio::time::Instant::now()));
                candidate.hold(&stop).await;
            }
        });
    }

    /// Waits for the first to lead.
    async fn winner(&self) -> (String, tokio::time::Instant) {
        loop {
            if let Some(first) = self.log.lock().first() {
                return first.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn annotations(server: &Server) -> Vec<(String, String)> {
    let held = server.lease.lock();
    let (_, raw) = held.as_ref().unwrap();
    let lease = crate::api::coordination::Lease::decode(&bytes::Bytes::from(raw.clone())).unwrap();
    lease.metadata.annotations.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_handed_over_is_left_to_the_others() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(a.acquire(&CancellationToken::new()).await);
    let mut race = Race::new();
    // One that polls, as the original does, and is late.
    a.hand_over(None).await.unwrap();
    assert!(!a.is_leading() && !a.is_protected());
    assert_eq!(annotations(&server), [], "nobody was named");
    race.enter(&a);
    tokio::time::sleep(TIMING.retry * 4).await;
    assert_eq!(holder(&server), "");
    race.enter(&b);
    assert_eq!(race.winner().await.0, "b");
    // It stands again like any other.
    tokio::time::sleep(TIMING.lease).await;
    b.release().await;
    race.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn who_hands_over_leads_again_if_nobody_wants_to() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    a.hand_over(None).await.unwrap();
    let began = tokio::time::Instant::now();
    server.requests.lock().clear();
    assert!(a.acquire(&stop).await);
    assert!(began.elapsed() >= TIMING.lease);
    assert!(began.elapsed() <= TIMING.lease + TIMING.retry.mul_f64(2.2));
    assert!(server.requests.lock().len() < 12, "it polls while it holds back: {:?}", server.requests.lock());
    let record = a.leadership().borrow().record.clone().unwrap();
    assert_eq!((record.holder.as_str(), record.transitions), ("a", 1));
}

#[tokio::test(start_paused = true)]
async fn a_successor_is_preferred() {
    for rival_polls_first in [false, true] {
        let server = Arc::new(Server::default());
        let (a, b, c) = (candidate(&server, "a"), candidate(&server, "b"), candidate(&server, "c"));
        assert!(a.acquire(&CancellationToken::new()).await);
        let mut race = Race::new();
        race.enter(&b);
        if !rival_polls_first {
            race.enter(&c);
        }
        tokio::time::sleep(TIMING.retry).await;
        a.hand_over(Some("c")).await.unwrap();
        let named = annotations(&server);
        assert!(named.contains(&(SUCCESSOR_ANNOTATION.to_owned(), "c".to_owned())), "{named:?}");
        race.enter(&a);
        if rival_polls_first {
            tokio::time::sleep(TIMING.retry * 3).await;
            race.enter(&c);
        }
        assert_eq!(race.winner().await.0, "c");
        assert_eq!(annotations(&server), [], "who takes it clears the name");
        race.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_successor_is_waited_for_as_long_as_the_lease_lasts() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(a.acquire(&CancellationToken::new()).await);
    let mut race = Race::new();
    race.enter(&b);
    tokio::time::sleep(TIMING.retry).await;
    a.hand_over(Some("dead")).await.unwrap();
    let began = tokio::time::Instant::now();
    let (winner, at) = race.winner().await;
    let waited = at - began;
    assert_eq!(winner, "b");
    assert!(waited >= TIMING.lease && waited <= TIMING.lease + TIMING.retry.mul_f64(3.3), "{waited:?}");
    assert_eq!(annotations(&server), []);
    race.stop.cancel();
}

/// Other software takes the Lease, leaves the annotations in it, and releases it later.
#[tokio::test(start_paused = true)]
async fn a_name_of_an_earlier_term_means_nothing() {
    let server = Arc::new(Server::default());
    let (a, b, stop) = (candidate(&server, "a"), candidate(&server, "b"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    a.hand_over(Some("dead")).await.unwrap();
    let fake = Fake(Arc::clone(&server));
    let (before, found) = (annotations(&server), fake.get().await.unwrap().unwrap());
    let theirs = Record::next(Some(&found.record), "other", 15, found.record.renewed);
    let without_annotations = |record: &Record| record.edits().into_iter().take(5).collect::<Vec<_>>();
    let raw = crate::wire::splice::edit(&found.raw, &without_annotations(&theirs)).unwrap();
    let raw = crate::wire::splice::edit(&raw, &without_annotations(&theirs.released(None, theirs.renewed)));
    fake.store(raw.unwrap());
    assert_eq!(annotations(&server), before);
    let began = tokio::time::Instant::now();
    assert!(b.acquire(&stop).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(annotations(&server), []);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_is_tried_again_until_the_renew_deadline() {
    let server = Arc::new(Server::default());
    let (a, stop) = (candidate(&server, "a"), CancellationToken::new());
    assert!(a.acquire(&stop).await);
    server.down.store(true, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    let error = a.hand_over(None).await.unwrap_err();
    assert_eq!(began.elapsed(), TIMING.renew_deadline);
    assert!(error.to_string().contains("down"), "{error}");
    assert!(!a.is_leading() && !a.is_protected());
    // It is still ours, and nobody else's: we need not wait to take it up again.
    server.down.store(false, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    assert!(a.acquire(&stop).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(a.leadership().borrow().record.as_ref().unwrap().transitions, 0);

    server.down.store(true, Ordering::SeqCst);
    let recovery = async {
        tokio::time::sleep(TIMING.retry).await;
        server.down.store(false, Ordering::SeqCst);
    };
    let (done, ()) = tokio::join!(a.hand_over(None), recovery);
    done.unwrap();
    assert_eq!(holder(&server), "");
}

#[tokio::test(start_paused = true)]
async fn health_check_watches_every_elector_and_names_the_lease() {
    let servers = [Arc::new(Server::default()), Arc::new(Server::default())];
    let [main, second] = servers.each_ref().map(|server| candidate(server, "a"));
    let stop = CancellationToken::new();
    assert!(main.acquire(&stop).await && second.acquire(&stop).await);
    let grace = Duration::from_secs(20);
    let named = [("main", &main), ("second", &second)];
    let named = named.map(|(lease, elector)| (lease.to_owned(), Arc::clone(elector)));
    let health = ElectorHealth::new(named.to_vec(), grace);
    // The main elector hangs, and the second one renews its Lease.
    let limit = TIMING.lease + grace;
    assert!(timeout(limit, second.hold(&stop)).await.is_err());
    assert_eq!(health.check(), Ok(()));
    assert!(timeout(Duration::from_secs(5), second.hold(&stop)).await.is_err());
    let failed = "failed election to renew leadership on lease main";
    assert_eq!(health.check(), Err(failed.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_over_that_is_not_held() {
    let server = Arc::new(Server::default());
    let (a, b) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(a.acquire(&CancellationToken::new()).await);
    b.hand_over(Some("c")).await.unwrap();
    let found = Fake(Arc::clone(&server)).get().await.unwrap().unwrap();
    let theirs = Record::next(Some(&found.record), "b", 15, found.record.renewed);
    Fake(Arc::clone(&server)).update(&found, &theirs).await.unwrap();
    a.hand_over(Some("c")).await.unwrap();
    assert_eq!(holder(&server), "b");
    assert_eq!(annotations(&server), []);
}

#[test]
fn a_lease_that_nobody_hands_over_is_written_as_before() {
    let record = Record {
        holder: "a".into(),
        duration_seconds: 15,
        acquired: jiff::Timestamp::UNIX_EPOCH,
        renewed: jiff::Timestamp::UNIX_EPOCH,
        transitions: 3,
        successor: Str::EMPTY,
    };
    // metadata with a name; spec empty.
    let lease = [0x0a, 0x03, 0x0a, 0x01, b'l', 0x12, 0x00];
    let plain: Vec<_> = record.edits().into_iter().take(5).collect();
    let edit = |edits: &[_]| crate::wire::splice::edit(&lease, edits).unwrap();
    assert_eq!(edit(&record.edits()), edit(&plain));
}

/// etcd was restored from a backup in which this replica leads as well.
#[tokio::test(start_paused = true)]
async fn lease_whose_version_went_back_ends_the_epoch() {
    let server = Arc::new(Server::default());
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let a =
        Elector::new(Fake(Arc::clone(&server)), "a", TIMING, clock).noticing_restores(Arc::clone(&epochs));
    let stop = CancellationToken::new();
    assert!(a.acquire(&stop).await);
    let backup = server.lease.lock().clone();
    let hold = |seconds| timeout(Duration::from_secs(seconds), a.hold(&stop));
    assert!(hold(60).await.is_err());
    // Somebody else has written: that is no restore.
    let (version, raw) = server.lease.lock().clone().unwrap();
    *server.lease.lock() = Some((version + 10, raw));
    assert!(hold(10).await.is_err());
    assert_eq!(epochs.present().number(), 0);
    // Neither is a backend that lags for less than a second.
    let newest = std::mem::replace(&mut *server.lease.lock(), backup.clone());
    let catches_up = async {
        sleep(CONFIRM_AFTER / 2).await;
        *server.lease.lock() = newest;
    };
    assert!(tokio::join!(hold(10), catches_up).0.is_err());
    assert_eq!((epochs.present().number(), a.is_leading()), (0, true));

    *server.lease.lock() = backup;
    assert!(hold(3).await.is_err());
    assert_eq!((epochs.present().number(), a.is_leading()), (1, true));
    assert!(hold(600).await.is_err());
    assert_eq!(epochs.present().number(), 1, "one restore is one epoch");

    // In this backup there was no Lease yet.
    *server.lease.lock() = None;
    assert!(hold(3).await.is_err());
    assert_eq!((epochs.present().number(), a.is_leading()), (2, true));
}

/// In the backup another replica leads.
#[tokio::test(start_paused = true)]
async fn lease_whose_version_went_back_before_it_is_given_up_ends_the_epoch() {
    let server = Arc::new(Server::default());
    let clock: SharedClock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let epochs = Epochs::register(&Registry::new()).unwrap();
    assert!(candidate(&server, "b").acquire(&CancellationToken::new()).await);
    let backup = server.lease.lock().clone();
    let a =
        Elector::new(Fake(Arc::clone(&server)), "a", TIMING, clock).noticing_restores(Arc::clone(&epochs));
    assert!(a.acquire(&CancellationToken::new()).await);
    *server.lease.lock() = backup;
    a.hand_over(None).await.unwrap();
    assert_eq!((epochs.present().number(), holder(&server)), (1, "b".into()));
}
