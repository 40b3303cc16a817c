//! Rows about autoscalers, with metrics APIs that a test answers, and about the collection of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::PropagationPolicy::Background;
use serde_json::{Value, json};

use super::scene::{Outcome, Scene, in_seconds};
use super::{Area, Case, Played, Taken, nothing};
use crate::harness::{Instead, Numbers};

pub(super) const AREA: Area = Area {
    cases: &[
        Case { id: "negative-external-average", prepare: nothing, play: negative, taken: Taken::Moving },
        Case { id: "status-of-others", prepare: nothing, play: others, taken: Taken::Moving },
        Case { id: "average-of-no-pods", prepare: nothing, play: no_pods, taken: Taken::Moving },
        Case { id: "gauges-of-deleted-objects", prepare: nothing, play: deleted, taken: Taken::Unchanged },
        Case {
            id: "out-of-service-read-live",
            prepare: out_of_service,
            play: forced,
            taken: Taken::Unchanged,
        },
        Case { id: "answers-of-metrics-apis", prepare: nothing, play: large_answer, taken: Taken::Moving },
    ],
    plane: &[],
    args: &[
        "--controllers=horizontal-pod-autoscaler-controller,pod-garbage-collector-controller",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--horizontal-pod-autoscaler-downscale-stabilization=1s",
    ],
    has_metrics_apis: true,
    is_recorded: false,
};

/// The API group of external metrics.
const EXTERNAL: &str = "external.metrics.k8s.io";

/// Sets the value of the one external metric.
fn say(scene: &Scene, value: &str) {
    let external = BTreeMap::from([("queue".to_owned(), vec![value.to_owned()])]);
    let numbers = Numbers { external, ..Numbers::default() };
    scene.metrics.as_ref().expect("metrics APIs").say(&scene.name, numbers);
}

/// A Deployment that nobody runs, with so many replicas in its status.
async fn deployment(scene: &Scene, replicas: u32, running: u32) {
    let template = json!({ "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "image:1" }] } });
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template });
    scene.create("Deployment", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    scene.patch_status("Deployment", "web", json!({ "replicas": running })).await;
}

async fn scale_by(scene: &Scene, metric: &Value) {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9, "metrics": [metric] });
    scene.create("HorizontalPodAutoscaler", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
}

/// The same, and an autoscaler by an external metric.
async fn autoscaler(scene: &Scene, replicas: u32, running: u32) {
    deployment(scene, replicas, running).await;
    let metric = json!({ "type": "External", "external": { "metric": { "name": "queue" },
        "target": { "type": "AverageValue", "averageValue": "1" } } });
    scale_by(scene, &metric).await;
}

async fn status(scene: &Scene) -> Value {
    scene.get("HorizontalPodAutoscaler", "web").await["status"].clone()
}

async fn current(scene: &Scene) -> Value {
    status(scene).await["currentMetrics"][0]["external"]["current"]["averageValue"].clone()
}

async fn condition(scene: &Scene, name: &str) -> Value {
    let status = status(scene).await;
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|each| each["type"] == name).unwrap_or_default()
}

async fn is_evaluated(scene: &Scene) -> Outcome {
    let active = async || condition(scene, "ScalingActive").await["status"].clone();
    scene.waits("an evaluation", active, "True".into()).await
}

/// Differs: negative-external-average.
fn negative(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        say(&scene, "-5");
        autoscaler(&scene, 5, 5).await;
        let replicas = async || scene.get("Deployment", "web").await["spec"]["replicas"].clone();
        scene.sees("replicas", replicas, 9.into(), 2.into()).await
    })
}

/// Differs: status-of-others.
fn others(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        say(&scene, "5");
        autoscaler(&scene, 5, 5).await;
        scene.waits("an evaluation", || current(&scene), "1".into()).await?;
        scene.patch_status("HorizontalPodAutoscaler", "web", json!({ "observedGeneration": 7 })).await;
        say(&scene, "10");
        let seen = async || {
            let status = status(&scene).await;
            json!([current(&scene).await, status["observedGeneration"]])
        };
        scene.sees("the status", seen, json!(["2", null]), json!(["2", 7])).await
    })
}

/// Differs: average-of-no-pods.
fn no_pods(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        say(&scene, "6");
        autoscaler(&scene, 5, 0).await;
        is_evaluated(&scene).await?;
        let is_whole = async || (current(&scene).await == "6").into();
        scene.sees("the reported average is the whole usage", is_whole, false.into(), true.into()).await
    })
}

/// Differs: gauges-of-deleted-objects.
fn deleted(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        say(&scene, "5");
        autoscaler(&scene, 5, 5).await;
        is_evaluated(&scene).await?;
        let labels = format!("namespace=\"{}\"", scene.name);
        let has_series = async || {
            let page = scene.page("/metrics").await.text;
            let own = "horizontal_pod_autoscaler_controller_desired_replicas";
            page.lines().any(|line| line.starts_with(own) && line.contains(&labels)).into()
        };
        scene.waits("a series", has_series, true.into()).await?;
        scene.delete("HorizontalPodAutoscaler", "web", Background).await;
        scene.sees("the series of a deleted autoscaler", has_series, true.into(), false.into()).await
    })
}

/// Differs: answers-of-metrics-apis.
fn large_answer(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let item =
            json!({ "metricName": "queue", "metricLabels": {}, "timestamp": in_seconds(0), "value": "6" });
        let list = json!({ "kind": "ExternalMetricValueList", "apiVersion": format!("{EXTERNAL}/v1beta1"),
            "metadata": { "continue": "x".repeat(17 << 20) }, "items": [item] });
        let instead = BTreeMap::from([(EXTERNAL.to_owned(), Instead { code: 200, body: list, after: 0 })]);
        let numbers = Numbers { instead, ..Numbers::default() };
        scene.metrics.as_ref().expect("metrics APIs").say(&scene.name, numbers);
        autoscaler(&scene, 5, 5).await;
        let active = async || condition(&scene, "ScalingActive").await["status"].clone();
        let outcome = scene.sees("an answer of 17 MiB", active, "True".into(), "False".into()).await;
        scene.delete("HorizontalPodAutoscaler", "web", Background).await;
        outcome
    })
}

/// A pod that is being deleted, on a node that is out of service.
fn out_of_service(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = scene.own("n");
        let taint = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
        scene.create("Node", json!({ "metadata": { "name": name }, "spec": { "taints": [taint] } })).await;
        let ready = json!({ "type": "Ready", "status": "Unknown" });
        scene.patch_status("Node", &name, json!({ "conditions": [ready] })).await;
        let spec = json!({ "nodeName": name, "containers": [{ "name": "main", "image": "image:1" }] });
        scene.create("Pod", json!({ "metadata": { "name": "a" }, "spec": spec })).await;
        let params = kube::api::DeleteParams::default();
        drop(scene.api("Pod").delete("a", &params).await.expect("it is deleted"));
        Ok(())
    })
}

/// Differs: out-of-service-read-live.
fn forced(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene.waits("the pod", async || scene.get("Pod", "a").await, Value::Null).await?;
        let reads = async || (scene.sent("get", "nodes") > 0).into();
        scene.sees("GETs of the node", reads, false.into(), true.into()).await
    })
}
