//! Claims that are bound to volumes, many at once; and what scenarios of volumes share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::{Namespace, object, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, lean, until_gone};

const CLAIMS: usize = 500;
/// Volumes for each claim.
const CHOICE: usize = 2;
/// The driver of volumes that nobody provides.
pub(super) const DRIVER: &str = "csi.bench.example.com";
/// There is no class of this name, as of volumes that somebody made by hand.
const CLASS: &str = "by-hand";
/// The annotation of a claim whose binding is complete.
const COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The names of claims that have it.
type Completed = Arc<Mutex<BTreeSet<String>>>;

/// A volume that a CSI driver has made; `claim` is what it is for, if anything.
pub(super) async fn volume(bench: &Bench, name: &str, claim: Option<Value>) {
    let api: Api<PersistentVolume> = Api::all(bench.cluster.client.clone());
    let body: PersistentVolume = object(json!({ "metadata": { "name": name }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
        "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": DRIVER, "volumeHandle": name },
        "claimRef": claim,
    } }));
    api.create(&PostParams::default(), &body).await.expect("a volume");
}

/// A claim for such a volume; `volume` is the one that it is for, if it is known.
pub(super) async fn claim(namespace: &Namespace, name: &str, volume: Option<&str>) -> PersistentVolumeClaim {
    namespace
        .create(json!({ "metadata": { "name": name }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeName": volume,
            "resources": { "requests": { "storage": "1Gi" } },
        } }))
        .await
}

/// All claims of a namespace and all volumes go, without a manager that would take their finalizers away.
pub(super) async fn remove_all(bench: &Bench, namespace: &Namespace) {
    let volumes: Api<PersistentVolume> = Api::all(bench.cluster.client.clone());
    remove(&namespace.api::<PersistentVolumeClaim>()).await;
    remove(&volumes).await;
}

async fn remove<K>(api: &Api<K>)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = api.list_metadata(&ListParams::default()).await.expect("a list").items;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    many(all.len(), async |at| {
        let name = all[at].metadata.name.as_deref().expect("a name");
        drop(api.patch(name, &PatchParams::default(), &patch).await.expect("its finalizers go"));
    })
    .await;
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    until_gone(api).await;
}

pub(super) struct Binding {
    claims: usize,
}

impl Binding {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { claims: bench.scaled(CLAIMS) }
    }
}

impl Scenario for Binding {
    fn name(&self) -> String {
        "binding".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} volumes exist. {} claims, each of which fits any volume, are created at once and are bound. --kube-api-qps is so \
             high that it never delays a request.",
            CHOICE * self.claims,
            self.claims
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["persistentvolume-binder-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([(whole(What::Wall), Target::Ratio(0.2))]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("binding").await;
            let manager = bench.manager(turn, "binding", &Flags::of(self.controllers(), Qps::Unlimited));
            many(CHOICE * self.claims, async |at| volume(bench, &format!("bound-{at}"), None).await).await;
            let volumes: Api<PersistentVolume> = Api::all(bench.cluster.client.clone());
            let available = async || in_phase(&volumes, "Available").await;
            until("all volumes to be available", LIMIT, available, |count| *count == CHOICE * self.claims)
                .await;
            calm(manager.pid).await;

            let claims = namespace.api::<PersistentVolumeClaim>();
            let completed: Completed = Arc::default();
            let mut watch = JoinSet::new();
            watch.spawn(follow(claims.clone(), Arc::clone(&completed)).await);
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            many(self.claims, async |at| drop(claim(&namespace, &format!("claim-{at}"), None).await)).await;
            let done = async || {
                sleep(Duration::from_millis(10)).await;
                completed.lock().expect("no panic").len()
            };
            until("all bindings to be completed", LIMIT, done, |count| *count == self.claims).await;
            let bound = async || (in_phase(&claims, "Bound").await, in_phase(&volumes, "Bound").await);
            let wanted = (self.claims, self.claims);
            until("all claims to be bound", LIMIT, bound, |counts| *counts == wanted).await;
            gauge.close("", Until::Calm, &mut figures).await;
            bench.stop_all();
            remove_all(bench, &namespace).await;
            figures
        }
        .boxed_local()
    }
}

/// Keeps account of the claims that say that their binding is complete, which is the third of its four writes, for as long as it is
/// not aborted. It looks at nothing else: whole lists, again and again, would take more of the machine than a manager.
async fn follow(api: Api<PersistentVolumeClaim>, completed: Completed) -> impl Future<Output = ()> {
    let from = api.list_metadata(&ListParams::default()).await.expect("a list").metadata.resource_version;
    let mut from = from.unwrap_or_default();
    async move {
        loop {
            let events = api.watch_metadata(&WatchParams::default().timeout(290), &from).await;
            let mut events = std::pin::pin!(events.expect("a watch"));
            while let Ok(Some(event)) = events.try_next().await {
                let (WatchEvent::Added(claim) | WatchEvent::Modified(claim)) = event else { continue };
                from = claim.metadata.resource_version.unwrap_or_default();
                if claim.metadata.annotations.is_some_and(|held| held.contains_key(COMPLETED)) {
                    completed.lock().expect("no panic").insert(claim.metadata.name.unwrap_or_default());
                }
            }
        }
    }
}

/// How many have this phase.
async fn in_phase<K>(api: &Api<K>, phase: &str) -> usize
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    // It is a large answer, and the machine is the managers'.
    sleep(Duration::from_millis(100)).await;
    let all = api.list(&ListParams::default()).await.expect("a list").items;
    let has_it = |each: &&K| serde_json::to_value(each).expect("JSON")["status"]["phase"] == phase;
    all.iter().filter(has_it).count()
}
