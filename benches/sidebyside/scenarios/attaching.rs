//! Pods with a volume each that start and go, on nodes whose volumes the manager attaches.

use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::binding::{claim, remove_all, volume};
use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, PARALLEL, count, many};
use crate::figures::{Figure, Figures, Target, What};
use crate::harness::{Namespace, object, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, lean, never_more};

const PODS: usize = 1000;
const PODS_OF_A_NODE: usize = 50;
/// A node whose volumes the manager attaches.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const OURS: &str = "bench=attach";

/// Pods with a volume each; the claims are there in all rounds.
pub(super) struct Attach {
    pods: usize,
    namespace: Option<Namespace>,
}

impl Attach {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { pods: bench.scaled(PODS), namespace: None }
    }

    fn nodes(&self) -> usize {
        self.pods.div_ceil(PODS_OF_A_NODE)
    }
}

impl Scenario for Attach {
    fn name(&self) -> String {
        "attach".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} pods, each with one CSI volume, start on {} nodes and are deleted. The simulated attacher answers at once. \
             --kube-api-qps is so high that it never delays a request.",
            self.pods,
            self.nodes()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["persistentvolume-attach-detach-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            let nodes: Api<Node> = Api::all(bench.cluster.client.clone());
            many(self.nodes(), async |at| add(&nodes, &node(at)).await).await;
            let namespace = bench.namespace("attach").await;
            many(self.pods, async |at| bound(bench, &namespace, &format!("data-{at}")).await).await;
            self.namespace = Some(namespace);
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = self.namespace.as_ref().expect("it was prepared");
            let client = &bench.cluster.client;
            let (nodes, attachments) =
                (Api::<Node>::all(client.clone()), Api::<VolumeAttachment>::all(client.clone()));
            let mut attacher = JoinSet::new();
            attacher.spawn(attach_all(attachments.clone()));
            let manager = bench.manager(turn, "attach", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            let listed = async || {
                sleep(Duration::from_millis(100)).await;
                let list = nodes.list(&ListParams::default().labels(OURS)).await.expect("a list").items;
                list.iter().map(attached).sum::<usize>()
            };

            let attach = Gauge::start(bench, turn.program, manager.pid);
            many(self.pods, async |at| {
                let claim = json!({ "claimName": format!("data-{at}") });
                let _: Pod = namespace
                    .create(json!({
                        "metadata": { "name": format!("pod-{at}") },
                        "spec": {
                            "nodeName": node(at / PODS_OF_A_NODE),
                            "containers": [{ "name": "db", "image": "db:1" }],
                            "volumes": [{ "name": "data", "persistentVolumeClaim": claim }],
                        },
                    }))
                    .await;
            })
            .await;
            until("all volumes to be attached", LIMIT, listed, |count| *count == self.pods).await;
            attach.close("attach", Until::Calm, &mut figures).await;

            let detach = Gauge::start(bench, turn.program, manager.pid);
            let now = DeleteParams::default().grace_period(0);
            let pods = namespace.api::<Pod>();
            many(self.pods, async |at| drop(pods.delete(&format!("pod-{at}"), &now).await.expect("it goes")))
                .await;
            until("the last VolumeAttachment to go", LIMIT, || count(&attachments), |count| *count == 0)
                .await;
            until("all lists to be empty", LIMIT, listed, |count| *count == 0).await;
            detach.close("detach", Until::Calm, &mut figures).await;
            figures.totaled()
        }
        .boxed_local()
    }

    fn clear<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            if let Some(namespace) = self.namespace.take() {
                remove_all(bench, &namespace).await;
            }
            let nodes: Api<Node> = Api::all(bench.cluster.client.clone());
            let which = ListParams::default().labels(OURS);
            nodes.delete_collection(&DeleteParams::default(), &which).await.expect("the nodes go");
        }
        .boxed_local()
    }
}

fn node(at: usize) -> String {
    format!("attach-{at}")
}

/// A node that is managed and ready.
async fn add(nodes: &Api<Node>, name: &str) {
    let body = json!({ "metadata": {
        "name": name, "annotations": { MANAGED: "true" }, "labels": { "bench": "attach" },
    } });
    nodes.create(&PostParams::default(), &object(body)).await.expect("a node");
    let resources = json!({ "cpu": "8", "memory": "32Gi", "pods": "110" });
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True" }], "capacity": resources, "allocatable": resources,
    } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("it is ready");
}

/// A claim and a volume of this name, bound as the binder would.
async fn bound(bench: &Bench, namespace: &Namespace, name: &str) {
    let made = claim(namespace, name, Some(name)).await;
    let claim_ref: Value = json!({ "namespace": namespace.name, "name": name, "uid": made.metadata.uid });
    volume(bench, name, Some(claim_ref)).await;
    let (params, phase) = (PatchParams::default(), Patch::Merge(json!({ "status": { "phase": "Bound" } })));
    let claims = namespace.api::<PersistentVolumeClaim>();
    let volumes: Api<PersistentVolume> = Api::all(bench.cluster.client.clone());
    drop(claims.patch_status(name, &params, &phase).await.expect("the claim is bound"));
    drop(volumes.patch_status(name, &params, &phase).await.expect("the volume is bound"));
}

fn attached(node: &Node) -> usize {
    let status = node.status.as_ref();
    status.and_then(|status| status.volumes_attached.as_ref()).map_or(0, Vec::len)
}

/// Says of each VolumeAttachment that comes that it is attached, for as long as it is not aborted.
async fn attach_all(api: Api<VolumeAttachment>) {
    let from = api.list_metadata(&ListParams::default()).await.expect("a list").metadata.resource_version;
    let mut from = from.unwrap_or_default();
    loop {
        let events = api.watch(&WatchParams::default().timeout(290), &from).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        let mut answers = JoinSet::new();
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(found) | WatchEvent::Modified(found) | WatchEvent::Deleted(found)) =
                &event
            else {
                continue;
            };
            from = found.metadata.resource_version.clone().unwrap_or_default();
            let WatchEvent::Added(_) = event else { continue };
            if answers.len() >= PARALLEL {
                drop(answers.join_next().await);
            }
            let (api, name) = (api.clone(), found.metadata.name.clone().unwrap_or_default());
            answers.spawn(async move {
                let patch = Patch::Merge(json!({ "status": { "attached": true } }));
                // One that has gone again needs no answer.
                drop(api.patch_status(&name, &PatchParams::default(), &patch).await);
            });
        }
    }
}
