//! A controller that panics over an object is contained: it goes on with all others, as other controllers do, health says so
//! while the probes pass, and the object is tried again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coxswain::manager::{Controller, Phase, supervise};
use coxswain_controllers::identity::{root_ca_certificate_publisher, serviceaccount};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::core::ConfigMap as CachedConfigMap;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::client::{
    ApiError, ClientBuilder, ClientMetrics, ClientOptions, Connection, Faults, ListQuery, ResponseBody,
    WatchQuery,
};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Loop, LoopSettings, Observation, ObserveError, Reads,
    Room, RoomAdapter, Runtime, Stop, wake,
};
use coxswain_machinery::informer::{InformersConfig, ListWatch, Lister};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::serve::{Detail, HealthCheck, HealthRegistry, Probe, Unobserved};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{ListPage, Message};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    ControlPlane, Options, by_depth, event_logger, eventually, faulty_clients, runtime, runtime_on, turn,
};

const LIMIT: Duration = Duration::from_mins(1);
const GRACE: Duration = Duration::from_secs(5);
/// The object on which the room panics.
const POISON: &str = "poison";

/// What the test and a room share. A descriptor has no state, so each is a static.
struct Shared {
    poisoned: AtomicBool,
    seen: Mutex<BTreeSet<String>>,
}

impl Shared {
    const fn new(poisoned: bool) -> Self {
        Self { poisoned: AtomicBool::new(poisoned), seen: Mutex::new(BTreeSet::new()) }
    }

    fn seen(&self) -> BTreeSet<String> {
        self.seen.lock().clone()
    }

    /// What was seen since the last time that all of `expected` had been, which is forgotten then.
    fn saw(&self, expected: &BTreeSet<String>) -> bool {
        let mut seen = self.seen.lock();
        let all = *seen == *expected;
        if all {
            seen.clear();
        }
        all
    }
}

/// Labels every ConfigMap that it sees, and panics on one.
struct Fragile {
    shared: &'static Shared,
    config_maps: Lister<CachedConfigMap>,
}

impl Room for Fragile {
    type View = Arc<CachedConfigMap>;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<Self::View>, ObserveError> {
        let Some(config_map) = self.config_maps.get(key) else { return Ok(Observation::Nothing) };
        assert!(
            key.name != POISON || !self.shared.poisoned.load(Ordering::SeqCst),
            "cannot bear {}",
            key.name
        );
        self.shared.seen.lock().insert(key.name.to_string());
        Ok(Observation::View(config_map))
    }

    fn plan(view: &Self::View, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        // Those of the scripted server have no labels and are not to be written.
        if view.metadata.labels.get("seen").is_some_and(|seen| seen == "no") {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "seen": "yes" } } }));
            let write = Write::new(&CONFIG_MAPS, Key::of(&view.metadata), Verb::Patch(patch));
            plan.steps.push(Step::Write(write));
        }
        plan
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every room's build")]
fn fragile(build: &Build<'_>, shared: &'static Shared, workers: usize) -> Result<Built, BuildError> {
    let config_maps = build.watch::<CachedConfigMap>(&CONFIG_MAPS);
    let room = Fragile { shared, config_maps: config_maps.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "fragile",
            kind: Some(&CONFIG_MAPS),
            settings: LoopSettings { workers, ..LoopSettings::default() },
            wake_ups: vec![config_maps.wakes(wake::existing())],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

const fn descriptor(name: &'static str, build: fn(&Build<'_>) -> Result<Built, BuildError>) -> Descriptor {
    Descriptor {
        name,
        aliases: &[],
        description: "Serves a test.",
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

/// Controllers under supervision.
struct Supervised {
    runtime: Arc<Runtime>,
    tasks: JoinSet<Stop>,
    stop: CancellationToken,
}

impl Supervised {
    fn new(runtime: Runtime) -> Self {
        Self { runtime: Arc::new(runtime), tasks: JoinSet::new(), stop: CancellationToken::new() }
    }

    fn start(&mut self, descriptor: &'static Descriptor) -> Arc<Controller> {
        let controller = Arc::new(Controller::new(descriptor, Phase::Standby, true, event_logger()));
        let (supervised, runtime) = (Arc::clone(&controller), Arc::clone(&self.runtime));
        self.tasks.spawn(supervise(supervised, runtime, Some(GRACE), self.stop.clone()));
        controller.wish(|wish| wish.lead = true);
        controller
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
        self.runtime.events.shutdown(Duration::ZERO).await;
        self.runtime.clients.shutdown().await;
        assert!(self.runtime.informers.stats().is_empty(), "informers that nobody holds");
        self.runtime.informers.shutdown().await;
    }
}

/// A server with a few ConfigMaps, whose watches say nothing.
struct Still(Vec<&'static str>);

impl ListWatch for Still {
    fn list(&self, _: &'static Kind, _: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>> {
        let encoded = |name: &&'static str| {
            let metadata = ObjectMeta {
                name: (*name).into(),
                namespace: "ns".into(),
                uid: (*name).into(),
                resource_version: "5".into(),
                ..ObjectMeta::default()
            };
            CachedConfigMap { metadata, ..CachedConfigMap::default() }.to_bytes().into()
        };
        let items = self.0.iter().map(encoded).collect();
        let page = ListPage { items, resource_version: "5".to_owned(), continue_token: String::new() };
        Box::pin(async { Ok(page) })
    }

    fn watch(&self, _: &'static Kind, _: WatchQuery) -> BoxFuture<'_, Result<ResponseBody, ApiError>> {
        let silence = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>();
        let body = http_body_util::StreamBody::new(silence).map_err(Into::into).boxed_unsync();
        Box::pin(async { Ok(body) })
    }
}

async fn unused_clients() -> ClientBuilder {
    let connection = Connection::load(None, Some("http://127.0.0.1:9")).await.expect("an address");
    let metrics = ClientMetrics::register(&Registry::new()).expect("metrics");
    ClientBuilder::new(connection, ClientOptions::default(), metrics).await.expect("clients")
}

/// Waits in paused time.
async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: never");
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

static LONG_ILL: Shared = Shared::new(true);
static LONG_WELL: Shared = Shared::new(false);
static FRAGILE: Descriptor = descriptor("fragile-controller", |build| fragile(build, &LONG_ILL, 1));
static STEADY: Descriptor = descriptor("steady-controller", |build| fragile(build, &LONG_WELL, 1));

/// What the probes say of a controller; all of them pass.
fn probed(controller: &Arc<Controller>) -> String {
    let health = HealthRegistry::new();
    health.add(Arc::clone(controller) as _);
    let reports = Probe::ALL.map(|probe| health.report(probe, &[], Detail::Remarks, &Unobserved));
    assert!(reports.iter().all(|report| report.passed), "{reports:?}");
    reports[0].text.clone()
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_panics_over_one_object_concern_no_other() {
    let names = vec!["a", "b", "c", "d", POISON, "e", "f", "g", "h"];
    let all: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let healthy: BTreeSet<String> = all.iter().filter(|name| *name != POISON).cloned().collect();
    let before = alive();
    let config = InformersConfig { watch_list: false, ..InformersConfig::default() };
    let mut supervised = Supervised::new(runtime(unused_clients().await, Arc::new(Still(names)), config));
    let steady = supervised.start(&STEADY);
    wait_for("the steady one has seen all", || LONG_WELL.seen() == all).await;
    let fragile = supervised.start(&FRAGILE);
    wait_for("the others have had their turn", || LONG_ILL.saw(&healthy)).await;
    wait_for("a panic", || fragile.degraded().is_some()).await;

    let (tasks, began) = (alive(), Instant::now());
    while began.elapsed() < Duration::from_mins(10) {
        let degraded = fragile.degraded().expect("health says so");
        assert_eq!(degraded, format!("panicked on ns/{POISON}: cannot bear {POISON}"));
        assert_eq!(
            probed(&fragile),
            "[+]fragile-controller ok, degraded: reason withheld\nhealthz check passed\n"
        );
        assert_eq!(probed(&steady), "[+]steady-controller ok\nhealthz check passed\n");
        for controller in [&fragile, &steady] {
            assert_eq!((controller.phase(), controller.restarts()), (Phase::Running, 0));
        }
        assert_eq!(LONG_ILL.seen(), BTreeSet::new(), "nothing is reconciled anew for it");
        assert_eq!(alive(), tasks);
        let informers = supervised.runtime.informers.stats();
        assert_eq!((informers.len(), informers[0].handlers, informers[0].restarts), (1, 2, 0));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    LONG_ILL.poisoned.store(false, Ordering::SeqCst);
    wait_for("it is tried again", || fragile.degraded().is_none()).await;
    assert_eq!(LONG_ILL.seen(), BTreeSet::from([POISON.to_owned()]));
    assert!(began.elapsed() < Duration::from_mins(40), "after the longest backoff");
    supervised.stop().await;
    wait_for("no task is left", || alive() == before).await;
}

static REAL_ILL: Shared = Shared::new(true);
static REAL: Descriptor = descriptor("fragile-controller", |build| fragile(build, &REAL_ILL, 2));
static ACCOUNTS: Descriptor = serviceaccount::DESCRIPTOR;
static ROOT_CA: Descriptor = root_ca_certificate_publisher::DESCRIPTOR;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_and_it_recovers() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--scheduler=false", "--kwok=false"] });
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("panics").await;
    let config_map = async |name: &str| {
        let _: ConfigMap =
            namespace.create(json!({ "metadata": { "name": name, "labels": { "seen": "no" } } })).await;
    };
    let touch = async |value: &str| {
        let patch = kube::api::Patch::Merge(json!({ "data": { "touched": value } }));
        let config_maps = namespace.api::<ConfigMap>();
        config_maps.patch(POISON, &kube::api::PatchParams::default(), &patch).await.expect("patched");
    };
    let is_labeled = async |name: &str| {
        let found = namespace.api::<ConfigMap>().get(name).await.expect("the ConfigMap");
        found.metadata.labels.unwrap_or_default()["seen"] == "yes"
    };
    config_map("before").await;
    config_map(POISON).await;
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &Faults::new(0)).await;
    let mut supervised = Supervised::new(runtime_on(clients));
    let fragile = supervised.start(&REAL);
    let others = [supervised.start(&ACCOUNTS), supervised.start(&ROOT_CA)];
    eventually("it has panicked", LIMIT, async || fragile.degraded().is_some()).await;

    let later = cluster.namespace("later").await;
    config_map("after").await;
    let others_go_on = async || {
        let account = later.api::<ServiceAccount>().get_opt("default").await.expect("an answer");
        let bundle = later.api::<ConfigMap>().get_opt("kube-root-ca.crt").await.expect("an answer");
        account.is_some() && bundle.is_some()
    };
    eventually("the others go on", LIMIT, others_go_on).await;
    eventually("what it can bear is done", LIMIT, async || {
        is_labeled("before").await && is_labeled("after").await
    })
    .await;
    // For a while others come, and the object itself changes: each change is another try.
    let (began, last) = (Instant::now(), by_depth(Duration::from_secs(3), Duration::from_mins(10)));
    let mut rounds = 0;
    while rounds == 0 || began.elapsed() < last {
        let name = format!("round-{rounds}");
        config_map(&name).await;
        touch(&name).await;
        eventually("each is served", LIMIT, async || is_labeled(&name).await).await;
        assert!(fragile.degraded().is_some());
        for each in others.iter().chain([&fragile]) {
            assert_eq!((each.check(), each.phase(), each.restarts()), (Ok(()), Phase::Running, 0));
            probed(each);
        }
        rounds += 1;
    }
    assert!(!is_labeled(POISON).await);
    println!("{rounds} others were served in {:?}", began.elapsed());

    REAL_ILL.poisoned.store(false, Ordering::SeqCst);
    touch("at last").await;
    eventually("it recovers", LIMIT, async || is_labeled(POISON).await).await;
    eventually("it is well", LIMIT, async || fragile.degraded().is_none()).await;
    assert_eq!((fragile.phase(), fragile.restarts()), (Phase::Running, 0));
    supervised.stop().await;
}
