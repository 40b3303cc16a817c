//! Autoscalers by the hundred: a metrics API that hangs delays its own autoscalers only, and requests of each sort have a rate limit of their
//! own.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::harness::{
    ControlPlane, Instead, MetricsApi, Namespace, Numbers, Options, by_depth, turn_beside_another, until,
};

const LIMIT: Duration = Duration::from_mins(5);
/// Objects that are made at a time.
const AT_A_TIME: usize = 16;

/// What waits: a queue of this length, by the API of custom metrics.
fn queue(length: &str) -> Numbers {
    let custom = BTreeMap::from([("services/queue/length".to_owned(), length.to_owned())]);
    Numbers { custom, ..Numbers::default() }
}

/// So many autoscalers, each of a ReplicationController whose pods nobody makes, by a metric.
async fn autoscalers(namespace: &Namespace, count: usize, metric: &Value) {
    let make = async |name: String| {
        let template = json!({
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "image" }] },
        });
        let _: ReplicationController = namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": { "replicas": 1, "selector": { "app": name }, "template": template },
            }))
            .await;
        let target = json!({ "apiVersion": "v1", "kind": "ReplicationController", "name": name });
        let spec =
            json!({ "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [metric] });
        let _: HorizontalPodAutoscaler =
            namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
    };
    let made = futures::stream::iter((0..count).map(|number| format!("target-{number}"))).map(make);
    made.buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;
}

/// How many replicas the autoscalers of a namespace want: how many of them want how many.
async fn wanted(namespace: &Namespace) -> BTreeMap<i32, usize> {
    let all = namespace.api::<HorizontalPodAutoscaler>().list(&ListParams::default()).await.expect("a list");
    let mut counts = BTreeMap::new();
    for held in all.items {
        *counts.entry(held.status.map_or(0, |status| status.desired_replicas)).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_metrics_api_that_hangs_delays_its_own_autoscalers_only() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let _manager = plane.coxswain(
        "coxswain",
        &[
            "--controllers=horizontal-pod-autoscaler-controller",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ],
    );
    let cluster = plane.cluster().await;
    let (slow, quick) = (cluster.namespace("slow").await, cluster.namespace("quick").await);
    let api = MetricsApi::start(&plane, &cluster.client, &["v1beta2"]).await;
    let for_ever = Instead { after: 3_600_000, ..Instead::default() };
    let instead = BTreeMap::from([("external.metrics.k8s.io".to_owned(), for_ever)]);
    api.say(&slow.name, Numbers { instead, ..Numbers::default() });
    api.say(&quick.name, queue("30"));

    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    let external = json!({ "metric": { "name": "length" }, "target": target });
    let object = json!({
        "metric": { "name": "length" },
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "queue" },
        "target": target,
    });
    let count = by_depth(60, 1000);
    autoscalers(&slow, count / 4, &json!({ "type": "External", "external": external })).await;
    let asked = async || api.asked(&slow.name).len();
    until("somebody waits for the API that hangs", LIMIT, asked, |asked| *asked > 0).await;
    autoscalers(&quick, count, &json!({ "type": "Object", "object": object })).await;

    // All the others follow their metric, and follow it again when it changes.
    for (length, replicas) in [("30", 3), ("60", 6)] {
        api.say(&quick.name, queue(length));
        let what = format!("all want {replicas} for a queue of {length}");
        let all = BTreeMap::from([(replicas, count)]);
        until(&what, LIMIT, || wanted(&quick), |held| *held == all).await;
    }
    assert_eq!(wanted(&slow).await, BTreeMap::from([(0, count / 4)]), "nothing was answered to these");
}

/// An evaluation takes a request for the scale, one of a metrics API, and one that writes the status. With one limit for all three they
/// would take three minutes at least.
#[tokio::test]
async fn each_sort_of_request_of_an_autoscaler_has_a_rate_limit_of_its_own() {
    const COUNT: usize = 120;
    let within = Duration::from_mins(2);
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("limited").await;
    let api = MetricsApi::start(&plane, &cluster.client, &["v1beta2"]).await;
    // What there is already is what is wanted, so nothing is scaled.
    api.say(&namespace.name, queue("10"));
    let object = json!({
        "metric": { "name": "length" },
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "queue" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    });
    autoscalers(&namespace, COUNT, &json!({ "type": "Object", "object": object })).await;
    let _manager = plane.coxswain(
        "coxswain",
        &["--controllers=horizontal-pod-autoscaler-controller", "--kube-api-qps=2", "--kube-api-burst=2"],
    );
    let all = BTreeMap::from([(1, COUNT)]);
    until("all are evaluated", within, || wanted(&namespace), |held| *held == all).await;
}
