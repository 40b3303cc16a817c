//! PodDisruptionBudgets over Deployments that are rolled, and whose pods are evicted.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams, ListParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::rollouts::is_rolled;
use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, lean};

const BUDGETS: usize = 500;
const REPLICAS: i32 = 2;
/// How soon an eviction that was refused is tried again.
const AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Budgets {
    count: usize,
}

impl Budgets {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { count: bench.scaled(BUDGETS) }
    }

    /// Waits until all Deployments are as wanted, and all budgets say so: one pod of each may go.
    async fn settled(&self, namespace: &Namespace) {
        let (deployments, budgets) = (namespace.api(), namespace.api::<PodDisruptionBudget>());
        let settled = async || {
            // These are large answers, and the machine is the managers'.
            sleep(AGAIN).await;
            let rolled = deployments.list(&ListParams::default()).await.expect("a list").items;
            let free = budgets.list(&ListParams::default()).await.expect("a list").items;
            let rolled = rolled.iter().filter(|each| is_rolled(each)).count();
            (rolled, free.iter().filter(|each| lets_one_go(each)).count())
        };
        let wanted = (self.count, self.count);
        until("all budgets to let one pod go", LIMIT, settled, |counts| *counts == wanted).await;
    }
}

impl Scenario for Budgets {
    fn name(&self) -> String {
        "budgets".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} Deployments of {REPLICAS} pods, each with a PodDisruptionBudget, are created and get another image. Then one pod of \
             each is evicted. --kube-api-qps is so high that it never delays a request.",
            self.count
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["disruption-controller", "deployment-controller", "replicaset-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("budgets").await;
            let manager = bench.manager(turn, "budgets", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            let gauge = || Gauge::start(bench, turn.program, manager.pid);

            let create = gauge();
            many(self.count, async |at| {
                let name = format!("web-{at}");
                let selector = json!({ "matchLabels": { "app": name } });
                let _: PodDisruptionBudget = namespace
                    .create(json!({
                        "metadata": { "name": name },
                        "spec": { "maxUnavailable": 1, "selector": selector },
                    }))
                    .await;
                namespace.deployment(&name, REPLICAS, json!({})).await;
            })
            .await;
            self.settled(&namespace).await;
            create.close("create", Until::Calm, &mut figures).await;

            let update = gauge();
            many(self.count, async |at| {
                namespace.set_image(&format!("web-{at}"), "nginx:2").await;
            })
            .await;
            self.settled(&namespace).await;
            update.close("update", Until::Calm, &mut figures).await;

            let pods = namespace.api::<Pod>().list_metadata(&ListParams::default()).await.expect("a list");
            let mut one_of_each: Vec<(String, String)> =
                pods.items.into_iter().filter_map(app_and_name).collect();
            one_of_each.sort();
            one_of_each.dedup_by(|one, other| one.0 == other.0);
            assert_eq!(one_of_each.len(), self.count, "Deployments that have pods");
            let evict = gauge();
            // By a client that is told of refusals.
            let api: Api<Pod> = Api::namespaced(bench.cluster.once.clone(), &namespace.name);
            many(self.count, async |at| granted(&api, &one_of_each[at].1).await).await;
            self.settled(&namespace).await;
            evict.close("evict", Until::Calm, &mut figures).await;
            bench.stop_all();
            figures.totaled()
        }
        .boxed_local()
    }
}

/// An eviction, asked for until it is granted.
async fn granted(api: &Api<Pod>, name: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        match api.evict(name, &EvictParams::default()).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 429 => {
                assert!(Instant::now() < deadline, "{name} is never evicted: {status:?}");
                sleep(AGAIN).await;
            }
            Err(error) => panic!("{name} is not evicted: {error}"),
        }
    }
}

fn app_and_name(pod: kube::core::PartialObjectMeta<Pod>) -> Option<(String, String)> {
    let app = pod.metadata.labels?.remove("app")?;
    Some((app, pod.metadata.name?))
}

fn lets_one_go(budget: &PodDisruptionBudget) -> bool {
    budget.status.as_ref().is_some_and(|status| {
        status.observed_generation == budget.metadata.generation
            && status.current_healthy == Some(REPLICAS)
            && status.expected_pods == Some(REPLICAS)
            && status.disruptions_allowed == Some(1)
            && status.disrupted_pods.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
    })
}
