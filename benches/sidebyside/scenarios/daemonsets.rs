//! DaemonSets that are created on all nodes, rolled and deleted.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::nodes;
use super::sets::Sets;
use crate::bench::{Bench, Flags, Qps};
use crate::content::many;
use crate::figures::{Figure, Figures, Target, What};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, lean, never_more};

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
            "{} DaemonSets run a pod on each of {} nodes. They get another image, on a tenth of the nodes at a time, and are \
             deleted in the foreground.",
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
            let namespace = bench.namespace("daemonsets").await;
            let manager = bench.manager(turn, "daemonsets", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;
            let spec = json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": "10%" } } });
            Sets { count: self.sets, spec, is_rolled }.play(bench, turn, &namespace, &manager).await
        }
        .boxed_local()
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
