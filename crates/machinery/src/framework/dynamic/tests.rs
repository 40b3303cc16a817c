//! Watches that come and go, against a scripted discovery and source, in paused time.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::api::kinds::PODS;
use crate::api::meta::{ObjectMeta, PartialObjectMetadata};
use crate::api::pod::Pod;
use crate::client::{ApiClient, BoxError, ListQuery, ResponseBody, WatchQuery};
use crate::informer::{InformersConfig, ListWatch};
use crate::queue::QueueMetrics;
use crate::telemetry::Registry;
use crate::telemetry::tracing::Tracing;
use crate::wire::{ListPage, Message};

/// An API server: its resources as `group/version/resource`, which can't be told, and its objects' names by resource.
#[derive(Default)]
struct Cluster {
    resources: Mutex<BTreeSet<&'static str>>,
    stale: Mutex<BTreeSet<&'static str>>,
    down: Mutex<bool>,
    objects: Mutex<BTreeMap<&'static str, Vec<&'static str>>>,
    /// Resources of which lists never come.
    slow: Mutex<BTreeSet<&'static str>>,
    watched: Mutex<Vec<String>>,
}

impl Cluster {
    fn client(self: &Arc<Self>) -> ApiClient {
        let cluster = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let answer = (!*cluster.down.lock()).then(|| cluster.discovery(request.uri().path()));
            async move {
                let body = Full::new(Bytes::from(answer.ok_or("the connection broke")?.to_string()));
                Ok::<_, BoxError>(Response::new(body.map_err(BoxError::from).boxed_unsync()))
            }
        });
        ApiClient::new(BoxCloneSyncService::new(service), "test")
    }

    fn discovery(&self, path: &str) -> Value {
        let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
        for each in self.resources.lock().iter() {
            let [group, version, resource] = each.split('/').collect::<Vec<_>>()[..] else {
                panic!("{each}")
            };
            if group.is_empty() == (path == "/api") {
                groups.entry(group).or_default().entry(version).or_default().push(json!({
                    "resource": resource, "responseKind": {"kind": resource.to_uppercase()}, "scope": "Namespaced",
                    "verbs": ["list", "watch", "delete"],
                }));
            }
        }
        let stale = self.stale.lock();
        let versions = |group: &str, held: BTreeMap<&str, Vec<Value>>| {
            let version = |(version, resources): (&str, Vec<Value>)| {
                let is_stale = stale.contains(format!("{group}/{version}").as_str());
                json!({"version": version, "freshness": if is_stale { "Stale" } else { "Current" },
                       "resources": resources})
            };
            held.into_iter().map(version).collect::<Vec<_>>()
        };
        let items = groups
            .into_iter()
            .map(|(group, held)| json!({"metadata": {"name": group}, "versions": versions(group, held)}));
        json!({"kind": "APIGroupDiscoveryList", "items": items.collect::<Vec<_>>()})
    }
}

impl ListWatch for Cluster {
    fn list(
        &self,
        kind: &'static Kind,
        _: ListQuery,
    ) -> BoxFuture<'_, Result<ListPage, crate::client::ApiError>> {
        Box::pin(async move {
            if self.slow.lock().contains(kind.resource) {
                return std::future::pending().await;
            }
            let object = |name: &&str| {
                let metadata = ObjectMeta {
                    name: (*name).into(),
                    namespace: "ns".into(),
                    uid: format!("{name}-uid").into(),
                    resource_version: "5".into(),
                    ..ObjectMeta::default()
                };
                if kind.metadata_only {
                    PartialObjectMetadata { metadata }.to_bytes().into()
                } else {
                    Pod { metadata, ..Pod::default() }.to_bytes().into()
                }
            };
            let items = self.objects.lock().get(kind.resource).into_iter().flatten().map(object).collect();
            Ok(ListPage { items, resource_version: "9".to_owned(), continue_token: String::new() })
        })
    }

    fn watch(
        &self,
        kind: &'static Kind,
        _: WatchQuery,
    ) -> BoxFuture<'_, Result<ResponseBody, crate::client::ApiError>> {
        self.watched.lock().push(kind.to_string());
        Box::pin(async { Ok(BodyExt::boxed_unsync(StreamBody::new(futures::stream::pending()))) })
    }
}

/// Wants all but secrets, and writes down what it hears.
#[derive(Default)]
struct Ears {
    heard: Mutex<Vec<String>>,
    /// The watches that have shown all objects.
    synced: Mutex<Vec<String>>,
    /// Whether pods are to be watched in full.
    reads_pods: Mutex<bool>,
}

impl DynamicRoom for Ears {
    fn wants(&self, resource: &ApiResource) -> bool {
        resource.resource != "secrets" && resource.supports(&["delete"])
    }

    fn in_full(&self, kind: &'static Kind) -> Option<&'static Kind> {
        (*self.reads_pods.lock() && kind.gvr() == PODS.gvr()).then_some(&PODS)
    }

    fn changed(&self, kind: &'static Kind, delta: Delta<'_>, enqueue: Enqueue<'_>) {
        assert!(kind.metadata_only);
        let sign = if delta.new.is_some() { '+' } else { '-' };
        let name = &delta.latest().unwrap().meta().name;
        self.heard.lock().push(format!("{sign}{} {}/{name}", kind.resource, kind.version));
        enqueue("work", Key::new("", name.clone()));
    }

    fn forgotten(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        self.heard.lock().push(format!("forgot {}/{}", kind.resource, kind.version));
        enqueue("work", Key::new("", kind.resource));
    }

    fn synced(&self, kind: &'static Kind, _: Enqueue<'_>) {
        self.synced.lock().push(format!("{}/{}", kind.resource, kind.version));
    }

    fn failed(&self, _: &str) {
        self.heard.lock().push("failed".to_owned());
    }
}

struct Bench {
    cluster: Arc<Cluster>,
    ears: Arc<Ears>,
    informers: Informers,
    discovery: Arc<Discovery>,
    queue: Arc<WorkQueue<Key>>,
    causes: Arc<Causes>,
    supervisor: Arc<Supervisor>,
    tasks: tokio::task::JoinSet<()>,
}

impl Bench {
    fn new(resources: &[&'static str], objects: &[(&'static str, &[&'static str])]) -> Self {
        let cluster = Arc::new(Cluster::default());
        cluster.resources.lock().extend(resources);
        cluster.objects.lock().extend(objects.iter().map(|(kind, names)| (*kind, names.to_vec())));
        let registry = Registry::new();
        let config = InformersConfig { watch_list: false, ..InformersConfig::default() };
        let handle = tokio::runtime::Handle::current();
        let informers = Informers::new(Arc::clone(&cluster) as _, config, handle, &registry).unwrap();
        let discovery = Arc::new(Discovery::new(cluster.client()));
        let ears = Arc::new(Ears::default());
        let queue = Arc::new(WorkQueue::new("work", &QueueMetrics::register(&registry).unwrap()));
        let causes = Arc::<Causes>::default();
        let supervisor = Arc::new(Supervisor::new(
            "test-controller",
            (Arc::clone(&ears) as _, Arc::default()),
            vec![QueueOf { name: "work", queue: Arc::clone(&queue), causes: Arc::clone(&causes) }],
            &informers,
            &discovery,
        ));
        let tasks = tokio::task::JoinSet::new();
        Self { cluster, ears, informers, discovery, queue, causes, supervisor, tasks }
    }

    async fn start(&mut self) {
        self.tasks.spawn(Arc::clone(&self.supervisor).run());
        self.supervisor.settled().await;
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.ears.heard.lock())
    }

    /// Lets discovery be asked anew, and waits until the room has heard this much.
    async fn reset(&self, heard: usize) -> Vec<String> {
        self.discovery.invalidate();
        for _ in 0..1000 {
            sleep(Duration::from_millis(100)).await;
            if heard > 0 && self.ears.heard.lock().len() >= heard {
                break;
            }
        }
        self.heard()
    }

    fn kinds(&self) -> Vec<String> {
        let kinds = self.supervisor.watches().kinds();
        kinds.iter().map(|(kind, synced)| format!("{kind} {} {synced}", kind.version)).collect()
    }

    fn informers(&self) -> Vec<String> {
        self.informers.stats().iter().map(|held| format!("{} {}", held.kind, held.handlers)).collect()
    }

    async fn stop(mut self) {
        self.supervisor.stop();
        while self.tasks.join_next().await.is_some() {}
        self.supervisor.release().await;
        assert_eq!(self.supervisor.watches().kinds(), []);
        assert_eq!(self.informers.stats().len(), 0, "no informer is left");
        assert_eq!(Arc::strong_count(&self.ears), 2, "no handler is left");
        self.informers.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_watched_and_told_of_before_work_begins() {
    let mut bench =
        Bench::new(&["/v1/pods", "/v1/secrets", "batch/v1/jobs"], &[("pods", &["a"]), ("secrets", &["s"])]);
    bench.start().await;
    assert_eq!(bench.heard(), ["+pods v1/a"]);
    assert_eq!(bench.kinds(), ["pods v1 true", "jobs.batch v1 true"]);
    assert_eq!(*bench.queue.get().await.unwrap().key(), Key::new("", "a"));
    let watches = bench.supervisor.watches();
    let jobs = watches.kind_of("batch/v1", "JOBS").unwrap();
    assert!(jobs.metadata_only && watches.is_synced(jobs));
    assert!(watches.kind_of("batch/v1", "Nothing").unwrap_err().contains("no kind"));
    assert!(!watches.is_synced(watches.kind_of("v1", "SECRETS").unwrap()), "served and not watched");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn resources_come_and_go() {
    let mut bench = Bench::new(&["/v1/pods"], &[("widgets", &["w"])]);
    bench.start().await;
    for _ in 0..3 {
        bench.cluster.resources.lock().insert("example.com/v1/widgets");
        assert_eq!(bench.reset(1).await, ["+widgets v1/w"]);
        assert_eq!(bench.informers(), ["pods 1", "widgets.example.com 1"]);
        bench.cluster.resources.lock().remove("example.com/v1/widgets");
        assert_eq!(bench.reset(1).await, ["forgot widgets/v1"]);
        assert_eq!(bench.informers(), ["pods 1"]);
    }
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn group_that_returns_settles_until_its_watches_have_synced_or_30_seconds() {
    let mut bench = Bench::new(&["/v1/pods"], &[("widgets", &["w"])]);
    bench.start().await;
    let settles = || ["example.com", ""].map(|group| bench.supervisor.watches().is_settling(group));
    assert_eq!(settles(), [false, false]);
    bench.cluster.slow.lock().insert("gears");
    bench.cluster.resources.lock().extend(["example.com/v1/gears", "example.com/v1/widgets"]);
    bench.discovery.invalidate();
    while bench.ears.heard.lock().is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(bench.kinds().last().unwrap(), "widgets.example.com v1 true");
    assert_eq!(settles(), [true, false], "gears have not synced");
    sleep(SETTLE_WITHIN).await;
    assert_eq!(settles(), [false, false], "a watch that never syncs is not waited for");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_version_takes_over_when_the_old_one_has_ended() {
    let mut bench = Bench::new(&["example.com/v2/widgets"], &[("widgets", &["w"])]);
    bench.start().await;
    assert_eq!(bench.heard(), ["+widgets v2/w"]);
    // The server names what it prefers first.
    bench.cluster.resources.lock().insert("example.com/v1/widgets");
    assert_eq!(bench.reset(2).await, ["forgot widgets/v2", "+widgets v1/w"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_room_hears_when_another_version_has_shown_all_objects() {
    let mut bench = Bench::new(&["example.com/v2/widgets", "/v1/pods"], &[("widgets", &["w"])]);
    bench.start().await;
    let synced = || std::mem::take(&mut *bench.ears.synced.lock());
    assert_eq!(synced(), ["pods/v1", "widgets/v2"]);
    assert_eq!(bench.heard(), ["+widgets v2/w"]);
    let old = bench.supervisor.watches().kind_of("example.com/v2", "WIDGETS").unwrap();
    bench.cluster.slow.lock().insert("widgets");
    bench.cluster.resources.lock().insert("example.com/v1/widgets");
    bench.cluster.resources.lock().remove("example.com/v2/widgets");
    assert_eq!(bench.reset(1).await, ["forgot widgets/v2"]);
    bench.reset(0).await;
    assert_eq!(synced(), [""; 0], "the list is on its way");
    let served = bench.supervisor.watches().served_row(old).unwrap().unwrap();
    assert_eq!(served.version, "v1");
    bench.cluster.slow.lock().clear();
    bench.cluster.resources.lock().remove("example.com/v1/widgets");
    bench.reset(1).await;
    assert_eq!(bench.supervisor.watches().served_row(old), Ok(None));
    bench.cluster.stale.lock().insert("example.com/v1");
    bench.cluster.resources.lock().insert("example.com/v1/gears");
    bench.reset(0).await;
    assert!(
        bench.supervisor.watches().served_row(old).unwrap_err().contains("discovery of the resources of")
    );
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_stays_as_it_is() {
    let mut bench =
        Bench::new(&["/v1/pods", "example.com/v2/widgets", "example.com/v2/gears"], &[("widgets", &["w"])]);
    bench.start().await;
    bench.heard();
    let before = bench.kinds();
    // One version of the group does not answer, another would be preferred.
    bench.cluster.resources.lock().insert("example.com/v3/widgets");
    bench.cluster.stale.lock().insert("example.com/v2");
    assert_eq!(bench.reset(0).await, [""; 0]);
    assert_eq!(bench.kinds(), before);
    assert!(!bench.supervisor.watches().is_settling("example.com"), "no watch has begun");
    // Nothing answers.
    *bench.cluster.down.lock() = true;
    assert_eq!(bench.reset(2).await[..2], ["failed", "failed"]);
    assert_eq!(bench.kinds(), before);
    *bench.cluster.down.lock() = false;
    bench.cluster.stale.lock().clear();
    bench.cluster.resources.lock().remove("example.com/v2/gears");
    let heard = bench.reset(1).await;
    assert_eq!(heard.last().map(String::as_str), Some("forgot gears/v2"));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn discovery_that_finds_no_resource_at_all_ends_no_watch() {
    let mut bench = Bench::new(&["/v1/pods", "example.com/v1/widgets"], &[("widgets", &["w"])]);
    bench.start().await;
    bench.heard();
    let (kinds, watched) = (bench.kinds(), bench.cluster.watched.lock().len());
    let all = std::mem::take(&mut *bench.cluster.resources.lock());
    assert_eq!(bench.reset(2).await[..2], ["failed", "failed"]);
    assert_eq!(bench.kinds(), kinds);
    *bench.cluster.resources.lock() = all;
    assert!(bench.reset(0).await.iter().all(|heard| heard == "failed"), "nothing is listed again");
    assert_eq!((bench.kinds(), bench.cluster.watched.lock().len()), (kinds, watched));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_somebody_else_is_shared() {
    let mut bench = Bench::new(&["/v1/pods"], &[("pods", &["a"])]);
    let others = bench.informers.acquire(&PODS, None);
    bench.start().await;
    assert_eq!(bench.heard(), ["+pods v1/a"]);
    assert_eq!(bench.informers(), ["pods 1"]);
    assert_eq!(*bench.cluster.watched.lock(), ["pods"], "one watch for both");
    others.release().await;
    assert_eq!(bench.informers(), ["pods 1"], "it is kept");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_room_that_reads_more_than_metadata_watches_in_full() {
    let mut bench = Bench::new(&["/v1/pods", "batch/v1/jobs"], &[("pods", &["a"])]);
    *bench.ears.reads_pods.lock() = true;
    bench.start().await;
    assert_eq!(bench.heard(), ["+pods v1/a"]);
    let watches = bench.supervisor.watches();
    let pods = watches.store("", "pods").unwrap();
    assert!(!pods.kind().metadata_only && !pods.resource_version().is_empty());
    assert_eq!(
        (pods.count_namespace("ns"), pods.count_namespace("other")),
        (pods.list_namespace("ns").len(), 0)
    );
    assert!(watches.store("batch", "jobs").unwrap().kind().metadata_only);
    assert!(watches.store("apps", "jobs").is_none());
    drop(pods);
    assert_eq!(bench.reset(0).await, [""; 0], "it stays so");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_somebody_who_comes_later_is_changed_over_to() {
    let mut bench = Bench::new(&["/v1/pods"], &[("pods", &["a", "b"])]);
    bench.start().await;
    assert_eq!(bench.reset(0).await.len(), 2);
    // Meanwhile one went, and the watch of metadata has not told of it yet.
    bench.cluster.objects.lock().insert("pods", vec!["b", "c"]);
    let others = bench.informers.acquire(&PODS, None);
    others.wait_synced().await.unwrap();
    let mut heard = bench.reset(3).await;
    heard.sort();
    assert_eq!(heard, ["+pods v1/b", "+pods v1/c", "-pods v1/a"]);
    assert_eq!(bench.informers(), ["pods 1"]);
    assert!(!bench.informers.stats()[0].kind.metadata_only);
    others.release().await;
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_sync_holds_up_the_start_for_a_while_only() {
    let mut bench = Bench::new(&["/v1/pods", "example.com/v1/widgets"], &[]);
    bench.cluster.slow.lock().insert("widgets");
    let began = Instant::now();
    bench.start().await;
    assert_eq!(began.elapsed(), SETTLE_WITHIN);
    assert_eq!(bench.kinds(), ["pods v1 true", "widgets.example.com v1 false"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_a_cause_of_what_it_queues_and_what_was_there_before_is_not() {
    let mut traces = Tracing::unsent(-1);
    let subscriber = tracing_subscriber::Registry::default().with(vec![traces.layer()]);
    let _traced = tracing::subscriber::set_default(subscriber);
    let mut bench = Bench::new(&["/v1/pods"], &[("pods", &["a", "b"])]);
    bench.start().await;
    // A change that the watch of metadata misses is told of when another takes its place.
    bench.cluster.objects.lock().insert("pods", vec!["b"]);
    let others = bench.informers.acquire(&PODS, None);
    others.wait_synced().await.unwrap();
    bench.reset(3).await;
    for name in ["a", "b"] {
        let reconcile = tracing::info_span!("reconcile", name);
        bench.causes.link(&Key::new("", name), &reconcile);
    }
    others.release().await;
    bench.stop().await;
    let spans = traces.recorded();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let changes = named("event pods");
    assert_eq!(changes.len(), 1, "{changes:#?}");
    let links: Vec<_> = named("reconcile").iter().map(|span| span.links.len()).collect();
    assert_eq!(links, [1, 0]);
    assert_eq!(named("reconcile")[0].links[0].span_context, changes[0].span_context);
    assert_eq!(named("cache sync pods").len(), 1, "the start waited for it");
}
