//! Rows about preconditions of writes, and reads before them. Both managers speak JSON through a proxy that records the bodies.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::scene::{Scene, in_seconds};
use super::{Area, Case, Played, Taken, nothing};

pub(super) const AREA: Area = Area {
    cases: &[
        Case { id: "pods-by-uid", prepare: nothing, play: stateful_set, taken: Taken::Unchanged },
        Case { id: "unavailable-pods-as-seen", prepare: nothing, play: unavailable, taken: Taken::Unchanged },
        Case { id: "judged-version", prepare: nothing, play: judged, taken: Taken::Unchanged },
        Case { id: "ttl-delete-by-version", prepare: nothing, play: finished_job, taken: Taken::Unchanged },
        Case { id: "ttl-patch-with-uid", prepare: nothing, play: node_annotation, taken: Taken::Unchanged },
        Case { id: "condition-at-judged-version", prepare: nothing, play: evicted, taken: Taken::Unchanged },
    ],
    plane: &[],
    args: &[
        "--controllers=statefulset-controller,daemonset-controller,job-controller,ttl-after-finished-controller,\
         ttl-controller,taint-eviction-controller,node-lifecycle-controller",
        "--node-monitor-grace-period=3s",
        "--node-monitor-period=1s",
        "--node-startup-grace-period=1h",
    ],
    has_metrics_apis: false,
    is_recorded: true,
};

/// What a delete requires: a UID, a version.
fn required(body: Option<&Value>) -> Value {
    let preconditions = body.map_or(Value::Null, |body| body["preconditions"].clone());
    json!({ "uid": preconditions["uid"].is_string(), "version": preconditions["resourceVersion"].is_string() })
}

fn bodies(scene: &Scene, method: &Method, end: &str) -> Vec<Value> {
    scene.recorder.as_ref().expect("a recorder").bodies(method, end)
}

/// Whether a request was sent, by the audit log; a DELETE without a body is not recorded.
fn is_sent(scene: &Scene, verb: &str, resource: &str, name: &str) -> bool {
    let all = scene.requests();
    all.iter()
        .any(|event| event.verb == verb && event.resource() == resource && event.object_ref.name == name)
}

/// Waits until an object was deleted by the manager, and returns what the delete required.
async fn deleted(scene: &Scene, resource: &str, name: &str) -> Result<Value, String> {
    let sent = async || is_sent(scene, "delete", resource, name).into();
    scene.waits(&format!("a delete of {name}"), sent, true.into()).await?;
    let end = format!("/namespaces/{}/{resource}/{name}", scene.name);
    Ok(required(bodies(scene, &Method::DELETE, &end).first()))
}

fn compare(scene: &Scene, what: &str, seen: &Value, theirs: Value, ours: Value) -> super::Outcome {
    let expected = if scene.program == crate::harness::Program::Go { theirs } else { ours };
    if *seen == expected { Ok(()) } else { Err(format!("{what}: {expected} was expected, seen: {seen}")) }
}

const NOTHING: (bool, bool) = (false, false);

fn requires((uid, version): (bool, bool)) -> Value {
    json!({ "uid": uid, "version": version })
}

fn template(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } }, "spec": { "schedulerName": "nobody",
        "terminationGracePeriodSeconds": 0, "containers": [{ "name": "main", "image": "image:1" }] } })
}

async fn pod_names(scene: &Scene) -> Vec<String> {
    let pods = scene.list("Pod").await.into_iter();
    pods.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Differs: pods-by-uid.
fn stateful_set(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let spec = json!({ "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "web",
            "selector": { "matchLabels": { "app": "web" } }, "template": template("web") });
        scene.create("StatefulSet", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
        scene.waits("two pods", async || pod_names(&scene).await.len().into(), 2.into()).await?;
        for name in ["web-0", "web-1"] {
            scene.ready(name, &["192.0.2.1"]).await;
        }
        scene.patch("StatefulSet", "web", json!({ "spec": { "replicas": 1 } })).await;
        let seen = deleted(&scene, "pods", "web-1").await?["uid"].clone();
        compare(&scene, "the delete has a UID", &seen, false.into(), true.into())
    })
}

/// A DaemonSet on a node of its own, whose pod does not run, and a new template. Returns what the delete of the pod required.
async fn rolled_daemon_set(scene: &Scene) -> Result<Value, String> {
    let labels = json!({ "case": scene.name });
    scene.create("Node", json!({ "metadata": { "name": scene.own("n"), "labels": labels } })).await;
    let mut pod = template("web");
    pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    pod["spec"]["nodeSelector"] = labels;
    let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": pod });
    scene.create("DaemonSet", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    scene.waits("a pod", async || pod_names(scene).await.len().into(), 1.into()).await?;
    let name = pod_names(scene).await.remove(0);
    let containers = json!([{ "name": "main", "image": "image:2" }]);
    let spec = json!({ "template": { "spec": { "containers": containers } } });
    scene.patch("DaemonSet", "web", json!({ "spec": spec })).await;
    deleted(scene, "pods", &name).await
}

/// Differs: unavailable-pods-as-seen.
fn unavailable(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let seen = rolled_daemon_set(&scene).await?["version"].clone();
        compare(&scene, "the delete has a version", &seen, false.into(), true.into())
    })
}

/// Differs: judged-version.
fn judged(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let seen = rolled_daemon_set(&scene).await?;
        compare(&scene, "the delete has preconditions", &seen, requires(NOTHING), requires((true, true)))
    })
}

/// Differs: ttl-delete-by-version.
fn finished_job(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "image:1" }] } });
        let spec =
            json!({ "managedBy": "example.com/nobody", "ttlSecondsAfterFinished": 0, "template": pod });
        scene.create("Job", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
        let now = in_seconds(0);
        let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": now, "lastProbeTime": now });
        let status = json!({ "startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] });
        scene.patch_status("Job", "web", status).await;
        let required = deleted(&scene, "jobs", "web").await?;
        let seen = json!({ "version": required["version"], "read": is_sent(&scene, "get", "jobs", "web") });
        let (theirs, ours) =
            (json!({ "version": false, "read": true }), json!({ "version": true, "read": false }));
        compare(&scene, "the delete and a GET before it", &seen, theirs, ours)
    })
}

/// Differs: ttl-patch-with-uid.
fn node_annotation(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = scene.own("n");
        scene.create("Node", json!({ "metadata": { "name": name } })).await;
        let ttl = async || {
            scene.get("Node", &name).await["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].clone()
        };
        scene.waits("the annotation", ttl, "0".into()).await?;
        let patches = bodies(&scene, &Method::PATCH, &format!("/nodes/{name}"));
        let own = patches.iter().find(|body| body["metadata"]["annotations"].is_object());
        let seen = own.map_or(Value::Null, |body| body["metadata"]["uid"].is_string().into());
        compare(&scene, "the patch has a UID", &seen, false.into(), true.into())
    })
}

/// Differs: condition-at-judged-version.
fn evicted(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = scene.own("n");
        let taint = json!({ "key": "example.com/out", "effect": "NoExecute" });
        scene.create("Node", json!({ "metadata": { "name": name }, "spec": { "taints": [taint] } })).await;
        // The annotation of another controller shows that the Node is known.
        let ttl = async || {
            scene.get("Node", &name).await["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].clone()
        };
        scene.waits("the node is seen", ttl, "0".into()).await?;
        let spec = json!({ "nodeName": name, "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "image:1" }] });
        scene.create("Pod", json!({ "metadata": { "name": "a" }, "spec": spec })).await;
        deleted(&scene, "pods", "a").await?;
        let patches = bodies(&scene, &Method::PATCH, &format!("/namespaces/{}/pods/a/status", scene.name));
        let seen = patches.first().map(|body| body["metadata"]["resourceVersion"].is_string());
        compare(&scene, "the condition has a version", &json!(seen), json!(false), json!(true))
    })
}
