//! CacheSource under fire: watches cut a hundred times, versions that expire by either route, refusals, silence, an API
//! server that is restarted and killed, while objects come and go. So its control plane is its own: other tests would not
//! survive there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::api::kinds::{
    CONFIG_MAPS, LEASES, NAMESPACES, PODS, REPLICA_SETS, SECRETS, SERVICE_ACCOUNTS,
};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::client::{Fault, FaultRule, Faults};
use coxswain_machinery::informer::{
    Delta, InformerHandle, InformerStats, Informers, InformersConfig, NewHandler, WatchTiming,
};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::Registry;
use futures::TryStreamExt;
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::churn::Churn;
use crate::harness::{ControlPlane, Namespace, Options, eventually, faulty_clients, turn, until};

const LIMIT: Duration = Duration::from_secs(90);

/// What is watched, each as a stream and as pages.
const WATCHED: [(&Kind, Option<&str>); 8] = [
    (&PODS, None),
    (&REPLICA_SETS, None),
    (&CONFIG_MAPS, None),
    (&SECRETS, None),
    (&SECRETS, Some("type=Opaque")),
    (&SERVICE_ACCOUNTS, None),
    (&NAMESPACES, None),
    (&LEASES, None),
];

/// An informer, and a handler that keeps an account of what it hears.
struct Watched {
    handle: InformerHandle,
    _registration: NewHandler,
    account: Arc<Mutex<Account>>,
}

/// UID and resource version.
type State = (String, String);

/// What a handler made of what it heard.
#[derive(Default)]
struct Account {
    view: HashMap<String, State>,
    heard: Vec<(String, String)>,
    complaints: Vec<String>,
}

fn state(object: &AnyObject) -> State {
    (object.meta().uid.to_string(), object.meta().resource_version.to_string())
}

impl Account {
    /// Every change must begin where the one before it ended.
    fn hear(&mut self, delta: Delta<'_>) {
        let Some(latest) = delta.latest() else { return };
        let key = format!("{}/{}", latest.meta().namespace, latest.meta().name);
        let before = self.view.get(&key);
        let fits = match (delta.old, delta.new) {
            (None, _) => before.is_none(),
            (Some(old), Some(_)) => before == Some(&state(old)),
            // A deletion shows the final state, which is newer.
            (Some(old), None) => before.is_some_and(|(uid, _)| *uid == *old.meta().uid.to_str()),
        };
        if !fits {
            self.complaints.push(format!("{key}: told of {delta:?} with {before:?} before"));
        }
        let sign = match (delta.old, delta.new) {
            (None, _) => '+',
            (Some(_), Some(_)) => '~',
            (Some(_), None) => '-',
        };
        self.heard.push((key.clone(), format!("{sign}{}", latest.meta().resource_version)));
        match delta.new {
            Some(new) => self.view.insert(key, state(new)),
            None => self.view.remove(&key),
        };
    }
}

impl Watched {
    fn new(informers: &Informers, kind: &'static Kind, selector: Option<&'static str>) -> Self {
        let handle = informers.acquire(kind, selector);
        let account: Arc<Mutex<Account>> = Arc::default();
        let heard = Arc::clone(&account);
        let registration =
            handle.add_handler("account", Arc::new(move |delta: Delta<'_>| heard.lock().hear(delta)));
        Self { handle, _registration: registration, account }
    }

    fn stats(&self) -> InformerStats {
        self.handle.stats()
    }

    /// The cache, if the handler's view is the same.
    fn cache(&self) -> Option<BTreeMap<String, String>> {
        let cache: BTreeMap<_, _> = self.handle.store().list().iter().map(state).collect();
        let view: BTreeMap<_, _> = self.account.lock().view.values().cloned().collect();
        (cache == view).then_some(cache)
    }

    /// What was heard of one namespace.
    fn heard(&self, namespace: &str) -> Vec<(String, String)> {
        let prefix = format!("{namespace}/");
        self.account.lock().heard.iter().filter(|(key, _)| key.starts_with(&prefix)).cloned().collect()
    }
}

/// All objects, read by somebody else: UID → resource version.
async fn listed(client: &Client, kind: &Kind, selector: Option<&str>) -> BTreeMap<String, String> {
    let resource = ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
        plural: kind.resource.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let query = ListParams { field_selector: selector.map(str::to_owned), ..ListParams::default() };
    let list = api.list_metadata(&query).await.expect("a list");
    let state = |meta: kube::api::ObjectMeta| {
        (meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default())
    };
    list.items.into_iter().map(|object| state(object.metadata)).collect()
}

/// Watches that the API server serves, by resource.
async fn served_watches(client: &Client) -> BTreeMap<String, i64> {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("the API server's metrics");
    let mut counts: BTreeMap<String, i64> =
        WATCHED.iter().map(|(kind, _)| (kind.resource.to_owned(), 0)).collect();
    let lines = text.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{"));
    for line in lines.filter(|line| line.contains("verb=\"WATCH\"")) {
        let resource = line.split("resource=\"").nth(1).and_then(|rest| rest.split('"').next());
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        if let (Some(resource), Some(count)) = (resource, count)
            && let Some(sum) = counts.get_mut(resource)
        {
            *sum += count as i64;
        }
    }
    counts
}

/// Informers on a runtime of their own, so that what they leave behind can be counted.
struct Bench {
    plane: Arc<ControlPlane>,
    client: Client,
    namespace: Namespace,
    faults: Faults,
    runtime: Runtime,
    informers: Vec<Informers>,
    watched: Vec<Watched>,
    watches_before: BTreeMap<String, i64>,
}

impl Bench {
    async fn start() -> Self {
        let plane = Arc::new(ControlPlane::start(&Options { nodes: 2, args: Vec::new() }));
        let cluster = plane.cluster().await;
        let namespace = cluster.namespace("caches").await;
        namespace.default_account().await;
        let client = cluster.client;
        let watches_before = served_watches(&client).await;
        let faults = Faults::new(11);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (suffering, kubeconfig) = (faults.clone(), plane.report.kubeconfigs["admin"].clone());
        let clients = runtime.spawn(async move { faulty_clients(&kubeconfig, &suffering).await });
        let clients = clients.await.expect("clients");
        let informers: Vec<Informers> = [true, false]
            .into_iter()
            .map(|watch_list| {
                let config = InformersConfig {
                    watch_list,
                    timing: WatchTiming {
                        seconds: 5..=6,
                        margin: Duration::from_secs(1),
                        initial: Duration::from_secs(3),
                        pause: Duration::from_secs(1),
                    },
                    ..InformersConfig::default()
                };
                let source = Arc::new(clients.root("informers"));
                Informers::new(source, config, runtime.handle().clone(), &Registry::new()).expect("informers")
            })
            .collect();
        let watched = informers
            .iter()
            .flat_map(|set| WATCHED.map(|(kind, selector)| Watched::new(set, kind, selector)))
            .collect();
        let bench = Self { plane, client, namespace, faults, runtime, informers, watched, watches_before };
        for each in &bench.watched {
            each.handle.wait_synced().await.expect("a list");
        }
        bench
    }

    fn stats(&self) -> Vec<InformerStats> {
        self.watched.iter().map(Watched::stats).collect()
    }

    fn sum(&self, count: impl Fn(&InformerStats) -> u64) -> u64 {
        self.watched.iter().map(|each| count(&each.stats())).sum()
    }

    /// Does something to the API server while others work.
    async fn operate(&self, operation: &'static str) {
        let plane = Arc::clone(&self.plane);
        tokio::task::spawn_blocking(move || plane.operate(operation, "kube-apiserver")).await.expect("done");
    }

    /// All informers watch again; the caches are what somebody else lists, and so is what the handlers made of what
    /// they heard.
    async fn agrees(&self) {
        for each in &self.watched {
            let stats = each.stats();
            let (kind, selector) = (stats.kind, stats.field_selector.as_deref());
            let watches = async || each.stats().watch_age.is_some();
            eventually(&format!("a watch of {kind} {selector:?}"), LIMIT, watches).await;
            eventually(&format!("{kind} {selector:?} as listed"), LIMIT, async || {
                let fresh = listed(&self.client, kind, selector).await;
                each.cache().is_some_and(|cache| cache == fresh)
            })
            .await;
            assert!(!each.handle.store().is_empty(), "{kind}: nothing was watched");
            let complaints = std::mem::take(&mut each.account.lock().complaints);
            assert!(complaints.is_empty(), "{kind}: {complaints:#?}");
            assert_eq!(stats.restarts, 0, "{kind}: {:?}", stats.last_error);
        }
    }

    /// Nothing is left of informers that nobody holds: no task here, no watch there.
    async fn ends(self) {
        let Self { client, informers, watched, runtime, watches_before, plane, .. } = self;
        for Watched { handle, .. } in watched {
            handle.release().await;
        }
        assert!(informers.iter().all(|set| set.stats().is_empty()), "informers that nobody holds");
        drop(informers);
        until(
            "no watch left at the API server",
            LIMIT,
            async || served_watches(&client).await,
            |now| *now == watches_before,
        )
        .await;
        let tasks = async || runtime.metrics().num_alive_tasks();
        until("no task left", LIMIT, tasks, |alive| *alive == 0).await;
        runtime.shutdown_background();
        drop(plane);
    }
}

/// What somebody else sees of the ConfigMaps, event by event, in the form of [`Account::heard`].
async fn witness(namespace: &Namespace, from: &str, told: mpsc::Sender<(String, String)>) {
    let api: Api<ConfigMap> = namespace.api();
    let query = WatchParams::default().timeout(290);
    let mut events = std::pin::pin!(api.watch(&query, from).await.expect("a watch"));
    while let Some(event) = events.try_next().await.expect("an event") {
        let (sign, object) = match event {
            WatchEvent::Added(object) => ('+', object),
            WatchEvent::Modified(object) => ('~', object),
            WatchEvent::Deleted(object) => ('-', object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => panic!("{error:?}"),
        };
        let key = format!("{}/{}", namespace.name, object.metadata.name.unwrap_or_default());
        let version = object.metadata.resource_version.unwrap_or_default();
        told.send((key, format!("{sign}{version}"))).await.expect("somebody listens");
    }
}

fn status(code: StatusCode, reason: &'static str, retry_after: Option<u32>) -> FaultRule {
    FaultRule::new(Fault::Status { code, reason, retry_after }).watch(true)
}

/// A watch is cut a hundred times and more, in every way but those that need a new list. No event is lost and none
/// comes twice.
async fn cuts(bench: &Bench, churn: &mut Churn) {
    let from = listed_version(&bench.namespace).await;
    let (tell, mut told) = mpsc::channel(10_000);
    let cuts_before = bench.sum(|stats| stats.reconnects);
    for after in [0, 3, 400, 2500, 9000] {
        bench.faults.add(FaultRule::new(Fault::Cut { after }).watch(true).probability(0.2));
    }
    bench.faults.add(FaultRule::new(Fault::Freeze { after: 1200 }).watch(true).probability(0.1));
    bench.faults.add(FaultRule::new(Fault::Drop).watch(true).probability(0.2));
    bench.faults.add(status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", None).probability(0.1));
    bench.faults.add(status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", Some(1)).probability(0.2));
    let enough = eventually("a hundred watches cut", LIMIT, async || {
        bench.faults.hits() >= 130
            && bench.sum(|stats| stats.reconnects) >= cuts_before + 100
            && bench.watched.iter().all(|each| each.stats().reconnects >= 3)
    });
    let mut witnessed = Vec::new();
    tokio::select! {
        biased;
        () = churn.during(enough) => {}
        () = witness(&bench.namespace, &from, tell) => panic!("the witness' watch ended"),
    }
    told.close();
    while let Some(event) = told.recv().await {
        witnessed.push(event);
    }
    bench.faults.clear();
    bench.agrees().await;
    assert!(witnessed.len() > 50, "only {} changes of ConfigMaps", witnessed.len());
    for each in bench.watched.iter().filter(|each| each.stats().kind == &CONFIG_MAPS) {
        let heard = each.heard(&bench.namespace.name);
        // The witness went a moment before the last events.
        assert_eq!(heard[..witnessed.len()], witnessed, "as the witness saw it");
    }
    assert_eq!(bench.sum(|stats| stats.relists), 0, "a watch that is cut needs no list");
}

async fn listed_version(namespace: &Namespace) -> String {
    let list = namespace.api::<ConfigMap>().list(&ListParams::default()).await.expect("a list");
    assert!(list.items.is_empty(), "nothing has happened yet");
    list.metadata.resource_version.expect("a version")
}

/// The version to watch from has expired, said by the answer's status.
async fn expired_by_status(bench: &Bench, churn: &mut Churn) {
    bench.faults.add(status(StatusCode::GONE, "Expired", None).probability(0.6));
    let relisted = until(
        "every informer has listed again",
        LIMIT,
        async || bench.stats(),
        |stats| stats.iter().all(|stats| stats.relists >= 1),
    );
    churn.during(relisted).await;
    bench.faults.clear();
    bench.agrees().await;
}

/// The version to watch from has expired, said within the stream: the API server is restarted behind the informers'
/// backs, and its new watch cache begins later than where they were.
async fn expired_in_the_stream(bench: &Bench, churn: &mut Churn) {
    bench.faults.add(FaultRule::new(Fault::Drop).watch(true));
    let blind = eventually("every watch has ended", LIMIT, async || {
        bench.watched.iter().all(|each| each.stats().watch_age.is_none())
    });
    churn.during(blind).await;
    let lists: Vec<u64> = bench.watched.iter().map(|each| each.stats().relists).collect();
    churn.during(bench.operate("restart")).await;
    bench.faults.clear();
    let relisted = until(
        "every informer has listed again",
        LIMIT,
        async || bench.stats(),
        |stats| stats.iter().zip(&lists).all(|(stats, before)| stats.relists > *before),
    );
    for stats in churn.during(relisted).await {
        let error = stats.last_error.unwrap_or_default();
        assert!(error.contains("too old resource version"), "{}: {error}", stats.kind);
    }
    bench.agrees().await;
}

/// The API server goes away and comes back, politely and not, while watches are cut all the same.
async fn restarts(bench: &Bench, churn: &mut Churn) {
    bench.faults.add(FaultRule::new(Fault::Cut { after: 600 }).watch(true).probability(0.2));
    bench.faults.add(FaultRule::new(Fault::Drop).watch(false).probability(0.2));
    let done = async {
        bench.operate("restart").await;
        bench.operate("kill").await;
        bench.operate("start").await;
    };
    churn.during(done).await;
    bench.faults.clear();
    bench.agrees().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_equal_a_fresh_list_whatever_happens() {
    let _turn = turn().await;
    let bench = Bench::start().await;
    let mut churn = Churn::new(&bench.client, &bench.namespace.name);
    cuts(&bench, &mut churn).await;
    expired_by_status(&bench, &mut churn).await;
    expired_in_the_stream(&bench, &mut churn).await;
    restarts(&bench, &mut churn).await;
    assert!(churn.count() > 500, "only {} changes", churn.count());
    drop(churn);
    bench.ends().await;
}
