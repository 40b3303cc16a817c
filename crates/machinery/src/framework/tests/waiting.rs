//! Keys that wait for a cache: what they expect, what wakes them, and what is told of them.

use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::super::report::{ReconcileStart, Report, Requeue};
use super::super::room::PlanNote;
use super::*;
use crate::client::testing::limited;
use crate::client::{HttpService, Query, RequestPath};
use crate::executor::ActionState;
use crate::random::{HashMap, HashSet};

#[tokio::test(start_paused = true)]
async fn what_an_aborted_reconcile_may_have_written_is_found_by_the_next_instance() {
    let expectations = Arc::new(Expectations::default());
    let before = Bench::on(Arc::clone(&expectations));
    before.plan(vec![create()]);
    before.server.answer(0, Vec::new());
    let (server, worker) = (Arc::clone(&before.server), Arc::new(before.worker));
    worker.queue.add(key());
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    while server.1.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    // As an instance does whose grace period is over.
    tasks.shutdown().await;
    drop(worker);

    let after = Bench::on(expectations);
    after.plan(vec![create()]);
    assert_eq!(after.reconcile().await, Outcome::Waiting(&PODS));
    assert!(after.server.1.lock().is_empty(), "it may still be carried out: a look would come too early");
    advance(MAY_STILL_LAND).await;
    after.server.answer(200, list("9", &["7"]));
    assert_eq!(after.reconcile().await, Outcome::Waiting(&PODS));
    assert!(after.script.asked.lock().is_empty(), "nothing was planned on a cache that is behind");
    after.store.bookmark("7");
    after.server.answer(201, pod("10"));
    assert_eq!(
        after.reconcile().await,
        Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE }
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_caches_without_end_unless_an_end_is_set() {
    let five = Duration::from_mins(5);
    let zero = Some(Duration::ZERO);
    for (code, longest_wait) in
        [(201, None), (201, zero), (201, Some(five)), (0, None), (0, zero), (0, Some(five))]
    {
        let mut bench = Bench::new();
        bench.worker.freshness.longest_wait = longest_wait;
        bench.script.heedless.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            bench.plan(vec![create()]);
        }
        if code != 0 {
            bench.server.answer(code, pod("5"));
        }
        // Where the answer is lost, so are those of the live reads that follow.
        let began = tokio::time::Instant::now();
        let queue = Arc::clone(&bench.worker.queue);
        for most in [1, 2] {
            // Something happens; the second time it is too early.
            queue.add(key());
            while bench.script.asked.lock().len() < most
                && let Ok(Some(item)) = tokio::time::timeout(five * 100, queue.get()).await
                && began.elapsed() < five * 200
            {
                bench.worker.process(item).await;
            }
        }
        let planned = (bench.script.asked.lock().len() == 2).then(|| began.elapsed());
        assert_eq!(planned.map(|at| at.as_secs()), longest_wait.map(|at| at.as_secs()), "{code}");
    }
}

/// Creates something for each key, and then has nothing left to do.
#[derive(Default)]
struct Once {
    created: Mutex<HashSet<Key>>,
    looked_again: Mutex<usize>,
}

impl Reconcile for Once {
    fn plan(&self, key: &Key, failures: &[Failure], _: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        if failures.is_empty() && self.created.lock().insert(key.clone()) {
            let plan = Plan { steps: vec![create()], ..Plan::default() };
            return Ok(Pass::Plan(plan, PlanNote::default()));
        }
        *self.looked_again.lock() += usize::from(failures.is_empty());
        Ok(Pass::Nothing)
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_one_live_read_serves_a_whole_namespace() {
    const KEYS: usize = 200;
    let mut bench = Bench::new();
    let once = Arc::new(Once::default());
    bench.worker.reconcile = Arc::clone(&once) as _;
    let worker = Arc::new(bench.worker);
    (0..KEYS).for_each(|at| worker.queue.add(Key::new("ns", at.to_string())));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    tasks.spawn(Arc::clone(&worker).run());
    while once.created.lock().len() < KEYS {
        tokio::task::yield_now().await;
    }
    bench.server.answer(200, list("9", &["7"]));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*once.looked_again.lock(), 0, "the cache is behind");
    bench.store.bookmark("7");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*once.looked_again.lock(), KEYS);
    let reads = bench.server.1.lock().iter().filter(|request| request.starts_with("GET")).count();
    assert_eq!(reads, 1);
    assert!(worker.freshness.expectations.is_empty());
    worker.queue.shut_down_now();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_one_place_share_the_pause_after_a_failed_live_read() {
    const KEYS: usize = 50;
    let mut bench = Bench::new();
    let once = Arc::new(Once::default());
    bench.worker.reconcile = Arc::clone(&once) as _;
    let worker = Arc::new(bench.worker);
    (0..KEYS).for_each(|at| worker.queue.add(Key::new("ns", at.to_string())));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    while once.created.lock().len() < KEYS {
        tokio::task::yield_now().await;
    }
    let reads = || bench.server.1.lock().iter().filter(|request| request.starts_with("GET")).count();
    sleep(Duration::from_mins(1)).await;
    let failed = reads();
    assert!((4..=8).contains(&failed), "{failed} reads in a minute without an answer");
    bench.server.answer(200, list("9", &["7"]));
    bench.store.bookmark("7");
    sleep(Duration::from_mins(20)).await;
    assert_eq!((reads() - failed, *once.looked_again.lock()), (1, KEYS));
    assert!(worker.freshness.failed.lock().is_empty() && worker.freshness.expectations.is_empty());
    worker.queue.shut_down_now();
    tasks.join_all().await;
}

/// Only time queues the key of such a loop, and no round comes before a live read has shown what became of the lost write.
#[tokio::test(start_paused = true)]
async fn rounds_resume_within_their_period_after_an_outage() {
    let period = Duration::from_secs(20);
    let mut bench = Bench::new();
    let once = Arc::new(Once::default());
    bench.worker.reconcile = Arc::clone(&once) as _;
    bench.worker.settings = LoopSettings::rounds(period);
    let (metrics, backoff) =
        (QueueMetrics::register(&Registry::new()).unwrap(), bench.worker.settings.backoff);
    let queue = Arc::new(WorkQueue::with_config("test", backoff, &metrics));
    let caches = Caches::new(None, vec![Arc::clone(&bench.store)]);
    bench.worker.freshness =
        Freshness::new(caches, Arc::default(), Arc::clone(&queue), bench.server.client());
    bench.worker.queue = Arc::clone(&queue);
    let worker = Arc::new(bench.worker);
    queue.add(Key::EMPTY);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    sleep(Duration::from_mins(10)).await;
    assert_eq!(*once.looked_again.lock(), 0, "no live read is answered");
    bench.server.answer(200, list("9", &["7"]));
    bench.store.bookmark("7");
    // The pause after a failed live read is 15 seconds, and is over when the next try is due.
    sleep(period + Duration::from_secs(1)).await;
    assert_eq!(*once.looked_again.lock(), 1);
    queue.shut_down_now();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_a_cache_are_listed_until_it_has_caught_up() {
    let bench = Bench::new();
    let waiting = |limit| {
        let all = bench.worker.freshness.longest_waiting(limit).into_iter();
        all.map(|wait| (wait.key.name.to_string(), wait.kind, wait.age.as_secs())).collect::<Vec<_>>()
    };
    let reconcile = async |name: &str| bench.worker.reconcile(&Key::new("ns", name), &|| {}).await.0;
    for (name, version) in [("a", "5"), ("b", "6"), ("c", "7")] {
        bench.plan(vec![create()]);
        // The last answer is lost.
        if name != "c" {
            bench.server.answer(201, pod(version));
        }
        reconcile(name).await;
        assert_eq!(reconcile(name).await, Outcome::Waiting(&PODS));
        advance(Duration::from_millis(400)).await;
    }
    advance(Duration::from_secs(10)).await;
    let all = [("a", 11), ("b", 10), ("c", 10)].map(|(name, age)| (name.to_owned(), &PODS, age));
    assert_eq!((waiting(9), bench.worker.freshness.waiting_keys()), (all.to_vec(), 3));
    assert_eq!(waiting(1), all[..1]);
    bench.store.bookmark("6");
    for name in ["a", "b"] {
        reconcile(name).await;
    }
    assert_eq!(waiting(9), all[2..]);
}

/// Notes what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<&'static str>>);

impl Report for Notes {
    fn started(&self, _: &ReconcileStart<'_>) {
        self.0.lock().push("started");
    }

    fn ended(&self, _: &ReconcileStart<'_>, _: &Outcome, _: Vec<ActionState>, _: Duration) {
        self.0.lock().push("ended");
    }

    fn requeued(&self, _: &ReconcileStart<'_>, cause: Requeue, _: Duration) {
        self.0.lock().push(if cause == Requeue::StaleCache { "waits" } else { "comes back" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_is_woken_by_the_cache_and_told_of_once() {
    let mut bench = Bench::new();
    let notes = Arc::new(Notes::default());
    bench.worker.report = Arc::clone(&notes) as _;
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    let worker = Arc::new(bench.worker);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    // Its own writes come back, one after the other, while the cache is behind.
    for _ in 0..20 {
        worker.queue.add(key());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*notes.0.lock(), ["started", "ended", "waits"]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(*notes.0.lock(), ["started", "ended", "waits"], "nobody polls, and nobody gives up");
    bench.store.bookmark("5");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*notes.0.lock(), ["started", "ended", "waits", "started", "ended"]);
    assert_eq!(bench.script.asked.lock().len(), 2);
    worker.queue.shut_down_now();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn an_explanation_consumes_no_expectation() {
    let bench = Bench::new();
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("5"));
    bench.reconcile().await;
    for _ in 0..3 {
        assert_eq!(bench.worker.explain(&key()).await.waiting_for, Some(&PODS));
    }
    bench.store.bookmark("5");
    assert_eq!(bench.worker.explain(&key()).await.waiting_for, None);
    assert_eq!(bench.worker.freshness.expectations.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn explanations_are_made_one_after_the_other_by_a_client_of_their_own() {
    let mut bench = Bench::new();
    let apart = Arc::new(Server::default());
    let reader =
        Reader::new(apart.client(), Arc::new(Discovery::new(apart.client())), BlockingPool::inline());
    bench.worker.explainer = Explainer::new(reader);
    bench.script.needs.lock().push_back(vec![Read::Object(&PODS, Key::new("ns", "web-1"))]);
    apart.answer(0, Vec::new());
    let worker = Arc::new(bench.worker);
    let mut asking = JoinSet::new();
    for _ in 0..10 {
        let worker = Arc::clone(&worker);
        asking.spawn(async move { worker.explain(&key()).await });
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!((apart.1.lock().len(), bench.server.1.lock().len()), (1, 0));
    assert_eq!(asking.len(), 10, "the others wait for the first");
}

/// Reads JSON of the API group that a key names, and then has nothing to do.
#[derive(Default)]
struct Metered(Mutex<Vec<Key>>);

impl Reconcile for Metered {
    fn plan(&self, key: &Key, _: &[Failure], reads: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let query = key.name.split('-').next().unwrap_or_default();
        let path =
            RequestPath::group_version(&key.namespace, "v1").series(&[query]).uri(Query::NONE).unwrap();
        if reads.json(&path).is_none() {
            return Ok(Pass::Needs(vec![TEST_READ.of(Read::Json(path))]));
        }
        self.0.lock().push(key.clone());
        Ok(Pass::Nothing)
    }
}

#[tokio::test(start_paused = true)]
async fn keys_whose_reads_take_long_are_set_aside() {
    const SLOW: usize = 40;
    for (sets_aside, workers, places) in [(true, 5, 24), (true, 1, 5), (false, 5, 1)] {
        let mut bench = Bench::new();
        let metered = Arc::new(Metered::default());
        bench.worker.reconcile = Arc::clone(&metered) as _;
        bench.worker.reader = bench.worker.reader.for_workers(workers);
        bench.worker.settings.sets_aside = sets_aside;
        let worker = Arc::new(bench.worker);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&worker).run());
        for at in 0..SLOW {
            bench.server.answer(0, Vec::new());
            worker.queue.add(Key::new("slow", at.to_string()));
        }
        // The first one's answer is waited for, and so it is known that the others' take long.
        sleep(Duration::from_millis(1_500)).await;
        let asked = || bench.server.1.lock().len();
        // One group takes so many places, whoever waits for it.
        assert_eq!(asked(), places);
        bench.server.0.lock().clear();
        bench.server.answer(200, b"{}".to_vec());
        worker.queue.add(Key::new("fast", "1"));
        sleep(Duration::from_millis(1)).await;
        let fast: &[Key] = if sets_aside { &[Key::new("fast", "1")] } else { &[] };
        assert_eq!(*metered.0.lock(), fast);
        tasks.shutdown().await;
    }
}

/// A server that never answers an API group with `slow` in its name, and counts what it is asked by group.
#[derive(Default)]
struct HalfSlow(Mutex<HashMap<String, usize>>);

impl HalfSlow {
    fn service(self: &Arc<Self>) -> HttpService {
        let server = Arc::clone(self);
        HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let group = request.uri().path().split('/').nth(2).unwrap_or_default().to_owned();
            *server.0.lock().entry(group.clone()).or_default() += 1;
            async move {
                if group.contains("slow") {
                    return std::future::pending().await;
                }
                let body = Full::new(Bytes::from_static(b"{}")).map_err(BoxError::from).boxed_unsync();
                Ok::<_, BoxError>(Response::new(body))
            }
        }))
    }

    fn asked(&self, group: &str) -> usize {
        self.0.lock().get(group).copied().unwrap_or_default()
    }
}

/// A worker that reads JSON of this service.
fn metered(client: &ApiClient) -> (Arc<Worker>, Arc<Metered>) {
    let mut bench = Bench::new();
    let metered = Arc::new(Metered::default());
    bench.worker.reconcile = Arc::clone(&metered) as _;
    bench.worker.settings.sets_aside = true;
    bench.worker.reader =
        Reader::new(client.clone(), Arc::new(Discovery::new(client.clone())), BlockingPool::inline());
    (Arc::new(bench.worker), metered)
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_for_the_rate_limit_marks_no_group_as_slow_and_sets_no_key_aside() {
    for group in ["metrics.k8s.io", "other.example.com"] {
        let server = Arc::new(HalfSlow::default());
        let (worker, metered) = metered(&limited(server.service(), 0.1, 1));
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&worker).run());
        (0..50).for_each(|at| worker.queue.add(Key::new(group, at.to_string())));
        for evaluated in 1..8 {
            sleep(Duration::from_secs(9)).await;
            assert!(!worker.reader.is_slow(group), "{group}");
            assert_eq!((metered.0.lock().len(), server.asked(group)), (evaluated, evaluated));
            assert_eq!(worker.queue.len(), 50 - evaluated - 1, "one key waits, and the worker with it");
            sleep(Duration::from_secs(1)).await;
        }
        tasks.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_group_that_hangs_never_occupy_the_workers_however_many_they_are() {
    // Each has a query of its own, or all have the same.
    for queries in [3000, 1] {
        let server = Arc::new(HalfSlow::default());
        let (worker, metered) = metered(&ApiClient::new(server.service(), "test"));
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            tasks.spawn(Arc::clone(&worker).run());
        }
        for round in 0..3 {
            metered.0.lock().clear();
            // More than two workers set aside, and a hundred whose API answers.
            for at in 0..3000 {
                worker.queue.add(Key::new("slow", format!("{}-{at}", at % queries)));
                if at % 30 == 0 {
                    worker.queue.add(Key::new("fast", at.to_string()));
                }
            }
            sleep(Duration::from_secs(3)).await;
            let answered = metered.0.lock().iter().filter(|key| key.namespace == "fast").count();
            assert_eq!(answered, 100, "{queries}, round {round}");
            assert_eq!(worker.queue.len(), 0, "a worker is free");
            sleep(Duration::from_secs(12)).await;
        }
        let asked = server.asked("slow");
        assert!((1..=24).contains(&asked), "{queries}: {asked}");
        let failed = metered.0.lock().iter().filter(|key| key.namespace == "slow").count();
        assert!(failed > 2000, "{queries}: {failed} are evaluated again in their next period");
        tasks.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_set_aside_comes_to_its_end() {
    let mut bench = Bench::new();
    let metered = Arc::new(Metered::default());
    bench.worker.reconcile = Arc::clone(&metered) as _;
    bench.worker.settings.sets_aside = true;
    for _ in 0..3 {
        bench.server.answer(5, b"{}".to_vec());
    }
    let worker = Arc::new(bench.worker);
    (0..3).for_each(|at| worker.queue.add(Key::new("slow", at.to_string())));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    sleep(Duration::from_millis(7_500)).await;
    // The second was begun a second after the first, and the third with it.
    assert_eq!(metered.0.lock().len(), 3);
    worker.queue.shut_down();
    tasks.join_all().await;
}

/// A server that refuses all writes in the namespace `refused`, and asks for a minute each time.
fn refusing_client() -> ApiClient {
    let service = tower::service_fn(|request: Request<Full<Bytes>>| async move {
        let is_refused = request.uri().path().contains("/namespaces/refused/");
        let (code, body) = if is_refused { (429, Vec::new()) } else { (201, pod("5")) };
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        Response::builder().status(code).header("retry-after", "60").body(body).map_err(BoxError::from)
    });
    let client = ApiClient::new(BoxCloneSyncService::new(service), "test");
    client.patient(WriteGate::new(), Duration::from_secs(70))
}

/// Creates a pod in the namespace of each key.
#[derive(Default)]
struct Creator(Mutex<Vec<Vec<u16>>>);

impl Reconcile for Creator {
    fn plan(&self, key: &Key, failures: &[Failure], _: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        if !failures.is_empty() {
            self.0.lock().push(failures.iter().map(|failure| failure.code).collect());
            return Ok(Pass::Nothing);
        }
        let Step::Write(write) = create() else { panic!("create() is a write") };
        let write = Write { key: Key::new(key.namespace.clone(), "web-1"), ..write };
        Ok(Pass::Plan(Plan { steps: vec![Step::Write(write)], ..Plan::default() }, PlanNote::default()))
    }

    fn heeds_failures(&self) -> bool {
        true
    }
}

/// A webhook that asks for a minute for each object of a tenant holds up no other tenant.
#[tokio::test(start_paused = true)]
async fn keys_that_the_server_asks_to_wait_for_leave_the_workers_to_others() {
    for workers in [1, 2] {
        let mut bench = Bench::new();
        let creator = Arc::new(Creator::default());
        bench.worker.reconcile = Arc::clone(&creator) as _;
        bench.worker.settings.workers = workers;
        bench.worker.wait_seats = WaitSeats::new(bench.worker.settings.waits_beside());
        bench.worker.executor = Executor::new(refusing_client(), Arc::new(Silent));
        let worker = Arc::new(bench.worker);
        (0..40).for_each(|at| worker.queue.add(Key::new("refused", at.to_string())));
        worker.queue.add(Key::new("free", "1"));
        let mut tasks = JoinSet::new();
        (0..workers).for_each(|_| _ = tasks.spawn(Arc::clone(&worker).run()));
        sleep(Duration::from_millis(1)).await;
        // The credit does not cover a minute, so without a seat the refusal is the answer at once.
        // A namespace has 16 of 32 seats when no other waits.
        let refused = if workers == 1 { 40 } else { 24 };
        let ended = (worker.stats.syncs(), worker.stats.errors(), creator.0.lock().len() as u64);
        assert_eq!(ended, (refused + 1, refused, refused), "{workers}");
        // The wait does not outlast the controller, and its end is no failure to be recorded.
        worker.wait_seats.close();
        worker.queue.shut_down_now();
        let began = tokio::time::Instant::now();
        tasks.join_all().await;
        assert_eq!((began.elapsed(), creator.0.lock().len() as u64), (Duration::ZERO, refused), "{workers}");
    }
}

/// Reads one object of the namespace `refused` for each key there.
#[derive(Default)]
struct Owned(Mutex<Vec<Key>>);

impl Reconcile for Owned {
    fn plan(&self, key: &Key, _: &[Failure], reads: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let owner = Key::new("refused", "owner");
        if key.namespace == "refused" && reads.object(&PODS, &owner).is_none() {
            return Ok(Pass::Needs(vec![TEST_READ.of(Read::Object(&PODS, owner))]));
        }
        self.0.lock().push(key.clone());
        Ok(Pass::Nothing)
    }
}

/// A shared read has one request, but each key that shares it must leave its worker.
#[tokio::test(start_paused = true)]
async fn keys_that_share_a_read_which_the_server_refuses_leave_the_workers_to_others() {
    let mut bench = Bench::new();
    let owned = Arc::new(Owned::default());
    bench.worker.reconcile = Arc::clone(&owned) as _;
    bench.worker.settings.workers = 2;
    bench.worker.wait_seats = WaitSeats::new(bench.worker.settings.waits_beside());
    let discovery = Arc::new(Discovery::new(refusing_client()));
    bench.worker.reader = Reader::new(refusing_client(), discovery, BlockingPool::inline());
    let worker = Arc::new(bench.worker);
    (0..16).for_each(|at| worker.queue.add(Key::new("refused", at.to_string())));
    worker.queue.add(Key::new("free", "1"));
    let mut tasks = JoinSet::new();
    (0..2).for_each(|_| _ = tasks.spawn(Arc::clone(&worker).run()));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*owned.0.lock(), [Key::new("free", "1")]);
    tasks.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn serial_loop_plans_nothing_before_the_cache_shows_what_a_live_list_finds() {
    let expectations = Arc::new(Expectations::default());
    // Each instance compares its own cache.
    for instance in 0..2 {
        let mut bench = Bench::on(Arc::clone(&expectations));
        bench.worker.settings.serial = true;
        expectations.require_current(&Key::EMPTY, &bench.worker.freshness.caches);
        let requests = || bench.server.1.lock().len();
        let asked = || bench.script.asked.lock().len();
        // The list fails, and is repeated after a pause.
        let outcome = bench.reconcile().await;
        assert!(matches!(outcome, Outcome::Failed { retry: true, .. }), "{instance}: {outcome:?}");
        assert_eq!((bench.reconcile().await, requests()), (Outcome::Waiting(&PODS), 1), "{instance}");
        advance(Duration::from_secs(1)).await;
        // The process before this one has written at 7, and the first list of the cache was older.
        bench.server.answer(200, list("9", &["4", "7"]));
        assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
        assert!(bench.server.1.lock().last().unwrap().ends_with("/v1/pods?limit=500"));
        let other = bench.worker.reconcile(&Key::new("ns", "other"), &|| {}).await.0;
        assert_eq!((other, requests(), asked()), (Outcome::Waiting(&PODS), 2, 0), "{instance}");
        bench.store.bookmark("7");
        for planned in 1..=2 {
            assert_eq!(bench.reconcile().await, Outcome::Absent);
            assert_eq!((requests(), asked()), (2, planned), "{instance}: one list serves all keys");
        }
        assert!(expectations.is_empty());
    }
}
