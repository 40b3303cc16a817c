//! DaemonSets that are created on all nodes, rolled and deleted.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::{Scenario, Target, delete_all, lean, never_more, nodes, until_gone};
use crate::bench::{Bench, Flags, Qps, Turn};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, What};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::sampling::calm;

const SETS: usize = 50;

const NODES: usize = 100;

pub(super) struct DaemonSets {
    sets: usize,
    nodes: usize,
    /// Nodes that the cluster has for this scenario alone.
    more: Vec<String>,
}

impl DaemonSets {
    pub(super) fn of(bench: &Bench) -> Self {
        let nodes = bench.scaled(NODES).max(bench.nodes);
        let more = (bench.nodes..nodes).map(|at| format!("more-{at}")).collect();
        Self { sets: bench.scaled(SETS), nodes, more }
    }
}

impl Scenario for DaemonSets {
    fn name(&self) -> String {
        "daemonsets".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} DaemonSets run a pod on each of {} nodes, get another image, a tenth of the nodes at a time, and are deleted in \
             the foreground.",
            self.sets, self.nodes
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["daemonset-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            let api: Api<Node> = Api::all(bench.cluster.client.clone());
            many(self.more.len(), async |at| nodes::add(bench, &api, &self.more[at]).await).await;
        }
        .boxed_local()
    }

    fn clear<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            let api: Api<Node> = Api::all(bench.cluster.client.clone());
            many(self.more.len(), async |at| {
                drop(api.delete(&self.more[at], &DeleteParams::default()).await.expect("the node goes"));
            })
            .await;
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("daemonsets").await;
            let sets = namespace.api::<DaemonSet>();
            let manager = bench.manager(turn, "daemonsets", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;

            let create = Gauge::start(bench, turn.program, manager.pid);
            many(self.sets, async |at| {
                let name = format!("agent-{at}");
                let _: DaemonSet = namespace
                    .create(json!({
                        "metadata": { "name": name },
                        "spec": {
                            "updateStrategy": { "rollingUpdate": { "maxUnavailable": "10%" } },
                            "selector": { "matchLabels": { "app": name } },
                            "template": {
                                "metadata": { "labels": { "app": name } },
                                "spec": { "containers": [{ "name": "agent", "image": "agent:1" }] },
                            },
                        },
                    }))
                    .await;
            })
            .await;
            self.rolled(&namespace).await;
            create.close("create", Until::Calm, &mut figures).await;

            let update = Gauge::start(bench, turn.program, manager.pid);
            let containers = json!([{ "name": "agent", "image": "agent:2" }]);
            let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
            many(self.sets, async |at| {
                let patch = Patch::Strategic(&patch);
                sets.patch(&format!("agent-{at}"), &PatchParams::default(), &patch).await.expect("patched");
            })
            .await;
            self.rolled(&namespace).await;
            update.close("update", Until::Calm, &mut figures).await;

            let delete = Gauge::start(bench, turn.program, manager.pid);
            delete_all(&sets).await;
            until_gone(&sets).await;
            until_gone(&namespace.api::<Pod>()).await;
            delete.close("delete", Until::Calm, &mut figures).await;
            figures.totalled()
        }
        .boxed_local()
    }
}

impl DaemonSets {
    async fn rolled(&self, namespace: &Namespace) {
        let api = namespace.api::<DaemonSet>();
        let rolled = async || {
            let list = api.list(&ListParams::default()).await.expect("a list").items;
            list.iter().filter(|each| is_rolled(each)).count()
        };
        until("all DaemonSets to be rolled out", LIMIT, rolled, |count| *count == self.sets).await;
    }
}

fn is_rolled(set: &DaemonSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled > 0
            && status.number_available == Some(status.desired_number_scheduled)
            && status.updated_number_scheduled == Some(status.desired_number_scheduled)
    })
}
