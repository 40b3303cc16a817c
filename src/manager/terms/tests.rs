//! Terms of replicas whose controllers are a log, on Leases in memory, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::manager::step_down::{self, StepDown};
use coxswain_machinery::client::{ApiClient, BoxError, HttpService, ResponseBody};
use coxswain_machinery::election::fixture::{Fake, PausedClock, Server, TIMING};
use coxswain_machinery::election::{Elector, Record, SUCCESSOR_ANNOTATION, Timing};
use coxswain_machinery::environment::Threads;
use coxswain_machinery::events::{EventBroadcaster, EventMetrics};
use coxswain_machinery::model::clock::SharedClock;
use coxswain_machinery::telemetry::ManagerMetrics;
use coxswain_machinery::telemetry::Registry;

mod losing;

/// How long reconciles in flight take to end.
const IN_FLIGHT: Duration = Duration::from_secs(3);

/// How long they may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Controllers that write down what becomes of them, with what the Leases say at that moment.
struct Log {
    gate: WriteGate,
    servers: Vec<Arc<Server>>,
    lines: Mutex<Vec<String>>,
    fails: AtomicBool,
    limit: Mutex<Option<Duration>>,
    /// How long reconciles in flight take to end.
    in_flight: Mutex<Duration>,
    /// How they ended.
    ended: Mutex<Stop>,
}

impl Log {
    fn holders(&self) -> String {
        self.servers.iter().map(|server| holder(server)).collect::<Vec<_>>().join("+")
    }

    fn note(&self, what: &str) {
        let gate = if self.gate.is_closed() { "closed" } else { "open" };
        self.lines.lock().push(format!("{what} (gate {gate}, held by {})", self.holders()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

impl Work for Log {
    fn gate(&self) -> &WriteGate {
        &self.gate
    }

    async fn start(&self, under: MigrationLock, stop: &CancellationToken) -> Result<(), ManagerError> {
        self.note(&format!("start {under:?}"));
        if self.fails.load(Ordering::SeqCst) {
            return Err(ManagerError::Prometheus(prometheus::Error::AlreadyReg));
        }
        assert!(!stop.is_cancelled());
        Ok(())
    }

    async fn may_go_second(&self, stop: &CancellationToken) -> bool {
        !stop.is_cancelled()
    }

    fn shutdown_timeout(&self) -> Option<Duration> {
        *self.limit.lock()
    }

    async fn stopped(&self) -> Stop {
        self.note("drain");
        let in_flight = *self.in_flight.lock();
        sleep(in_flight).await;
        *self.ended.lock()
    }

    fn stand_by(&self) {
        self.note("drained");
    }
}

fn holder(server: &Server) -> String {
    let held = server.lease.lock();
    held.as_ref().map_or("nobody".to_owned(), |(version, raw)| {
        let record = Fake::observed(*version, raw).record;
        if record.holder.is_empty() { "nobody".to_owned() } else { record.holder.to_string() }
    })
}

/// A replica that runs.
struct Replica {
    work: Arc<Log>,
    step_down: StepDown,
    shutdown: CancellationToken,
    task: JoinSet<Result<(), ManagerError>>,
    registry: Registry,
}

fn lock(identity: &str, name: &str, server: &Arc<Server>, registry: &Registry) -> Lock<Fake> {
    lock_with(identity, name, server, registry, TIMING)
}

fn lock_with(
    identity: &str,
    name: &str,
    server: &Arc<Server>,
    registry: &Registry,
    timing: Timing,
) -> Lock<Fake> {
    let clock: SharedClock = Arc::new(PausedClock(Instant::now()));
    let metrics = EventMetrics::register(&Registry::new()).unwrap();
    let nobody = tower::service_fn(|_: Request<Full<Bytes>>| -> BoxFuture<'static, _> {
        Box::pin(async { Err::<Response<ResponseBody>, BoxError>("no server".into()) })
    });
    let client = ApiClient::new(HttpService::new(nobody), "events");
    let elector = Elector::new(Fake(Arc::clone(server)), identity, timing, Arc::clone(&clock));
    Lock {
        elector: Arc::new(elector),
        thread: Handle::current(),
        name: name.to_owned(),
        metrics: ManagerMetrics::register(registry).unwrap(),
        recorder: EventBroadcaster::new(clock, metrics).recorder("test", client),
        releases: true,
        candidate: None,
    }
}

impl Replica {
    fn start(identity: &'static str, servers: &[Arc<Server>]) -> Self {
        Self::with(identity, servers, true)
    }

    /// One that gives its Leases back in the end, or not.
    fn with(identity: &'static str, servers: &[Arc<Server>], releases: bool) -> Self {
        let registry = &Registry::new();
        let main = Lock { releases, ..lock(identity, "main", &servers[0], registry) };
        let second = servers
            .get(1)
            .map(|server| Lock { releases, ..lock(identity, "second", server, &Registry::new()) });
        Self::run(servers, main, second, registry)
    }

    /// One that leaves it to the API server who leads.
    fn coordinated(identity: &'static str, server: &Arc<Server>) -> Self {
        let registry = &Registry::new();
        let clock: SharedClock = Arc::new(PausedClock(Instant::now()));
        let elector = Elector::new(Fake(Arc::clone(server)), identity, TIMING, clock).coordinated();
        let main = Lock { elector: Arc::new(elector), ..lock(identity, "main", server, registry) };
        Self::run(std::slice::from_ref(server), main, None, registry)
    }

    fn run(
        servers: &[Arc<Server>],
        main: Lock<Fake>,
        second: Option<Lock<Fake>>,
        registry: &Registry,
    ) -> Self {
        let work = Arc::new(Log {
            gate: WriteGate::new(),
            servers: servers.to_vec(),
            lines: Mutex::default(),
            fails: AtomicBool::new(false),
            limit: Some(SHUTDOWN_TIMEOUT).into(),
            in_flight: IN_FLIGHT.into(),
            ended: Stop::Finished.into(),
        });
        let (step_down, mut requests) = step_down::channel(true);
        let (shutdown, registry) = (CancellationToken::new(), registry.clone());
        let mut task = JoinSet::new();
        let (doing, stop) = (Arc::clone(&work), shutdown.clone());
        task.spawn(async move {
            let terms = Terms { work: &*doing, main: &main, second: second.as_ref() };
            let result = terms.run(&mut requests, &stop).await;
            requests.close();
            result
        });
        Self { work, step_down, shutdown, task, registry }
    }

    async fn ended(mut self) -> Result<(), ManagerError> {
        timeout(Duration::from_hours(4), self.task.join_next()).await.expect("it ends").unwrap().unwrap()
    }

    fn leads_by_metrics(&self) -> bool {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == "leader_election_master_status").unwrap();
        family.get_metric()[0].get_gauge().get_value() > 0.0
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_steps_down_in_order_and_leads_again() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let b = Replica::start("b", &servers);
    sleep(TIMING.lease * 3).await;
    assert!(a.leads_by_metrics() && !b.leads_by_metrics());
    assert!(b.work.gate.is_closed(), "a standby writes nothing");

    a.step_down.step_down(None).await.unwrap();
    until("b leads", || holder(&servers[0]) == "b").await;
    assert!(!a.leads_by_metrics() && b.leads_by_metrics());
    assert!(a.work.gate.is_closed() && !b.work.gate.is_closed());
    assert_eq!(
        a.work.take(),
        [
            "start Main (gate open, held by a)",
            "drain (gate open, held by a)",
            "drained (gate closed, held by a)"
        ]
    );
    assert_eq!(b.work.take(), ["start Main (gate open, held by b)"]);
    sleep(TIMING.lease * 3).await;
    assert_eq!(holder(&servers[0]), "b", "a stands by");

    b.step_down.step_down(Some("a")).await.unwrap();
    until("a leads again", || holder(&servers[0]) == "a").await;
    sleep(TIMING.lease * 3).await;
    assert!(a.leads_by_metrics() && !a.work.gate.is_closed());
    assert_eq!(a.work.take(), ["start Main (gate open, held by a)"]);

    b.shutdown.cancel();
    b.ended().await.unwrap();
    a.shutdown.cancel();
    a.ended().await.unwrap();
    assert_eq!(holder(&servers[0]), "nobody");
}

#[tokio::test(start_paused = true)]
async fn leases_are_left_to_expire_if_somebody_wants_that() {
    let servers = [Arc::new(Server::default()), Arc::new(Server::default())];
    let a = Replica::with("a", &servers, false);
    until("a leads", || servers.iter().all(|server| holder(server) == "a")).await;
    let b = Replica::with("b", &servers, false);
    sleep(TIMING.retry * 3).await;
    a.shutdown.cancel();
    let work = Arc::clone(&a.work);
    a.ended().await.unwrap();
    assert!(work.gate.is_closed(), "it writes no more");
    assert!(servers.iter().all(|server| holder(server) == "a"), "nothing is released");
    let ended = Instant::now();
    until("b leads", || holder(&servers[0]) == "b").await;
    assert!(ended.elapsed() > TIMING.lease.saturating_sub(TIMING.retry * 2), "{:?}", ended.elapsed());
    // A request to step down is another matter.
    b.step_down.step_down(None).await.unwrap();
    assert_eq!(holder(&servers[0]), "nobody");
    b.shutdown.cancel();
    b.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_gives_way_in_order_to_whom_the_api_server_prefers() {
    let server = Arc::new(Server::default());
    let api = Fake(Arc::clone(&server));
    let a = Replica::coordinated("a", &server);
    let b = Replica::coordinated("b", &server);
    sleep(TIMING.lease * 3).await;
    assert!(server.lease.lock().is_none() && a.work.gate.is_closed());
    api.name("a");
    until("a leads", || a.leads_by_metrics()).await;
    sleep(TIMING.lease * 3).await;
    assert!(!a.work.gate.is_closed() && b.work.gate.is_closed());
    api.prefer("b");
    let asked = Instant::now();
    until("a gives way", || holder(&server) == "nobody").await;
    assert!(asked.elapsed() < TIMING.retry + IN_FLIGHT + Duration::from_millis(20), "{:?}", asked.elapsed());
    assert!(a.work.gate.is_closed() && !a.leads_by_metrics());
    assert_eq!(
        a.work.take(),
        [
            "start Main (gate open, held by a)",
            "drain (gate open, held by a)",
            "drained (gate closed, held by a)"
        ]
    );
    api.name("b");
    until("b leads", || b.leads_by_metrics()).await;
    sleep(TIMING.lease * 3).await;
    assert!(a.work.gate.is_closed() && !b.work.gate.is_closed());
    // And back, with the same process.
    b.shutdown.cancel();
    b.ended().await.unwrap();
    api.name("a");
    until("a leads again", || a.leads_by_metrics()).await;
    assert_eq!(a.work.take(), ["start Main (gate open, held by a)"]);
    a.shutdown.cancel();
    a.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_changes_nothing() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let b = Replica::start("b", &servers);
    sleep(TIMING.retry).await;
    let mut asking = Box::pin(a.step_down.step_down(Some("b")));
    assert!(futures::poll!(&mut asking).is_pending());
    drop(asking);
    until("b leads", || holder(&servers[0]) == "b").await;
    assert!(a.work.gate.is_closed() && b.leads_by_metrics());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_does_not_step_down() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let b = Replica::start("b", &servers);
    let refused = b.step_down.step_down(None).await.unwrap_err();
    assert!(matches!(refused, StepDownError::NotLeader));
    // Of two who ask at once, one is served; the other is told that it is over.
    let (first, second) = tokio::join!(a.step_down.step_down(Some("b")), a.step_down.step_down(None));
    first.unwrap();
    assert!(matches!(second, Err(StepDownError::NotLeader)));
    until("b leads", || holder(&servers[0]) == "b").await;
    a.shutdown.cancel();
    let asking = a.step_down.clone();
    a.ended().await.unwrap();
    assert!(matches!(asking.step_down(None).await, Err(StepDownError::NotLeader)));
}

#[tokio::test(start_paused = true)]
async fn without_an_election_there_is_nothing_to_give_up() {
    let (step_down, mut requests) = step_down::channel(false);
    let refused = requests.refuse_while(step_down.step_down(None)).await.unwrap_err();
    assert!(refused.to_string().contains("leader election is off"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_released_is_taken_up_again() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let outage = async {
        sleep(IN_FLIGHT).await;
        servers[0].down.store(true, Ordering::SeqCst);
    };
    let (done, ()) = tokio::join!(a.step_down.step_down(None), outage);
    let error = done.unwrap_err();
    assert!(error.to_string().starts_with("main: release Lease: not released within 10s"), "{error}");
    assert!(a.work.gate.is_closed() && !a.leads_by_metrics());
    servers[0].down.store(false, Ordering::SeqCst);
    until("a leads again", || a.leads_by_metrics() && !a.work.gate.is_closed()).await;
    assert_eq!(a.work.take().last().unwrap(), "start Main (gate open, held by a)");
}

#[tokio::test(start_paused = true)]
async fn two_leases_are_given_up_and_taken_together() {
    let servers = [Arc::new(Server::default()), Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || servers.iter().all(|server| holder(server) == "a")).await;
    let b = Replica::start("b", &servers);
    sleep(TIMING.lease).await;
    a.step_down.step_down(Some("b")).await.unwrap();
    until("b leads", || servers.iter().all(|server| holder(server) == "b")).await;
    assert_eq!(
        a.work.take(),
        [
            "start Main (gate open, held by a+nobody)",
            "start Migration (gate open, held by a+a)",
            "drain (gate open, held by a+a)",
            "drained (gate closed, held by a+a)"
        ]
    );
    sleep(TIMING.lease * 2).await;
    let log = b.work.take();
    assert_eq!(log.len(), 2, "{log:?}");
    // The first lock's guard is the new term's alone: the second term is not bound by the first one's second lock.
    b.step_down.step_down(Some("a")).await.unwrap();
    until("a leads again", || servers.iter().all(|server| holder(server) == "a")).await;
    assert!(!a.work.gate.is_closed());
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_closes_the_gate_and_ends() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let fake = Fake(Arc::clone(&servers[0]));
    let found = coxswain_machinery::election::LeaseApi::get(&fake).await.unwrap().unwrap();
    let theirs = Record::next(Some(&found.record), "thief", 15, found.record.renewed);
    fake.store(coxswain_machinery::wire::splice::edit(&found.raw, &theirs.edits()).unwrap());
    let work = Arc::clone(&a.work);
    assert!(matches!(a.ended().await, Err(ManagerError::LeadershipLost)));
    assert!(work.gate.is_closed());
    assert_eq!(holder(&servers[0]), "thief");
}

/// A step-down that is lost on the way: the caller hears of it, and the process ends as after any loss.
#[tokio::test(start_paused = true)]
async fn leadership_can_be_lost_while_it_is_given_up() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let asking = a.step_down.clone();
    let theft = async {
        sleep(IN_FLIGHT / 3).await;
        let fake = Fake(Arc::clone(&servers[0]));
        let found = coxswain_machinery::election::LeaseApi::get(&fake).await.unwrap().unwrap();
        let theirs = Record::next(Some(&found.record), "thief", 15, found.record.renewed);
        fake.store(coxswain_machinery::wire::splice::edit(&found.raw, &theirs.edits()).unwrap());
    };
    let (done, ()) = tokio::join!(asking.step_down(None), theft);
    assert!(matches!(done, Err(StepDownError::NotLeader)));
    assert!(matches!(a.ended().await, Err(ManagerError::LeadershipLost)));
    assert_eq!(holder(&servers[0]), "thief");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_reconciles_end() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    servers[0].requests.lock().clear();
    a.shutdown.cancel();
    a.ended().await.unwrap();
    let asked = servers[0].requests.lock().clone();
    assert!(asked.len() > 1, "renewed, then released: {asked:?}");
    let held = servers[0].lease.lock();
    let (version, raw) = held.as_ref().unwrap();
    let observed = Fake::observed(*version, raw);
    assert!(observed.record.holder.is_empty());
    assert!(
        !observed.raw.windows(SUCCESSOR_ANNOTATION.len()).any(|at| at == SUCCESSOR_ANNOTATION.as_bytes())
    );
}

/// A write that is never answered, of which it is noted how it ended.
fn write(work: &Arc<Log>) -> JoinSet<()> {
    let (work, gate) = (Arc::clone(work), work.gate.clone());
    JoinSet::from_iter([async move {
        let error = gate.send_to_nobody().await;
        work.note(&format!("ambiguous {}", error.is_ambiguous()));
    }])
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_answered_is_cut_off_before_the_lease_is_given_up() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    a.work.take();
    let written = write(&a.work);
    let began = Instant::now();
    a.step_down.step_down(None).await.unwrap();
    assert!(began.elapsed() >= SHUTDOWN_TIMEOUT, "it had its time");
    written.join_all().await;
    assert_eq!(holder(&servers[0]), "nobody");
    let expected = [
        "drain (gate open, held by a)",
        "drained (gate closed, held by a)",
        "ambiguous true (gate closed, held by a)",
    ];
    assert_eq!(a.work.take(), expected);
}

/// Returns a leader with `--controller-shutdown-timeout=0` whose reconciles take a time.
async fn leader_without_a_shutdown_limit(in_flight: Duration) -> (Arc<Server>, Replica) {
    let server = Arc::new(Server::default());
    let a = Replica::start("a", std::slice::from_ref(&server));
    until("a leads", || holder(&server) == "a").await;
    a.work.take();
    (*a.work.limit.lock(), *a.work.in_flight.lock()) = (None, in_flight);
    (server, a)
}

#[tokio::test(start_paused = true)]
async fn sigterm_without_a_shutdown_limit_waits_for_reconciles_and_writes() {
    let slow = Duration::from_hours(1);
    let (server, a) = leader_without_a_shutdown_limit(slow).await;
    // Its caller hangs up after another hour.
    let mut written = write(&a.work);
    let (began, work) = (Instant::now(), Arc::clone(&a.work));
    a.shutdown.cancel();
    let answered = async {
        sleep(slow * 2).await;
        assert_eq!((holder(&server), work.gate.in_flight()), ("a".to_owned(), 1));
        written.shutdown().await;
    };
    let (ended, ()) = tokio::join!(a.ended(), answered);
    ended.unwrap();
    assert!(began.elapsed() >= slow * 2, "{:?}", began.elapsed());
    assert_eq!(holder(&server), "nobody");
    let expected = ["drain (gate open, held by a)", "drained (gate closed, held by a)"];
    assert_eq!(work.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn shutdown_limit_reached_at_sigterm_is_an_error_after_the_lease_is_released() {
    for (in_flight, ended) in [
        (SHUTDOWN_TIMEOUT * 2, Stop::Finished),
        // Reconciles were aborted by their own timers just before.
        (SHUTDOWN_TIMEOUT.saturating_sub(Duration::from_millis(1)), Stop::Aborted),
    ] {
        let servers = [Arc::new(Server::default())];
        let a = Replica::start("a", &servers);
        until("a leads", || holder(&servers[0]) == "a").await;
        (*a.work.in_flight.lock(), *a.work.ended.lock()) = (in_flight, ended);
        let (began, work) = (Instant::now(), Arc::clone(&a.work));
        a.shutdown.cancel();
        let error = a.ended().await.unwrap_err();
        assert_eq!(error.to_string(), "controller shutdown timeout reached");
        let late = Duration::from_millis(100);
        assert!(began.elapsed() < SHUTDOWN_TIMEOUT + late, "{:?}", began.elapsed());
        assert!(work.gate.is_closed());
        assert_eq!(work.take().last().unwrap(), "drained (gate closed, held by a)");
        assert_eq!(holder(&servers[0]), "nobody");
    }
}

/// A step-down is no end of the process: it continues as a standby, and leads again.
#[tokio::test(start_paused = true)]
async fn shutdown_limit_reached_at_a_step_down_keeps_the_process() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    *a.work.in_flight.lock() = SHUTDOWN_TIMEOUT * 2;
    a.step_down.step_down(None).await.unwrap();
    until("a leads again", || a.leads_by_metrics() && !a.work.gate.is_closed()).await;
    a.shutdown.cancel();
    assert!(matches!(a.ended().await, Err(ManagerError::ShutdownTimeout)));
}

/// Reconciles that nothing aborts never run into another term of the same process.
#[tokio::test(start_paused = true)]
async fn step_down_without_a_shutdown_limit_ends_the_process_if_reconciles_do_not_end() {
    for (in_flight, is_over) in [(STEP_DOWN_LIMIT / 2, false), (STEP_DOWN_LIMIT * 30, true)] {
        let (server, a) = leader_without_a_shutdown_limit(in_flight).await;
        let (began, work) = (Instant::now(), Arc::clone(&a.work));
        a.step_down.step_down(None).await.unwrap();
        assert!(began.elapsed() < STEP_DOWN_LIMIT + TIMING.retry, "{:?}", began.elapsed());
        if is_over {
            assert!(matches!(a.ended().await, Err(ManagerError::ShutdownTimeout)));
            assert!(work.gate.is_closed());
            assert_eq!(holder(&server), "nobody");
        } else {
            until("a leads again", || a.leads_by_metrics() && !a.work.gate.is_closed()).await;
        }
        let mut expected = vec!["drain (gate open, held by a)", "drained (gate closed, held by a)"];
        if !is_over {
            expected.push("start Main (gate open, held by a)");
        }
        assert_eq!(work.take(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn sigterm_during_a_step_down_without_a_shutdown_limit_waits_for_reconciles() {
    let slow = Duration::from_hours(1);
    let (server, a) = leader_without_a_shutdown_limit(slow).await;
    let (began, work) = (Instant::now(), Arc::clone(&a.work));
    let mut asking = Box::pin(a.step_down.step_down(None));
    assert!(futures::poll!(&mut asking).is_pending());
    drop(asking);
    sleep(STEP_DOWN_LIMIT / 2).await;
    a.shutdown.cancel();
    a.ended().await.unwrap();
    assert!(began.elapsed() >= slow, "{:?}", began.elapsed());
    assert_eq!(holder(&server), "nobody");
    let expected = ["drain (gate open, held by a)", "drained (gate closed, held by a)"];
    assert_eq!(work.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn giving_way_without_a_shutdown_limit_ends_the_process_if_reconciles_do_not_end() {
    let server = Arc::new(Server::default());
    let api = Fake(Arc::clone(&server));
    let a = Replica::coordinated("a", &server);
    sleep(TIMING.retry).await;
    api.name("a");
    until("a leads", || a.leads_by_metrics()).await;
    (*a.work.limit.lock(), *a.work.in_flight.lock()) = (None, STEP_DOWN_LIMIT * 30);
    api.prefer("b");
    let (began, work) = (Instant::now(), Arc::clone(&a.work));
    assert!(matches!(a.ended().await, Err(ManagerError::ShutdownTimeout)));
    assert!(began.elapsed() < STEP_DOWN_LIMIT + TIMING.retry * 2, "{:?}", began.elapsed());
    assert!(work.gate.is_closed());
    assert_eq!(holder(&server), "nobody");
}

/// "No limit" is for a Lease that is held. Its loss cuts off every write and ends the process, also while it stops.
#[tokio::test(start_paused = true)]
async fn lease_lost_without_a_shutdown_limit_cuts_writes_off_at_once() {
    for stops in [false, true] {
        let (server, a) = leader_without_a_shutdown_limit(Duration::from_hours(1)).await;
        if stops {
            a.shutdown.cancel();
            sleep(TIMING.retry).await;
        }
        server.down.store(true, Ordering::SeqCst);
        let (began, work) = (Instant::now(), Arc::clone(&a.work));
        write(&work).join_all().await;
        let limit = TIMING.renew_deadline + TIMING.retry;
        assert!(began.elapsed() <= limit, "cut off after {:?}", began.elapsed());
        // A manager that was told to stop has stopped.
        assert_eq!(a.ended().await.is_ok(), stops);
        assert!(began.elapsed() <= limit * 2, "ended after {:?}", began.elapsed());
        assert!(work.gate.is_closed());
    }
}

/// The leader cannot reach the server: long before it gives up for good its writes are cut off.
#[tokio::test(start_paused = true)]
async fn writes_are_cut_off_when_the_lease_does_not_protect_them() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    servers[0].down.store(true, Ordering::SeqCst);
    let (began, work) = (Instant::now(), Arc::clone(&a.work));
    write(&work).join_all().await;
    let limit = TIMING.renew_deadline + TIMING.retry;
    assert!(began.elapsed() <= limit, "cut off after {:?}", began.elapsed());
    assert!(matches!(a.ended().await, Err(ManagerError::LeadershipLost)));
    assert!(work.gate.is_closed());
}

/// A panic of the elector is a loss of the Lease.
#[tokio::test(start_paused = true)]
async fn an_election_that_panics_stops_writes_and_the_process() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    until("a leads", || holder(&servers[0]) == "a").await;
    let (work, written) = (Arc::clone(&a.work), write(&a.work));
    servers[0].panics.store(true, Ordering::SeqCst);
    assert!(matches!(a.ended().await, Err(ManagerError::LeadershipLost)));
    assert!(work.gate.is_closed());
    written.join_all().await;

    let b = Replica::start("b", &servers);
    assert!(matches!(b.ended().await, Err(ManagerError::Election(_))));
}

/// What plans do to the runtime of everything else: it is not polled at all.
#[tokio::test]
async fn a_busy_runtime_delays_neither_renewals_nor_the_end_of_writes() {
    let server = Arc::new(Server::default());
    let thread = Threads::Own.one("elect").unwrap();
    let timing = Timing {
        lease: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(400),
        retry: Duration::from_millis(50),
    };
    let lock =
        Lock { thread: thread.handle().clone(), ..lock_with("a", "main", &server, &Registry::new(), timing) };
    let (stop, gate) = (CancellationToken::new(), WriteGate::new());
    assert!(lock.acquire(&stop).await.unwrap());
    let mut held = std::pin::pin!(lock.hold(&stop, &gate));
    assert!(futures::poll!(&mut held).is_pending());
    let count = || server.requests.lock().len();
    let before = count();
    while count() < before + 3 {
        std::thread::yield_now();
    }
    assert!(!gate.is_closed());
    server.down.store(true, Ordering::SeqCst);
    while !gate.is_closed() {
        std::thread::yield_now();
    }
    assert_eq!(held.await, TermEnd::Lost);
    thread.join().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_cannot_be_started_end_the_term_and_the_process() {
    let servers = [Arc::new(Server::default())];
    let a = Replica::start("a", &servers);
    a.work.fails.store(true, Ordering::SeqCst);
    assert!(matches!(a.ended().await, Err(ManagerError::Prometheus(_))));
    assert_eq!(holder(&servers[0]), "nobody");
}
