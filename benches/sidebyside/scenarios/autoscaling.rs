//! HorizontalPodAutoscalers that follow metrics up and down.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many, running};
use crate::figures::{Figure, Figures, Target, What};
use crate::harness::{MetricsApi, Namespace, Numbers, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::scenario::{Scenario, lean, never_more};

const AUTOSCALERS: usize = 1000;
/// Of CPU, by each pod.
const REQUESTED: &str = "100m";
/// As the flag's default: all are looked at within it.
const PERIOD: Duration = Duration::from_secs(15);
/// What a pod uses, and how many replicas that makes: one pod at a target of 50%.
const STEPS: [(&str, &str, i32); 3] = [("up", "95m", 2), ("down", "40m", 1), ("further up", "140m", 3)];

pub(super) struct Autoscaling {
    count: usize,
    api: Option<MetricsApi>,
}

impl Autoscaling {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { count: bench.scaled(AUTOSCALERS), api: None }
    }

    /// A Deployment that no controller plays, its pod, and its autoscaler.
    async fn add(&self, bench: &Bench, namespace: &Namespace, at: usize) {
        let name = format!("web-{at}");
        let resources = json!({ "requests": { "cpu": REQUESTED } });
        let containers = json!([{ "name": "web", "image": "web:1", "resources": resources }]);
        let template =
            json!({ "metadata": { "labels": { "app": name } }, "spec": { "containers": containers } });
        namespace.deployment(&name, 1, json!({ "template": template })).await;
        let _: Pod = namespace
            .create(json!({
                "metadata": { "name": name, "labels": { "app": name } },
                "spec": { "nodeName": format!("node-{}", at % bench.nodes), "containers": containers },
            }))
            .await;
        let target = json!({ "type": "Utilization", "averageUtilization": 50 });
        let _: HorizontalPodAutoscaler = namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                    "minReplicas": 1, "maxReplicas": 5,
                    "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
                    "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 } },
                },
            }))
            .await;
    }

    /// Waits until all Deployments are to have so many replicas.
    async fn scaled(&self, namespace: &Namespace, replicas: i32) {
        let deployments = namespace.api::<Deployment>();
        let scaled = async || {
            // It is a large answer, and the machine is the managers'.
            sleep(Duration::from_millis(200)).await;
            let list = deployments.list(&ListParams::default()).await.expect("a list").items;
            let wanted =
                |each: &&Deployment| each.spec.as_ref().and_then(|spec| spec.replicas) == Some(replicas);
            list.iter().filter(wanted).count()
        };
        let what = format!("all Deployments to have {replicas} replicas");
        until(&what, LIMIT, scaled, |count| *count == self.count).await;
    }
}

/// Pods use so much of CPU each. It was measured in time to come: pods of a moment ago count.
fn cpu(usage: &str) -> Numbers {
    let usage = BTreeMap::from([("cpu".to_owned(), usage.to_owned())]);
    Numbers { usage, age: -600, ..Numbers::default() }
}

impl Scenario for Autoscaling {
    fn name(&self) -> String {
        "autoscaling".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} HorizontalPodAutoscalers, each for its own Deployment with one pod, scale by CPU use. CPU use is constant for two \
             periods of {} s, and then rises, falls, and rises higher. --kube-api-qps is so high that it never delays a request.",
            self.count,
            PERIOD.as_secs()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["horizontal-pod-autoscaler-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            self.api = Some(MetricsApi::start(&bench.plane, &bench.cluster.client, &["v1beta2"]).await);
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let api = self.api.as_ref().expect("it was prepared");
            let namespace = bench.namespace("autoscaling").await;
            api.say(&namespace.name, cpu("50m"));
            let manager = bench.manager(turn, "autoscaling", &Flags::of(self.controllers(), Qps::Unlimited));
            many(self.count, async |at| self.add(bench, &namespace, at).await).await;
            running(&namespace, self.count).await;
            let autoscalers = namespace.api::<HorizontalPodAutoscaler>();
            let answered = async || {
                sleep(Duration::from_millis(200)).await;
                let list = autoscalers.list(&ListParams::default()).await.expect("a list").items;
                list.iter().filter(|each| is_answered(each)).count()
            };
            until("all autoscalers to know their metric", LIMIT, answered, |count| *count == self.count)
                .await;

            let rest = Gauge::start(bench, turn.program, manager.pid);
            sleep(2 * PERIOD).await;
            rest.close("at rest", Until::Now, &mut figures).await;
            for (phase, usage, replicas) in STEPS {
                let step = Gauge::start(bench, turn.program, manager.pid);
                api.say(&namespace.name, cpu(usage));
                self.scaled(&namespace, replicas).await;
                step.close(phase, Until::Now, &mut figures).await;
            }
            bench.stop_all();
            let (now, all) = (DeleteParams::background(), ListParams::default());
            autoscalers.delete_collection(&now, &all).await.expect("deleted");
            figures.totaled()
        }
        .boxed_local()
    }

    fn clear<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            self.api = None;
            // Nobody is to wait for APIs that are gone.
            let client = &bench.cluster.client;
            let registered: Api<APIService> = Api::all(client.clone());
            for name in
                ["v1beta1.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"]
            {
                drop(
                    registered
                        .delete(name, &DeleteParams::default())
                        .await
                        .expect("it is registered no more"),
                );
            }
            let services: Api<Service> = Api::namespaced(client.clone(), "default");
            drop(services.delete("metrics", &DeleteParams::default()).await.expect("its Service goes"));
        }
        .boxed_local()
    }
}

/// Whether it knows what its pod uses.
fn is_answered(autoscaler: &HorizontalPodAutoscaler) -> bool {
    let metrics = autoscaler.status.as_ref().and_then(|status| status.current_metrics.as_ref());
    metrics.is_some_and(|metrics| {
        metrics.iter().any(|metric| {
            metric.resource.as_ref().is_some_and(|resource| resource.current.average_utilization == Some(50))
        })
    })
}
