//! HorizontalPodAutoscalers under Coxswain as the only manager, by the tools that people use, and in turns with the Go manager.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Client;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, MetricsApi, Namespace, Numbers, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
const CREDENTIALS: &str = "--use-service-account-credentials";
const PERIOD: &str = "--horizontal-pod-autoscaler-sync-period=1s";

/// Pods use so much of CPU each.
fn cpu(usage: &str) -> Numbers {
    let usage = BTreeMap::from([("cpu".to_owned(), usage.to_owned())]);
    // Measured in time to come: pods of a moment ago count.
    Numbers { usage, age: -60, ..Numbers::default() }
}

/// A Deployment whose pods request 100m of CPU.
async fn deployment(namespace: &Namespace, name: &str, replicas: i32) {
    let container =
        json!({ "name": "web", "image": "image:1", "resources": { "requests": { "cpu": "100m" } } });
    let spec = json!({ "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] } } });
    namespace.deployment(name, replicas, spec).await;
}

async fn autoscaler(namespace: &Namespace, name: &str) -> Value {
    let found = namespace.api::<HorizontalPodAutoscaler>().get(name).await.expect("the autoscaler");
    serde_json::to_value(found).expect("JSON")
}

/// Waits for what an autoscaler says.
async fn says(namespace: &Namespace, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(&format!("{name}: {what}"), LIMIT, || autoscaler(namespace, name), |held| wanted(held)).await
}

fn reason<'a>(held: &'a Value, kind: &str) -> &'a str {
    let mut all = held["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|each| each["type"] == kind).and_then(|each| each["reason"].as_str()).unwrap_or_default()
}

fn nothing_was_forbidden(plane: &ControlPlane) {
    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
}

async fn metrics(plane: &ControlPlane, client: &Client) -> MetricsApi {
    MetricsApi::start(plane, client, &["v1beta1", "v1beta2"]).await
}

#[tokio::test]
async fn kubectl_makes_an_autoscaler_and_shows_it() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &[CREDENTIALS, PERIOD]);
    let cluster = plane.cluster().await;
    let api = metrics(&plane, &cluster.client).await;
    let namespace = cluster.namespace("autoscaling").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    api.say(&namespace.name, cpu("80m"));
    deployment(&namespace, "web", 1).await;
    kubectl(&["autoscale", "deployment", "web", "--cpu=50%", "--min=1", "--max=3"]);
    says(&namespace, "web", "as many as may be", |held| {
        held["status"]["currentReplicas"] == 3 && reason(held, "ScalingLimited") == "TooManyReplicas"
    })
    .await;
    let row = kubectl(&["get", "hpa", "--no-headers"]);
    let columns: Vec<&str> = row.split_whitespace().take(6).collect();
    assert_eq!(columns, ["web", "Deployment/web", "cpu:", "80%/50%", "1", "3"]);
    let told = kubectl(&["describe", "hpa", "web"]);
    for text in [
        "SuccessfulRescale",
        "TooManyReplicas",
        "cpu resource utilization (percentage of request) above target",
    ] {
        assert!(told.contains(text), "{text:?} is not in {told}");
    }
    // An API that is slow to answer delays whom it concerns, and no other.
    let slow = cluster.namespace("slow").await;
    deployment(&slow, "web", 1).await;
    let instead = crate::harness::Instead { after: 20_000, ..Default::default() };
    api.say(
        &slow.name,
        Numbers { instead: BTreeMap::from([("metrics.k8s.io".to_owned(), instead)]), ..cpu("50m") },
    );
    plane.kubectl(&["-n", &slow.name, "autoscale", "deployment", "web", "--cpu=50%", "--min=1", "--max=3"]);
    let asked = || async { api.asked(&slow.name).len() };
    until("the slow API is asked", LIMIT, asked, |count| *count > 0).await;
    kubectl(&["patch", "hpa", "web", "--type=merge", "-p", r#"{"spec":{"maxReplicas":4}}"#]);
    says(&namespace, "web", "one more", |held| held["status"]["currentReplicas"] == 4).await;
    assert_eq!(
        reason(&autoscaler(&slow, "web").await, "ScalingActive"),
        "",
        "the slow one has no answer yet"
    );
    custom_resources_are_scaled(&plane, &cluster.namespace("custom").await, &api).await;
    nothing_was_forbidden(&plane);
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// A kind that was just defined, with a scale: it is scaled by that, up and down again.
async fn custom_resources_are_scaled(plane: &ControlPlane, namespace: &Namespace, api: &MetricsApi) {
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        kubectl(&["apply", "-f", file.path().to_str().expect("text")]);
    };
    let queue = |length: &str| Numbers {
        external: BTreeMap::from([("queue".to_owned(), vec![length.to_owned()])]),
        ..Numbers::default()
    };
    api.say(&namespace.name, queue("30"));
    apply(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "rollouts.scaled.example.com" },
        "spec": {
            "group": "scaled.example.com",
            "scope": "Namespaced",
            "names": { "kind": "Rollout", "plural": "rollouts", "singular": "rollout" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                "subresources": { "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                } },
            }],
        },
    }));
    kubectl(&["wait", "--for=condition=Established", "crd/rollouts.scaled.example.com", "--timeout=60s"]);
    apply(json!({
        "apiVersion": "scaled.example.com/v1", "kind": "Rollout", "metadata": { "name": "roll" },
        "spec": { "replicas": 1 }, "status": { "replicas": 1, "selector": "app=roll" },
    }));
    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    let spec = json!({
        "scaleTargetRef": { "apiVersion": "scaled.example.com/v1", "kind": "Rollout", "name": "roll" },
        "minReplicas": 1, "maxReplicas": 6,
        "metrics": [{ "type": "External", "external": { "metric": { "name": "queue" }, "target": target } }],
        "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 } },
    });
    let _: HorizontalPodAutoscaler =
        namespace.create(json!({ "metadata": { "name": "roll" }, "spec": spec })).await;
    let replicas = || async {
        kubectl(&["get", "rollouts.scaled.example.com", "roll", "-o", "jsonpath={.spec.replicas}"])
    };
    until("three replicas for a queue of thirty", LIMIT, replicas, |count| count == "3").await;
    kubectl(&[
        "patch",
        "rollouts.scaled.example.com",
        "roll",
        "--type=merge",
        "-p",
        r#"{"status":{"replicas":3}}"#,
    ]);
    says(namespace, "roll", "as many as are wanted", |held| held["status"]["currentReplicas"] == 3).await;
    api.say(&namespace.name, queue("20"));
    until("two replicas for a queue of twenty", LIMIT, replicas, |count| count == "2").await;
}

#[tokio::test]
async fn windows_that_run_are_kept_when_managers_take_turns() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let args = [
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=500ms",
        PERIOD,
    ];
    let cluster = plane.cluster().await;
    let go = plane.go_manager("go-1", &args);
    let api = metrics(&plane, &cluster.client).await;
    let namespace = cluster.namespace("turns").await;
    api.say(&namespace.name, cpu("10m"));
    deployment(&namespace, "web", 4).await;
    let spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "minReplicas": 1, "maxReplicas": 6,
        "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }],
    });
    let _: HorizontalPodAutoscaler =
        namespace.create(json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    // It is to shrink, and is not to yet.
    let stays = |held: &Value| {
        held["status"]["desiredReplicas"] == 4
            && reason(held, "AbleToScale") == "ScaleDownStabilized"
            && held["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 10
    };
    let before = says(&namespace, "web", "it waits to shrink", stays).await;
    let taken_over = |held: &Value, asked: usize| {
        assert!(stays(held), "{held}");
        assert_eq!(
            held["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
            "it was written"
        );
        asked
    };
    go.stop();
    let turn = async |name: &'static str| {
        let asked = api.asked(&namespace.name).len();
        let more = || async { api.asked(&namespace.name).len() };
        until(&format!("{name} looks several times"), LIMIT, more, |count| *count > asked + 4).await;
        taken_over(&autoscaler(&namespace, "web").await, asked);
    };
    let ours = plane.coxswain("coxswain-1", &args);
    turn("Coxswain").await;
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    turn("the Go manager").await;
    drop(go);
}
