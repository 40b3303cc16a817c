//! From the start of the process until it acts on a full cluster.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use crate::bench::{Bench, Flags, Qps};
use crate::canary::Canary;
use crate::content::{many, pair, running};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, never_more};

/// Pods, and as many ConfigMaps and Secrets; each level is filled on top of the one before.
const LEVELS: [usize; 4] = [0, 1000, 5000, 20_000];
/// Pods of one Deployment.
const PODS_PER_SET: usize = 100;
/// Memory counts after a quarter of a minute.
const LEAST: Duration = Duration::from_secs(15);

/// One level.
pub(crate) struct Start {
    /// Pods that there are.
    pub(crate) pods: usize,
    is_last: bool,
}

/// All levels, from the empty one up.
pub(crate) fn levels(bench: &Bench) -> Vec<Start> {
    let last = LEVELS[LEVELS.len() - 1];
    LEVELS.map(|pods| Start { pods: bench.scaled(pods), is_last: pods == last }).into()
}

impl Scenario for Start {
    fn name(&self) -> String {
        format!("start, {} pods", self.pods)
    }

    fn about(&self) -> String {
        format!(
            "Wall time runs from the start of the process until an existing Deployment gets its pod. The other figures run until \
             the process is idle. The cluster has {0} pods, {0} ConfigMaps and {0} Secrets.",
            self.pods
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &[]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        let mut targets = vec![never_more(What::Writes), never_more(What::Wall)];
        if self.is_last {
            targets.push((whole(What::Cpu), Target::Ratio(1.0 / 6.0)));
        }
        targets
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            fill(bench, self.pods).await;
            settle(bench, &self.pods.to_string()).await;
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let canary = Canary::new(bench).await;
            canary.place().await;
            let mark = bench.mark();
            let role = format!("start-{}", self.pods);
            let manager = bench.manager(turn, &role, &Flags::of(&[], Qps::Usual));
            let gauge = Gauge::from_birth(bench, turn.program, manager.pid, mark);
            canary.reconciled().await;
            let least = LEAST.mul_f64(bench.settings.scale.max(0.2));
            gauge.close("", Until::Steady(least), &mut figures).await;
            bench.stop_all();
            canary.remove().await;
            figures
        }
        .boxed_local()
    }
}

/// Fills the cluster up to so many pods, as many ConfigMaps and as many Secrets.
pub(super) async fn fill(bench: &Bench, pods: usize) {
    let more = pods.saturating_sub(bench.filled.get());
    if more == 0 {
        return;
    }
    bench.say(&format!("  filling the cluster with {more} more pods"));
    let namespace = bench.namespace("load").await;
    bench.keep(&namespace);
    bench.helper(&format!("filler-{pods}"), &["deployment-controller", "replicaset-controller"]);
    many(more.div_ceil(PODS_PER_SET), async |at| {
        let replicas = PODS_PER_SET.min(more - at * PODS_PER_SET);
        // On a node at once: the scheduler would take longer than all the rest.
        let node = format!("node-{}", at % bench.nodes);
        let containers = json!([{ "name": "web", "image": "web:1" }]);
        let pod = json!({ "spec": { "nodeName": node, "containers": containers } });
        let _: Deployment =
            namespace.deployment(&format!("web-{at}"), replicas as i32, json!({ "template": pod })).await;
    })
    .await;
    running(&namespace, more).await;
    bench.stop_all();
    bench.say(&format!("  filling the cluster with {more} more ConfigMaps and Secrets"));
    many(more, async |at| pair(&namespace, at).await).await;
    bench.filled.set(pods);
}

/// Does once what is to be done once, so that it falls to neither of those that are measured.
pub(super) async fn settle(bench: &Bench, name: &str) {
    let helper = bench.helper(&format!("settler-{name}"), &[]);
    calm(helper.pid).await;
    bench.stop_all();
}

/// The level of this name, by how many pods it has.
pub(crate) fn pods_of(name: &str) -> Option<usize> {
    name.strip_prefix("start, ")?.strip_suffix(" pods")?.parse().ok()
}
