//! A node that falls silent with all its pods.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many, running};
use crate::figures::{Figure, Figures, Target};
use crate::harness::until;
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::{calm, mib, resident};
use crate::scenario::{Scenario, grown, lean};

const PODS: usize = 500;
/// kwok plays nodes that have this label.
const PLAYED: &str = "type";
/// Not the default of 50 s, in which there is nothing to measure.
const GRACE: &str = "--node-monitor-grace-period=20s";
/// Long enough that nothing is evicted before all pods are marked, at 100 requests a second.
const TOLERATED: Duration = Duration::from_secs(30);

pub(super) struct NotReady {
    pods: usize,
}

impl NotReady {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { pods: bench.scaled(PODS) }
    }
}

impl Scenario for NotReady {
    fn name(&self) -> String {
        "node NotReady".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "A node with {} pods stops renewing its Lease. 20 s later ({GRACE}), the node and its pods are marked as not ready. The \
             pods are evicted another {} s later.",
            self.pods,
            TOLERATED.as_secs()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["node-lifecycle-controller", "taint-eviction-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([(grown(), Target::Ratio(0.125))]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("nodes").await;
            let pods = namespace.api::<Pod>();
            let nodes: Api<Node> = Api::all(bench.cluster.client.clone());
            let node = format!("victim-{}-{}", turn.round, turn.program).to_lowercase();
            add(bench, &nodes, &node).await;
            let tolerates = |key: &str| {
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": TOLERATED.as_secs() })
            };
            let tolerations =
                ["not-ready", "unreachable"].map(|key| tolerates(&format!("node.kubernetes.io/{key}")));
            many(self.pods, async |at| {
                let _: Pod = namespace
                    .create(json!({
                        "metadata": { "name": format!("pod-{at}") },
                        "spec": {
                            "nodeName": node,
                            "tolerations": tolerations,
                            "containers": [{ "name": "web", "image": "web:1" }],
                        },
                    }))
                    .await;
            })
            .await;
            running(&namespace, self.pods).await;
            let flags = Flags { more: &[GRACE], ..Flags::of(self.controllers(), Qps::Usual) };
            let manager = bench.manager(turn, "nodes", &flags);
            calm(manager.pid).await;
            let before = resident(manager.pid).rss;

            let mark = Gauge::start(bench, turn.program, manager.pid);
            let patch = json!({ "metadata": { "labels": { PLAYED: null } } });
            nodes.patch(&node, &PatchParams::default(), &Patch::Merge(patch)).await.expect("it falls silent");
            let unready = async || {
                let list = pods.list(&ListParams::default()).await.expect("a list").items;
                list.iter().filter(|pod| !is_ready(pod)).count()
            };
            until("all pods to be marked", LIMIT, unready, |count| *count == self.pods).await;
            mark.close("mark", Until::Now, &mut figures).await;

            let evict = Gauge::start(bench, turn.program, manager.pid);
            let left = async || {
                let list = pods.list_metadata(&ListParams::default()).await.expect("a list").items;
                list.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
            };
            until("all pods to be evicted", LIMIT, left, |count| *count == 0).await;
            evict.close("evict", Until::Calm, &mut figures).await;
            let growth = mib(resident(manager.pid).rss.saturating_sub(before));
            bench.stop_all();
            nodes.delete(&node, &DeleteParams::default()).await.expect("the node goes");
            let mut figures = figures.totaled();
            figures.add(grown(), growth);
            figures
        }
        .boxed_local()
    }
}

/// Adds a node that kwok plays, like the first of the cluster, and waits until it is ready.
pub(super) async fn add(bench: &Bench, nodes: &Api<Node>, name: &str) {
    let like = nodes.get("node-0").await.expect("a node");
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.annotations = like.metadata.annotations;
    node.metadata.labels = like.metadata.labels;
    if let Some(labels) = &mut node.metadata.labels {
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    }
    nodes.create(&PostParams::default(), &node).await.expect("the node is created");
    bench.say(&format!("  {name} joins"));
    let ready = async || nodes.get(name).await.is_ok_and(|node| is_up(&node));
    until("the node to be ready", LIMIT, ready, |ready| *ready).await;
    // Admission taints new nodes, for a controller to untaint.
    let patch = json!({ "spec": { "taints": null } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("untainted");
}

fn is_up(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|each| each.type_ == "Ready" && each.status == "True"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|each| each.type_ == "Ready" && each.status == "True"))
}
