//! Informers on a real API server: whatever becomes of their watches, at the end they hold what a fresh list shows, and
//! their handlers were told everything on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coxswain_machinery::api::meta::PartialObjectMetadata;
use coxswain_machinery::api::{AnyObject, Kind, kinds};
use coxswain_machinery::client::{
    ApiClient, ApiError, BoxError, ClientBuilder, ClientMetrics, ClientOptions, Connection, ListQuery,
    ResponseBody, WatchQuery,
};
use coxswain_machinery::informer::{
    Delta, EventHandler, InformerHandle, Informers, InformersConfig, ListWatch,
};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{ListPage, Message, ObjectHead, WireError};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::harness::{ControlPlane, Namespace, Options, eventually};

const LIMIT: Duration = Duration::from_mins(2);

/// ConfigMaps, of which only metadata is asked.
static METADATA: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    resource: "configmaps",
    namespaced: true,
    metadata_only: true,
    decode: decode_metadata,
};

fn decode_metadata(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(PartialObjectMetadata::decode(bytes)?))
}

/// What is done to watches on their way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// The connection breaks after three chunks; after ten, if it begins with the initial events.
    Cut,
    /// The watch is opened at a version that the server has long forgotten.
    Forgotten,
}

/// The API server, seen through a faulty connection.
struct Faulty {
    client: ApiClient,
    fault: Mutex<Fault>,
    cuts: Arc<AtomicUsize>,
    lists: AtomicUsize,
}

impl ListWatch for Faulty {
    fn list(&self, kind: &'static Kind, query: ListQuery) -> BoxFuture<'_, Result<ListPage, ApiError>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { self.client.list(kind, &query).await })
    }

    fn watch(
        &self,
        kind: &'static Kind,
        mut query: WatchQuery,
    ) -> BoxFuture<'_, Result<ResponseBody, ApiError>> {
        Box::pin(async move {
            let fault = *self.fault.lock();
            if fault == Fault::Forgotten && !query.send_initial_events {
                "1".clone_into(&mut query.resource_version);
                *self.fault.lock() = Fault::None;
            }
            let body = self.client.watch(kind, &query).await?;
            if fault != Fault::Cut {
                return Ok(body);
            }
            let chunks = if query.send_initial_events { 10 } else { 3_usize };
            let (mut left, cuts) = (chunks, Arc::clone(&self.cuts));
            let cut = body.map_frame(move |frame| {
                left = left.saturating_sub(1);
                if left == 0 {
                    cuts.fetch_add(1, Ordering::Relaxed);
                    // The second half of this chunk is lost with the connection.
                    return frame.map_data(|data| data.slice(..data.len() / 2));
                }
                frame
            });
            Ok(ends_after(cut, chunks))
        })
    }
}

/// The body, broken after so many frames.
fn ends_after<B>(body: B, frames: usize) -> ResponseBody
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
{
    let stream = futures::stream::unfold((Box::pin(body), frames), |(mut body, left)| async move {
        if left == 0 {
            let broken: BoxError = "cut by the test".into();
            return Some((Err(broken), (body, 0)));
        }
        body.frame().await.map(|frame| (frame, (body, left - 1)))
    });
    BodyExt::boxed_unsync(http_body_util::StreamBody::new(stream))
}

async fn source(plane: &ControlPlane) -> Arc<Faulty> {
    let connection =
        Connection::from_kubeconfig("--kubeconfig", &plane.report.kubeconfigs["admin"], None).await.unwrap();
    let options = ClientOptions { qps: -1.0, ..ClientOptions::default() };
    let metrics = ClientMetrics::register(&Registry::new()).unwrap();
    let client = ClientBuilder::new(connection, options, metrics).await.unwrap().ungated("informers");
    Arc::new(Faulty {
        client,
        fault: Mutex::new(Fault::None),
        cuts: Arc::default(),
        lists: AtomicUsize::new(0),
    })
}

fn informers(source: &Arc<Faulty>, watch_list: bool) -> Informers {
    let source: Arc<dyn ListWatch> = Arc::<Faulty>::clone(source);
    let config = InformersConfig { watch_list, ..InformersConfig::default() };
    Informers::new(source, config, Handle::current(), &Registry::new()).unwrap()
}

/// Namespace and name → UID and resource version.
type View = BTreeMap<(String, String), (String, String)>;

fn place_and_state(object: &AnyObject) -> ((String, String), (String, String)) {
    let meta = object.meta();
    (
        (meta.namespace.to_string(), meta.name.to_string()),
        (meta.uid.to_string(), meta.resource_version.to_string()),
    )
}

fn held(handle: &InformerHandle) -> View {
    handle.store().list().iter().map(place_and_state).collect()
}

async fn listed(source: &Faulty, kind: &'static Kind) -> View {
    let page = source.client.list(kind, &ListQuery::default()).await.unwrap();
    let read = |item: &Bytes| {
        let head = ObjectHead::read(item).unwrap();
        (
            (head.namespace.into_owned(), head.name.into_owned()),
            (head.uid.into_owned(), head.resource_version.into_owned()),
        )
    };
    page.items.iter().map(read).collect()
}

/// A handler that rebuilds the store from what it is told; it panics, which the informer reports, when that can't be.
fn rebuilder() -> (EventHandler, Arc<Mutex<View>>) {
    let view: Arc<Mutex<View>> = Arc::default();
    let kept = Arc::clone(&view);
    let handler: EventHandler = Arc::new(move |delta: Delta<'_>| {
        let mut view = kept.lock();
        let old = delta.old.map(place_and_state);
        match delta.new.map(place_and_state) {
            None => assert!(view.remove(&old.unwrap().0).is_some(), "gone twice"),
            Some((place, state)) => {
                assert_eq!(view.insert(place, state), old.map(|old| old.1), "not the state told before");
            }
        }
    });
    (handler, view)
}

async fn churn(namespace: &Namespace, round: usize) {
    let api: Api<ConfigMap> = namespace.api();
    let name = format!("config-{}", round % 7);
    if round % 5 == 4 {
        let _absent = api.delete(&name, &DeleteParams::default()).await;
    } else {
        let patch = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "round": round.to_string() },
        });
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(patch)).await.unwrap();
    }
}

async fn assert_equal_in_the_end(handle: &InformerHandle, view: &Mutex<View>, source: &Faulty) {
    let kind = handle.store().kind();
    eventually("the cache is what a fresh list shows", LIMIT, || async {
        held(handle) == listed(source, kind).await
    })
    .await;
    assert_eq!(*view.lock(), held(handle), "the handler was told something else");
    assert_eq!(handle.stats().problem(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_outlive_cut_watches_forgotten_versions_and_a_restarted_server() {
    let plane = ControlPlane::start(&Options::default());
    let namespace = plane.cluster().await.namespace("informers").await;
    let source = source(&plane).await;
    let informers = informers(&source, true);
    let handle = informers.acquire(&kinds::CONFIG_MAPS, None);
    let (handler, view) = rebuilder();
    let _registration = handle.add_handler("rebuilder", handler).replayed().await;
    let metadata = informers.acquire(&METADATA, None);
    let (handler, metadata_view) = rebuilder();
    let _metadata_registration = metadata.add_handler("rebuilder", handler).replayed().await;
    handle.wait_synced().await.unwrap();
    metadata.wait_synced().await.unwrap();
    assert_eq!(source.lists.load(Ordering::Relaxed), 0, "the initial state came as a stream");

    // The watches that are open end with the server. Its new watch cache may have forgotten where they were.
    *source.fault.lock() = Fault::Cut;
    plane.operate("restart", "kube-apiserver");
    let mut round = 0;
    while source.cuts.load(Ordering::Relaxed) < 100 {
        churn(&namespace, round).await;
        round += 1;
        assert!(round < 20_000, "watches are not cut: {:?}", handle.stats());
        sleep(Duration::from_millis(20)).await;
    }
    for handle in [&handle, &metadata] {
        assert!(handle.stats().relists <= 1, "a cut watch goes on: {:?}", handle.stats());
    }
    let relists = || handle.stats().relists + metadata.stats().relists;
    let before = relists();

    *source.fault.lock() = Fault::Forgotten;
    while relists() == before {
        churn(&namespace, round).await;
        round += 1;
        assert!(round < 40_000, "nothing was listed anew: {:?}", handle.stats());
        sleep(Duration::from_millis(20)).await;
    }

    assert_equal_in_the_end(&handle, &view, &source).await;
    assert_equal_in_the_end(&metadata, &metadata_view, &source).await;
    informers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_pages_gives_what_a_stream_gives() {
    let plane = ControlPlane::start(&Options::default());
    let namespace = plane.cluster().await.namespace("pages").await;
    let api: Api<ConfigMap> = namespace.api();
    for at in 0..1100 {
        let config =
            serde_json::from_value(json!({ "metadata": { "name": format!("config-{at}") } })).unwrap();
        api.create(&kube::api::PostParams::default(), &config).await.unwrap();
    }
    let source = source(&plane).await;
    let (pages, stream) = (informers(&source, false), informers(&source, true));
    let listed_handle = pages.acquire(&kinds::CONFIG_MAPS, None);
    let streamed = stream.acquire(&kinds::CONFIG_MAPS, None);
    let selected = stream.acquire(&kinds::CONFIG_MAPS, Some("metadata.name=config-7"));
    for handle in [&listed_handle, &streamed, &selected] {
        handle.wait_synced().await.unwrap();
    }
    assert!(source.lists.load(Ordering::Relaxed) >= 1);
    assert_eq!(selected.store().len(), 1);
    let truth = listed(&source, &kinds::CONFIG_MAPS).await;
    assert!(truth.len() >= 1100);
    eventually("both hold the truth", LIMIT, || async {
        held(&listed_handle) == truth && held(&streamed) == truth
    })
    .await;
    pages.shutdown().await;
    stream.shutdown().await;
}
