//! A controller that follows no object, from its descriptor on: a serial loop whose keys are seeds, in paused time. And what a
//! loop reads is covered by its expectations, whether or not it is woken by it.

use super::super::expectations::Readiness;
use super::*;
use crate::client::{ClientBuilder, ClientMetrics, ClientOptions, Connection};
use crate::events::{EventBroadcaster, EventMetrics};
use crate::framework::{
    Build, BuildError, BuildFn, Built, DefaultState, Descriptor, ExpectationsRegistry, Instance, Loop,
    LoopSettings, Memory, Observation, Room, RoomAdapter, RoomMetrics, Runtime, Stop, Watch,
};
use crate::informer::{Informers, InformersConfig};
use crate::options::Config;
use crate::serve::Router;

/// How often each side is looked at.
const PERIOD: Duration = Duration::from_mins(1);

static DESCRIPTOR: Descriptor = descriptor(build);
/// The same, which also reads pods, and is not woken by them.
static READING: Descriptor = descriptor(|with| {
    let _: Watch<Pod> = with.watch(&PODS);
    build(with)
});

/// The same with keys that name pods.
static UNIQUE: Descriptor = descriptor(|with| {
    let mut built = build(with)?;
    for each in &mut built.loops {
        each.kind = Some(&PODS);
    }
    Ok(built)
});

const fn descriptor(build: BuildFn) -> Descriptor {
    Descriptor {
        name: "sides-controller",
        aliases: &[],
        description: "Counts rounds of two sides.",
        gates: &[],
        default: DefaultState::On,
        cloud: false,
        special: false,
        service_account: None,
        event_source: None,
        writes: &[],
        build: Some(build),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every room's build")]
fn build(_: &Build<'_>) -> Result<Built, BuildError> {
    let rounds = Arc::new(Rounds::default());
    let room = RoomAdapter::new(Sides(Arc::clone(&rounds))).remembered_by(rounds);
    Ok(Built {
        loops: vec![Loop {
            queue: "sides",
            kind: None,
            settings: LoopSettings {
                workers: 7,
                serial: true,
                seeds: ["left", "right"].map(|side| Key::new("", side)).to_vec(),
                ..LoopSettings::default()
            },
            wake_ups: Vec::new(),
            reconcile: Arc::new(room),
        }],
    })
}

/// How often each side was looked at.
#[derive(Default)]
struct Rounds(Mutex<std::collections::BTreeMap<Key, usize>>);

impl Memory<usize> for Rounds {
    fn commit(&self, key: &Key, rounds: usize) {
        self.0.lock().insert(key.clone(), rounds);
    }
}

/// Looks at a side again and again, three times in all.
struct Sides(Arc<Rounds>);

impl Room<usize> for Sides {
    type View = usize;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<usize>, ObserveError> {
        Ok(Observation::View(self.0.0.lock().get(key).copied().unwrap_or_default()))
    }

    fn plan(rounds: &usize, _: Timestamp) -> Plan<usize> {
        let rounds = rounds + 1;
        Plan { requeue_after: (rounds < 3).then_some(PERIOD), ..Plan::default() }.with_note(rounds)
    }
}

/// What controllers are built from. Nobody listens where its clients would ask.
async fn runtime() -> Runtime {
    runtime_of("http://127.0.0.1:1").await
}

async fn runtime_of(server: &str) -> Runtime {
    let (metrics, clock): (Registry, SharedClock) =
        (Registry::new(), Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)));
    let connection = Connection::load(None, Some(server)).await.unwrap();
    let client_metrics = ClientMetrics::register(&metrics).unwrap();
    let clients = ClientBuilder::new(connection, ClientOptions::default(), client_metrics).await.unwrap();
    let source = Arc::new(clients.root("shared-informers"));
    let handle = tokio::runtime::Handle::current();
    Runtime {
        config: Config::default(),
        informers: Informers::new(source, InformersConfig::default(), handle, &metrics).unwrap(),
        events: EventBroadcaster::new(Arc::clone(&clock), EventMetrics::register(&metrics).unwrap()),
        observer: clients.root("observer"),
        discovery: Arc::new(Discovery::new(clients.root("discovery"))),
        clients,
        clock,
        zones: crate::zones::Zones::bundled(),
        queue_metrics: QueueMetrics::register(&metrics).unwrap(),
        reconcile_metrics: ReconcileMetrics::register(&metrics).unwrap(),
        pool: BlockingPool::inline(),
        watchdog: Watchdog::new(&metrics).unwrap(),
        room_metrics: RoomMetrics::new(metrics),
        pages: Arc::new(Router::new()),
        finishers: crate::executor::Finishers::default(),
        root_ca: None,
        report: Arc::new(Unreported),
        writes: None,
        expectations: ExpectationsRegistry::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_follows_no_object_begins_with_its_seeds() {
    let runtime = runtime().await;
    let mut instance = Instance::prepare(&DESCRIPTOR, &runtime).unwrap();
    let [work] = instance.loops() else { panic!("one loop") };
    let work = work.clone();
    assert_eq!(work.workers, 1, "it is serial");
    tokio::time::sleep(PERIOD).await;
    assert_eq!((work.stats().syncs(), work.queue().len()), (0, 0), "it has not started");
    instance.start(&CancellationToken::new()).await.unwrap();
    let began = tokio::time::Instant::now();
    for rounds in 1..=3 {
        while work.stats().syncs() < rounds * 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let passed = PERIOD * u32::try_from(rounds - 1).unwrap();
        let late = began.elapsed().checked_sub(passed);
        assert!(late.is_some_and(|late| late <= Duration::from_secs(1)), "{rounds}: {late:?}");
    }
    tokio::time::sleep(PERIOD * 3).await;
    assert_eq!(work.stats().syncs(), 6, "they remember");
    instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
}

#[tokio::test(start_paused = true)]
async fn running_controller_notices_a_wall_clock_that_was_set_forward() {
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let runtime = Runtime { clock: Arc::clone(&clock) as SharedClock, ..runtime().await };
    let mut instance = Instance::prepare(&DESCRIPTOR, &runtime).unwrap();
    let work = instance.loops()[0].clone();
    instance.start(&CancellationToken::new()).await.unwrap();
    work.queue().add_planned(Key::new("", "third"), Duration::from_hours(10));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(work.stats().syncs(), 2, "the seeds");
    clock.advance(Duration::from_hours(11));
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(work.stats().syncs(), 3);
    instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_loop_can_read_is_covered_by_its_expectations() {
    let runtime = runtime().await;
    for (descriptor, is_read) in [(&DESCRIPTOR, false), (&READING, true)] {
        let instance = Instance::prepare(descriptor, &runtime).unwrap();
        assert_eq!(instance.loops()[0].covers(&PODS), is_read);
        assert!(!instance.loops()[0].covers(&crate::api::kinds::SECRETS));
        instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_instance_of_a_serial_loop_compares_its_cache_first() {
    let runtime = runtime().await;
    let expectations = runtime.expectations.of("sides-controller", "sides", 0);
    let caches = Caches::new(Some(&PODS), Vec::new());
    for (descriptor, is_compared) in [(&DESCRIPTOR, false), (&UNIQUE, true), (&UNIQUE, true)] {
        let mut instance = Instance::prepare(descriptor, &runtime).unwrap();
        assert!(expectations.is_empty(), "it has not started");
        instance.start(&CancellationToken::new()).await.unwrap();
        let readiness = expectations.check(&Key::EMPTY, &caches);
        assert_eq!(matches!(readiness, Readiness::Unanswered(_)), is_compared, "{readiness:?}");
        instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
        expectations.met(&Key::EMPTY);
    }
}

/// A room that reads a pod from the API server.
struct ReadsLive;

impl Room for ReadsLive {
    type View = ();

    fn observe(&self, _: &Key, _: &[Failure], read: &Reads) -> Result<Observation<()>, ObserveError> {
        let pod = Key::new("ns", "pod");
        Ok(match read.object(&PODS, &pod) {
            None => Observation::Needs(vec![TEST_READ.of(Read::Object(&PODS, pod))]),
            Some(_) => Observation::Nothing,
        })
    }

    fn plan((): &(), _: Timestamp) -> Plan {
        Plan::default()
    }
}

static LIVE: Descriptor = descriptor(|_| {
    Ok(Built {
        loops: vec![Loop {
            queue: "live",
            kind: None,
            settings: LoopSettings { seeds: vec![Key::new("", "seed")], ..LoopSettings::default() },
            wake_ups: Vec::new(),
            reconcile: Arc::new(RoomAdapter::new(ReadsLive)),
        }],
    })
});

#[tokio::test(start_paused = true)]
async fn instance_that_stops_without_a_limit_waits_for_reconciles_in_flight() {
    // It takes connections and never answers: a request ends by its own timeout.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = Some(Duration::from_secs(1));
    for (grace, cut_off, expected) in
        [(second, None, Stop::Aborted), (None, second, Stop::Aborted), (None, None, Stop::Finished)]
    {
        let runtime = runtime_of(&format!("http://{}", server.local_addr().unwrap())).await;
        let mut instance = Instance::prepare(&LIVE, &runtime).unwrap();
        instance.start(&CancellationToken::new()).await.unwrap();
        let work = instance.loops()[0].clone();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(work.stats().syncs(), 0, "the reconcile is in flight");
        let began = tokio::time::Instant::now();
        let cut_off = async {
            match cut_off {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        assert_eq!(instance.stop(grace, cut_off).await, expected);
        let took = began.elapsed();
        match expected {
            Stop::Aborted => assert_eq!((took.as_secs(), work.stats().syncs()), (1, 0)),
            Stop::Finished => assert!(took > Duration::from_secs(2) && work.stats().syncs() == 1, "{took:?}"),
        }
    }
}
