//! The worker loop against a scripted API server and a scripted room, in paused time.

mod absences;
mod canceled;
mod conflicts;
mod discovery;
mod epochs;
mod lists;
mod offload;
mod panics;
mod plans;
mod progress;
mod rooms;
mod seeds;
mod slices;
mod terminating;
mod waiting;
mod wakes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;
use tracing_subscriber::layer::SubscriberExt as _;

use super::blocking::BlockingPool;
use super::caches::Caches;
use super::demand::{Demands, Explainer};
use super::expectations::{Expectations, MAY_STILL_LAND};
use super::freshness::Freshness;
use super::instance::{Resync, queue_gone, queue_keys};
use super::metrics::ReconcileMetrics;
use super::reader::Reader;
use super::reads::{Pass, Read, Reads};
use super::report::Unreported;
use super::room::{ObserveError, PlanNote, Reconcile};
use super::settings::LoopSettings;
use super::stats::LoopStats;
use super::terminating::TerminatingOwners;
use super::trace::Waits;
use super::wake;
use super::watch::{Debounce, KeyMap};
use super::watchdog::Watchdog;
use super::worker::{Outcome, Worker};
use crate::api::AnyObject;
use crate::api::kinds::PODS;
use crate::api::meta::ObjectMeta;
use crate::api::pod::Pod;
use crate::client::{ApiClient, BoxError, Discovery, WaitSeats, WriteGate};
use crate::executor::{ActionResult, Events, Executor};
use crate::informer::{Delta, Store};
use crate::model::Key;
use crate::model::clock::{ManualClock, SharedClock};
use crate::model::live_reads::TEST_READ;
use crate::model::plan::{Cooldown, EventSpec, Failure, Plan, Step, Verb, Write};
use crate::queue::{QueueMetrics, WorkQueue};
use crate::telemetry::Registry;
use crate::telemetry::tracing::Tracing;
use crate::wire::splice::put_bytes;
use crate::wire::{Message, wrap_envelope};

struct Silent;

impl Events for Silent {
    fn emit(&self, _: EventSpec) {}
}

/// Answers in the order given; none left means that the connection broke, code 0 that the answer never comes, and another code
/// below 100 that it comes after so many seconds, and is a good one.
#[derive(Default)]
struct Server(Mutex<VecDeque<(u16, Vec<u8>)>>, Mutex<Vec<String>>);

impl Server {
    fn client(self: &Arc<Self>) -> ApiClient {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let server = Arc::clone(&server);
            async move {
                server.1.lock().push(format!("{} {}", request.method(), request.uri()));
                let (code, body) = server.0.lock().pop_front().ok_or("the connection broke")?;
                let code = match code {
                    0 => std::future::pending().await,
                    1..100 => {
                        tokio::time::sleep(Duration::from_secs(code.into())).await;
                        200
                    }
                    code => code,
                };
                let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
                Response::builder().status(code).body(body).map_err(BoxError::from)
            }
        });
        ApiClient::new(BoxCloneSyncService::new(service), "test")
    }

    fn answer(&self, code: u16, body: Vec<u8>) {
        self.0.lock().push_back((code, body));
    }
}

/// Plans what it is told to, and remembers with which failures it was asked.
struct Script {
    /// Whether it panics over the key `poison`.
    poisoned: AtomicBool,
    plans: Mutex<VecDeque<Plan>>,
    asked: Mutex<Vec<Vec<String>>>,
    /// Reads to ask for first.
    needs: Mutex<VecDeque<Vec<Read>>>,
    /// What had been read whenever it planned.
    read: Mutex<Vec<String>>,
    /// Whether it does not look at failures.
    heedless: AtomicBool,
    /// Whether it holds its thread for [`BLOCK`].
    blocks: AtomicBool,
}

const BLOCK: Duration = Duration::from_millis(150);

impl Default for Script {
    fn default() -> Self {
        Self {
            poisoned: AtomicBool::new(true),
            plans: Mutex::default(),
            asked: Mutex::default(),
            needs: Mutex::default(),
            read: Mutex::default(),
            heedless: AtomicBool::new(false),
            blocks: AtomicBool::new(false),
        }
    }
}

impl Reconcile for Script {
    fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        _: Timestamp,
    ) -> Result<Pass, ObserveError> {
        assert!(key.name != "poison" || !self.poisoned.load(Ordering::Relaxed), "cannot bear this");
        if self.blocks.load(Ordering::Relaxed) {
            std::thread::sleep(BLOCK);
        }
        self.asked.lock().push(failures.iter().map(|failure| failure.what.clone()).collect());
        if let Some(needs) = self.needs.lock().pop_front() {
            return Ok(Pass::Needs(needs.into_iter().map(|read| TEST_READ.of(read)).collect()));
        }
        self.read.lock().push(format!("{read:?}"));
        Ok(self.plans.lock().pop_front().map_or(Pass::Nothing, |plan| Pass::Plan(plan, PlanNote::default())))
    }

    fn heeds_failures(&self) -> bool {
        !self.heedless.load(Ordering::Relaxed)
    }
}

struct Bench {
    worker: Worker,
    server: Arc<Server>,
    script: Arc<Script>,
    store: Arc<Store>,
}

impl Bench {
    fn new() -> Self {
        Self::on(Arc::default())
    }

    /// A worker that finds what others expected.
    fn on(expectations: Arc<Expectations>) -> Self {
        let registry = Registry::new();
        let clock: SharedClock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let (server, script) = (Arc::new(Server::default()), Arc::new(Script::default()));
        let store = Arc::new(Store::new(&PODS));
        store.replace(Vec::new(), "1");
        let queue = Arc::new(WorkQueue::new("test", &QueueMetrics::register(&registry).unwrap()));
        let reader =
            Reader::new(server.client(), Arc::new(Discovery::new(server.client())), BlockingPool::inline());
        let caches = Caches::new(Some(&PODS), vec![Arc::clone(&store)]);
        let worker = Worker {
            controller: "test-controller",
            queue_name: "test",
            kind: Some(&PODS),
            freshness: Freshness::new(caches, expectations, Arc::clone(&queue), server.client()),
            queue,
            settings: LoopSettings::default(),
            reconcile: Arc::clone(&script) as _,
            executor: Executor::new(server.client(), Arc::new(Silent)),
            explainer: Explainer::new(reader.clone()),
            reader,
            stats: Arc::new(LoopStats::new(Arc::clone(&clock))),
            clock,
            metrics: ReconcileMetrics::register(&registry).unwrap(),
            demands: Demands::default(),
            causes: Arc::default(),
            waits: Waits::default(),
            terminating: TerminatingOwners::default(),
            report: Arc::new(Unreported),
            watchdog: Watchdog::new(&registry).unwrap(),
            wait_seats: WaitSeats::new(false),
        };
        Self { worker, server, script, store }
    }

    async fn reconcile(&self) -> Outcome {
        self.worker.reconcile(&key(), &|| {}).await.0
    }

    fn plan(&self, steps: Vec<Step>) {
        self.script.plans.lock().push_back(Plan { steps, ..Plan::default() });
    }
}

fn key() -> Key {
    Key::new("ns", "web")
}

fn queue() -> Arc<WorkQueue<Key>> {
    Arc::new(WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap()))
}

fn pod_object() -> AnyObject {
    let metadata = ObjectMeta { namespace: "ns".into(), name: "a".into(), ..ObjectMeta::default() };
    Arc::new(Pod { metadata, ..Pod::default() })
}

fn create() -> Step {
    Step::Write(Write::new(&PODS, Key::new("ns", ""), Verb::Create(Bytes::from_static(b"\x0a\x00"))))
}

/// A create of another object.
fn create_another() -> Step {
    Step::Write(Write::new(&PODS, Key::new("ns", ""), Verb::Create(Bytes::from_static(b"\x0a\x00\x12\x00"))))
}

fn pod(version: &str) -> Vec<u8> {
    let metadata = ObjectMeta {
        name: "web-1".into(),
        namespace: "ns".into(),
        resource_version: version.into(),
        ..ObjectMeta::default()
    };
    wrap_envelope("v1", "Pod", &Pod { metadata, ..Pod::default() }.to_bytes())
}

fn absent(name: &str) -> Vec<u8> {
    let status =
        serde_json::json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}, "code": 404});
    status.to_string().into_bytes()
}

/// A list at this version of pods at those.
fn list(version: &str, pods: &[&str]) -> Vec<u8> {
    let (mut meta, mut list) = (Vec::new(), Vec::new());
    put_bytes(&mut meta, 2, version.as_bytes());
    put_bytes(&mut list, 1, &meta);
    for at in pods {
        let metadata = ObjectMeta { resource_version: (*at).into(), ..ObjectMeta::default() };
        put_bytes(&mut list, 2, &Pod { metadata, ..Pod::default() }.to_bytes());
    }
    wrap_envelope("v1", "PodList", &list)
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_planned_again_before_the_cache_has_seen_its_writes() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    let done = bench.reconcile().await;
    assert_eq!(done, Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE });
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
    assert_eq!(bench.script.asked.lock().len(), 1, "no plan was made meanwhile");
    bench.store.bookmark("5");
    bench.reconcile().await;
    assert_eq!(bench.script.asked.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_planned_once_more_and_the_key_is_retried() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.plan(vec![create()]);
    bench.server.answer(403, b"no".to_vec());
    bench.server.answer(201, pod("5"));
    let outcome = bench.reconcile().await;
    let Outcome::Failed { error, retry: true, quiet: false, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("403"), "{error}");
    assert_eq!(*bench.script.asked.lock(), [vec![], vec!["create pods ns/".to_owned()]]);
    // What the second pass wrote is waited for as well.
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_bounded_by_a_live_read() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Failed { retry: true, .. }), "{outcome:?}");
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS), "it may still be carried out");
    tokio::time::advance(MAY_STILL_LAND).await;
    // The live read fails too: nothing is planned.
    let planned = bench.script.asked.lock().len();
    let outcome = bench.reconcile().await;
    assert!(
        matches!(&outcome, Outcome::Failed { error, .. } if error.contains("compare the cache")),
        "{outcome:?}"
    );
    let requests = bench.server.1.lock().len();
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
    assert_eq!(bench.server.1.lock().len(), requests, "there is a pause after a failed read");
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.server.answer(200, list("9", &["7"]));
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
    assert_eq!(bench.script.asked.lock().len(), planned);
    assert!(bench.server.1.lock().last().unwrap().ends_with("/namespaces/ns/pods?limit=500"));
    bench.store.bookmark("7");
    assert_eq!(bench.reconcile().await, Outcome::Absent);
}

#[tokio::test(start_paused = true)]
async fn the_loop_retries_with_backoff_and_looks_again_when_asked() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(500, Vec::new());
    bench.script.plans.lock().push_back(Plan::default());
    bench
        .script
        .plans
        .lock()
        .push_back(Plan { requeue_after: Some(Duration::from_secs(30)), ..Plan::default() });
    bench.server.answer(200, list("1", &[]));
    let (queue, stats, script) =
        (Arc::clone(&bench.worker.queue), Arc::clone(&bench.worker.stats), Arc::clone(&bench.script));
    queue.add(key());
    let worker = Arc::new(bench.worker);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    while script.asked.lock().len() < 4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // First pass, its failure, the retry, and the look that the retry's plan asked for.
    assert_eq!((stats.errors(), stats.last_error().unwrap().key), (1, key()));
    assert!(stats.syncs() >= 3);
    assert_eq!(queue.retries(&key()), 0, "success forgets the failures");
    queue.shut_down_now();
    tasks.join_all().await;
}

/// A webhook may refuse with a conflict, too, and then no newer version calls the key.
#[tokio::test(start_paused = true)]
async fn a_key_is_looked_at_again_after_a_conflict_that_is_tolerated() {
    let bench = Bench::new();
    let mut write = create();
    let Step::Write(written) = &mut write else { panic!("{write:?}") };
    written.tolerate.conflict = true;
    // The key is in flight, as when its worker has taken it.
    bench.worker.queue.add(key());
    let item = bench.worker.queue.get().await.unwrap();
    for seconds in [10, 20, 40, 80] {
        bench.plan(vec![write.clone()]);
        bench.server.answer(409, br#"{"kind":"Status","code":409,"reason":"Conflict"}"#.to_vec());
        let outcome = bench.reconcile().await;
        let Outcome::Done { requeue_after, .. } = outcome else { panic!("{outcome:?}") };
        let pause = Some(Duration::from_secs(seconds));
        assert_eq!(requeue_after, pause, "a webhook that refuses each time is asked less and less");
    }
    bench.plan(vec![]);
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Done { requeue_after: None, .. }), "{outcome:?}");
    bench.plan(vec![write]);
    bench.server.answer(409, br#"{"kind":"Status","code":409,"reason":"Conflict"}"#.to_vec());
    let outcome = bench.reconcile().await;
    let Outcome::Done { requeue_after, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(requeue_after, Some(Duration::from_secs(10)));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_the_first_reconcile_that_begins_then() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    for name in ["a", "b", "c"] {
        bench.worker.queue.add(Key::new("ns", name));
    }
    let worker = Arc::new(bench.worker);
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn({
        let worker = Arc::clone(&worker);
        async move { worker.sync(key()).await }
    });
    tokio::task::yield_now().await;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    let synced = asking.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(
        synced.outcome,
        Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE },
        "before all that waited"
    );
    assert_eq!(synced.actions[0].result, ActionResult::Done);
    assert_eq!(synced.actions[0].key, Key::new("ns", "web-1"), "by the name that it got");

    worker.queue.shut_down_now();
    worker.demands.close();
    assert!(worker.sync(key()).await.is_none(), "a controller that stops lets go of those who ask");
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn only_what_was_written_has_a_cooldown() {
    let at_least = Duration::from_millis(250);
    let cooldown = Cooldown { at_least, times_work: 0 };
    for (steps, waits) in [(vec![create()], true), (Vec::new(), false)] {
        let bench = Bench::new();
        bench.script.plans.lock().push_back(Plan { steps, cooldown, ..Plan::default() });
        bench.server.answer(201, pod("5"));
        let queue = Arc::clone(&bench.worker.queue);
        queue.add(key());
        bench.worker.process(queue.get().await.unwrap()).await;
        queue.add(key());
        assert_eq!(queue.is_empty(), waits);
        tokio::time::advance(at_least).await;
        assert!(!queue.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_waits_a_moment_for_a_cache_that_is_behind() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    assert_eq!(
        bench.reconcile().await,
        Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE }
    );
    let (worker, store) = (Arc::new(bench.worker), bench.store);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    let began = tokio::time::Instant::now();
    assert_eq!(worker.sync(key()).await.unwrap().outcome, Outcome::Waiting(&PODS), "it does not come");
    assert!(began.elapsed() >= Duration::from_secs(2), "it was waited for");
    let (synced, ()) = tokio::join!(worker.sync(key()), async { store.bookmark("5") });
    assert_eq!(synced.unwrap().outcome, Outcome::Absent);
    worker.queue.shut_down_now();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn an_explanation_plans_and_does_nothing() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    let explained = bench.worker.explain(&key()).await;
    let actions = explained.actions.unwrap().unwrap();
    assert_eq!((actions.len(), &actions[0].result), (1, &ActionResult::Planned));
    assert!(bench.server.1.lock().is_empty(), "nothing was sent");
    assert_eq!(bench.worker.explain(&key()).await.actions, Ok(None), "there is nothing more to plan");

    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    bench.reconcile().await;
    assert_eq!(bench.worker.explain(&key()).await.waiting_for, Some(&PODS));
}

#[tokio::test(start_paused = true)]
async fn what_a_pass_needs_is_read_before_the_next() {
    let bench = Bench::new();
    let object = |name: &str| Read::Object(&PODS, Key::new("ns", name));
    bench.script.needs.lock().extend([vec![object("web-1")], vec![object("web-1"), object("gone")]]);
    bench.server.answer(200, pod("5"));
    bench.server.answer(404, absent("gone"));
    bench.plan(Vec::new());
    let explained = bench.worker.explain(&key()).await;
    assert_eq!(explained.actions, Ok(Some(Vec::new())));
    let asked: Vec<String> = std::mem::take(&mut bench.server.1.lock());
    assert_eq!(
        asked,
        ["GET /api/v1/namespaces/ns/pods/web-1", "GET /api/v1/namespaces/ns/pods/gone"],
        "what was read is not read again"
    );
    let read = bench.script.read.lock()[0].clone();
    assert!(read.contains("web-1") && read.contains("Object(Ok(None))"), "{read}");

    // Lists come whole; what fails is for the room to judge.
    bench.script.needs.lock().push_back(vec![Read::List(&PODS, "ns".into())]);
    bench.server.answer(200, list("7", &["1", "2"]));
    bench.plan(Vec::new());
    bench.worker.explain(&key()).await;
    bench.script.needs.lock().push_back(vec![object("web-1")]);
    bench.server.answer(503, Vec::new());
    bench.plan(Vec::new());
    bench.worker.explain(&key()).await;
    let read = bench.script.read.lock().clone();
    assert_eq!(read[1].matches("Pod {").count(), 2, "{}", read[1]);
    assert!(read[2].contains("Object(Err(Refused"), "{}", read[2]);

    // A resource that is not served says nothing of its objects.
    bench.script.needs.lock().push_back(vec![object("web-1")]);
    bench.server.answer(404, b"404 page not found".to_vec());
    bench.plan(Vec::new());
    bench.worker.explain(&key()).await;
    let read = bench.script.read.lock();
    assert!(read[3].contains("Object(Err(Refused"), "{}", read[3]);
}

#[tokio::test(start_paused = true)]
async fn a_room_that_never_has_enough_fails() {
    let bench = Bench::new();
    let needs = |name: String| vec![Read::Object(&PODS, Key::new("ns", &name))];
    bench.script.needs.lock().extend((0..20).map(|number| needs(format!("pod-{number}"))));
    (0..20).for_each(|_| bench.server.answer(404, absent("pod")));
    let outcome = bench.reconcile().await;
    assert!(
        matches!(&outcome, Outcome::Failed { retry: true, error, .. } if error.contains("8 passes")),
        "{outcome:?}"
    );
    assert_eq!(bench.server.1.lock().len(), 8);

    bench.script.needs.lock().clear();
    bench.script.needs.lock().extend([needs("same".to_owned()), needs("same".to_owned())]);
    let outcome = bench.reconcile().await;
    assert!(
        matches!(&outcome, Outcome::Failed { retry: true, error, .. } if error.contains("requested twice")),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn failing_keys_are_known_until_they_succeed() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(500, Vec::new());
    bench.script.plans.lock().extend([Plan::default(), Plan::default()]);
    bench.server.answer(200, list("1", &[]));
    let (worker, stats) = (Arc::new(bench.worker), Arc::clone(&bench.script));
    worker.queue.add(key());
    let item = worker.queue.get().await.unwrap();
    worker.process(item).await;
    let failing = worker.stats.failing(10);
    assert_eq!((failing.len(), failing[0].attempts, &failing[0].key), (1, 1, &key()));
    // It waits until it is known what the lost request did, and then succeeds.
    for _ in 0..2 {
        let item = worker.queue.get().await.unwrap();
        worker.process(item).await;
    }
    assert_eq!((worker.stats.failing_keys(), worker.stats.failing(10)), (0, Vec::new()));
    assert!(stats.plans.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_key_are_debounced() {
    let queue = queue();
    let keys: KeyMap = Arc::new(|delta, emit| emit(Key::of(delta.latest().unwrap().meta())));
    let pod = pod_object();
    let change = Delta { old: None, new: Some(&pod), initial: false, resync: false };
    let began = tokio::time::Instant::now();
    let causes = || (&PODS, Arc::default());
    let debounced =
        queue_keys(Arc::clone(&queue), Arc::clone(&keys), Debounce::For(Duration::from_secs(2)), causes());
    debounced(change);
    tokio::time::advance(Duration::from_secs(1)).await;
    debounced(change);
    drop(queue.get().await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_secs(2), "the first change counts");
    debounced(change);
    queue_keys(Arc::clone(&queue), keys, Debounce::None, causes())(change);
    drop(queue.get().await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_secs(2), "another change may ask for it at once");
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_object_queues_its_key_if_that_has_a_long_delay() {
    let queue = queue();
    let pod = pod_object();
    // This key map ignores deletions.
    let keys = queue_keys(Arc::clone(&queue), wake::existing(), Debounce::None, (&PODS, Arc::default()));
    let handler = queue_gone(Arc::clone(&queue), keys, Debounce::None);
    let deleted = Delta { old: Some(&pod), new: None, initial: false, resync: false };
    handler(deleted);
    assert_eq!(queue.len(), 0);
    queue.add_planned(Key::new("ns", "a"), Duration::from_hours(1));
    handler(Delta { new: Some(&pod), ..deleted });
    drop(queue.get().await.unwrap());
    handler(deleted);
    assert_eq!(queue.len(), 1);
}

/// The pod garbage collector waits after the deletion of a node, because the node may register again.
#[tokio::test(start_paused = true)]
async fn deletion_that_is_debounced_queues_no_key_in_flight_before() {
    let queue = queue();
    let pod = pod_object();
    let debounce = Debounce::For(Duration::from_secs(40));
    let keys: KeyMap = Arc::new(|delta, emit| emit(Key::of(delta.latest().unwrap().meta())));
    let keys = queue_keys(Arc::clone(&queue), keys, debounce, (&PODS, Arc::default()));
    let handler = queue_gone(Arc::clone(&queue), keys, debounce);
    queue.add(Key::new("ns", "a"));
    let in_flight = queue.get().await.unwrap();
    handler(Delta { old: Some(&pod), new: None, initial: false, resync: false });
    in_flight.done();
    assert_eq!(queue.len(), 0);
    let began = tokio::time::Instant::now();
    drop(queue.get().await.unwrap());
    assert_eq!(began.elapsed(), Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn all_objects_come_back_again_and_again() {
    let queue = queue();
    let objects = Arc::new(Store::new(&PODS));
    let pod = pod_object();
    let (period, stop) = (Duration::from_mins(5), CancellationToken::new());
    let resync = Resync { period, objects: Arc::clone(&objects), queue: Arc::clone(&queue) };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(resync.run(stop.clone()));
    // It is there before the first time comes, and gone before the fourth.
    objects.upsert(&pod);
    let began = tokio::time::Instant::now();
    for times in 1..=3 {
        assert_eq!(*queue.get().await.unwrap().key(), Key::new("ns", "a"));
        assert_eq!(began.elapsed(), period * times);
    }
    objects.remove(&pod);
    tokio::time::sleep(period * 2).await;
    assert!(queue.snapshot(1).oldest.is_empty());
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_asks_for_it_is_followed_by_another() {
    let bench = Bench::new();
    let looking = |steps| Plan { steps, look_again: true, ..Plan::default() };
    bench.script.plans.lock().push_back(looking(vec![create()]));
    bench.plan(vec![create_another()]);
    bench.server.answer(201, pod("5"));
    bench.server.answer(201, pod("6"));
    let outcome = bench.reconcile().await;
    assert_eq!(outcome, Outcome::Done { writes: 2, requeue_after: None, cooldown: Cooldown::NONE });
    let read = std::mem::take(&mut *bench.script.read.lock());
    assert!(!read[0].contains("pods") && read[1].contains("pods"), "it is told what was written: {read:?}");

    // Not for ever, and not after a failure.
    bench.script.plans.lock().extend((0..9).map(|_| looking(Vec::new())));
    let outcome = bench.worker.reconcile(&Key::new("ns", "other"), &|| {}).await.0;
    assert!(matches!(outcome, Outcome::Failed { retry: true, .. }), "{outcome:?}");
    assert_eq!(bench.script.plans.lock().len(), 4);
    bench.script.plans.lock().clear();
    bench.script.plans.lock().push_back(looking(vec![create()]));
    bench.plan(Vec::new());
    bench.server.answer(500, Vec::new());
    assert!(matches!(
        bench.worker.reconcile(&Key::new("ns", "third"), &|| {}).await.0,
        Outcome::Failed { retry: true, .. }
    ));
    assert!(bench.script.asked.lock().last().is_some_and(|failures| failures.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_cache_is_a_span_from_the_reconcile_that_met_it_to_the_one_that_goes_on() {
    let mut traces = Tracing::unsent(-1);
    let subscriber = tracing_subscriber::Registry::default().with(vec![traces.layer()]);
    let _traced = tracing::subscriber::set_default(subscriber);
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    bench.worker.queue.add(key());
    // The first writes, two wait, and the last goes on.
    for round in 0..4 {
        let item = bench.worker.queue.get().await.unwrap();
        bench.worker.process(item).await;
        match round {
            0 | 1 => bench.worker.queue.add(key()),
            2 => bench.store.bookmark("5"),
            _ => {}
        }
    }
    let mut spans = traces.recorded();
    spans.sort_by_key(|span| span.start_time);
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let [_, first, second, last] = named("reconcile test-controller")[..] else { panic!("{spans:#?}") };
    let [wait] = named("cache wait pods")[..] else { panic!("{spans:#?}") };
    assert_eq!(wait.span_context.trace_id(), first.span_context.trace_id());
    assert_eq!(wait.parent_span_id, first.span_context.span_id());
    assert!(wait.end_time >= second.end_time && wait.end_time <= last.end_time);
    assert_eq!(last.links.len(), 1);
    assert_eq!(last.links[0].span_context, wait.span_context);
    assert_eq!(second.links.len(), 0);
}
