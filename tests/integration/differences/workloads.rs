//! Rows about Deployments, DaemonSets, StatefulSets, Jobs, CronJobs, budgets and bootstrap tokens.

use std::sync::Arc;

use kube::api::PropagationPolicy::Background;
use serde_json::{Value, json};

use super::scene::{Scene, controller, in_seconds};
use super::{Area, Case, Played, Taken, nothing};
use crate::harness::Program;

/// No controller of ReplicationControllers, namespaces, Pods or garbage: cases play these.
pub(super) const AREA: Area = Area {
    cases: &[
        Case {
            id: "long-statefulset-names",
            prepare: nothing,
            play: long_stateful_set,
            taken: Taken::Disputed(has_a_pod),
        },
        Case {
            id: "long-daemonset-names",
            prepare: nothing,
            play: long_daemon_set,
            taken: Taken::Mended(has_a_pod),
        },
        Case {
            id: "single-replicaset-note",
            prepare: nothing,
            play: wrong_note,
            taken: Taken::Mended(rolls_out),
        },
        Case {
            id: "recreate-after-ended-pods",
            prepare: nothing,
            play: recreate,
            taken: Taken::Mended(recreates),
        },
        Case { id: "pods-of-missing-nodes", prepare: nothing, play: surge, taken: Taken::Mended(surges) },
        Case { id: "jobs-by-uid", prepare: nothing, play: namesake_of_a_cron_job, taken: Taken::Moving },
        Case {
            id: "disowned-jobs",
            prepare: nothing,
            play: disowned_job,
            taken: Taken::Mended(drops_the_job),
        },
        Case {
            id: "foreign-failure-reasons",
            prepare: nothing,
            play: foreign_reason,
            taken: Taken::Unchanged,
        },
        Case {
            id: "failed-budgets-retried",
            prepare: nothing,
            play: late_controller,
            taken: Taken::Mended(opens),
        },
        Case { id: "claims-with-owner", prepare: nothing, play: owned_claim, taken: Taken::Unchanged },
        Case {
            id: "token-deletes-retried",
            prepare: refused_token,
            play: permitted_token,
            taken: Taken::Moving,
        },
    ],
    plane: &[],
    args: &[
        "--controllers=deployment-controller,replicaset-controller,daemonset-controller,statefulset-controller,\
         job-controller,cronjob-controller,disruption-controller,token-cleaner-controller",
        "--feature-gates=DeploymentReplicaSetTerminatingReplicas=false",
    ],
    has_metrics_apis: false,
    is_recorded: false,
};

/// A template of pods that no scheduler looks at.
fn template(app: &str, image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } }, "spec": { "schedulerName": "nobody",
        "terminationGracePeriodSeconds": 0, "containers": [{ "name": "main", "image": image }] } })
}

fn selector(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

async fn node(scene: &Scene, name: &str, label: &str) {
    let labels = json!({ "case": label });
    scene.create("Node", json!({ "metadata": { "name": name, "labels": labels } })).await;
}

/// A DaemonSet for the nodes with the label.
async fn daemon_set(scene: &Scene, name: &str, app: &str, label: &str) {
    let mut pod = template(app, "image:1");
    pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    pod["spec"]["nodeSelector"] = json!({ "case": label });
    let spec = json!({ "selector": selector(app), "template": pod });
    scene.create("DaemonSet", json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// The number of pods with this label.
async fn pods(scene: &Scene, app: &str) -> Value {
    let pods = scene.list("Pod").await;
    pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).count().into()
}

fn has_a_pod(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("a pod", || pods(&scene, "web"), 1.into()).await })
}

/// Differs: long-statefulset-names.
fn long_stateful_set(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = "s".repeat(57);
        let spec = json!({ "serviceName": "web", "selector": selector("web"), "template": template("web", "image:1") });
        scene.create("StatefulSet", json!({ "metadata": { "name": name }, "spec": spec })).await;
        let look = async || {
            let refused = !scene.events(&scene.name, &name, "FailedCreate").await.is_empty();
            json!({ "pods": pods(&scene, "web").await, "refused": refused })
        };
        let (theirs, ours) = (json!({ "pods": 0, "refused": true }), json!({ "pods": 1, "refused": false }));
        scene.sees("pods of a StatefulSet with a long name", look, theirs, ours).await
    })
}

/// Differs: long-daemonset-names.
fn long_daemon_set(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        node(&scene, &scene.own("n"), &scene.name).await;
        daemon_set(&scene, &"d".repeat(250), "web", &scene.name).await;
        daemon_set(&scene, "short", "short", &scene.name).await;
        scene.waits("a pod of another DaemonSet", || pods(&scene, "short"), 1.into()).await?;
        scene.sees("pods of a DaemonSet with a long name", || pods(&scene, "web"), 0.into(), 1.into()).await
    })
}

const NOTE: &str = "deployment.kubernetes.io/desired-replicas";

async fn deployment(scene: &Scene, replicas: u32) {
    let spec =
        json!({ "replicas": replicas, "selector": selector("web"), "template": template("web", "image:1") });
    scene.create("Deployment", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
}

async fn set_image(scene: &Scene, image: &str) {
    let containers = json!([{ "name": "main", "image": image }]);
    let spec = json!({ "template": { "spec": { "containers": containers } } });
    scene.patch("Deployment", "web", json!({ "spec": spec })).await;
}

/// The ReplicaSets by image: revision, note and creation.
async fn replica_sets(scene: &Scene) -> Vec<(String, Value)> {
    let sets = scene.list("ReplicaSet").await.into_iter();
    let mut sets: Vec<_> = sets
        .map(|set| {
            let image =
                set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
            (image.to_owned(), set["metadata"].clone())
        })
        .collect();
    sets.sort_by(|a, b| a.0.cmp(&b.0));
    sets
}

async fn images(scene: &Scene) -> Value {
    replica_sets(scene).await.into_iter().map(|(image, _)| image).collect::<Vec<_>>().into()
}

/// The generation of the Deployment has been seen.
async fn is_observed(scene: &Scene) -> bool {
    let web = scene.get("Deployment", "web").await;
    web["status"]["observedGeneration"] == web["metadata"]["generation"]
}

/// Differs: single-replicaset-note.
fn wrong_note(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        deployment(&scene, 1).await;
        let note = async || {
            let sets = replica_sets(&scene).await;
            sets.first().map_or(Value::Null, |(_, metadata)| metadata["annotations"][NOTE].clone())
        };
        scene.waits("a ReplicaSet", note, "1".into()).await?;
        let name = replica_sets(&scene).await[0].1["name"].as_str().expect("a name").to_owned();
        scene.patch("ReplicaSet", &name, json!({ "metadata": { "annotations": { NOTE: "9" } } })).await;
        scene.sees("the note", note, "9".into(), "1".into()).await?;
        set_image(&scene, "image:2").await;
        let look = async || json!([is_observed(&scene).await, images(&scene).await]);
        let (theirs, ours) = (json!([true, ["image:1"]]), json!([true, ["image:1", "image:2"]]));
        scene.sees("a rollout", look, theirs, ours).await
    })
}

fn rolls_out(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let both = json!(["image:1", "image:2"]);
        scene.waits("the rollout that kube-controller-manager left", || images(&scene), both).await
    })
}

async fn cron_job(scene: &Scene) -> Value {
    let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "image:1" }] } });
    let spec = json!({ "schedule": "0 0 1 1 *", "suspend": true, "successfulJobsHistoryLimit": 0,
        "jobTemplate": { "spec": { "template": pod } } });
    let cron = scene.create("CronJob", json!({ "metadata": { "name": "cron" }, "spec": spec })).await;
    cron["metadata"]["uid"].clone()
}

/// A Job that nobody runs, of a CronJob.
async fn job(scene: &Scene, name: &str, owner: &Value) -> Value {
    let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "image:1" }] } });
    let metadata =
        json!({ "name": name, "ownerReferences": controller("batch/v1", "CronJob", "cron", owner) });
    let spec = json!({ "managedBy": "example.com/nobody", "template": pod });
    scene.create("Job", json!({ "metadata": metadata, "spec": spec })).await
}

async fn complete(scene: &Scene, job: &str) {
    let now = in_seconds(0);
    let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": now, "lastProbeTime": now });
    let status = json!({ "startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] });
    scene.patch_status("Job", job, status).await;
}

async fn jobs(scene: &Scene) -> Value {
    let all = scene.list("Job").await;
    all.iter().map(|job| job["metadata"]["name"].clone()).collect::<Vec<_>>().into()
}

/// Differs: jobs-by-uid.
fn namesake_of_a_cron_job(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let uid = cron_job(&scene).await;
        job(&scene, "of-another", &"11111111-2222-3333-4444-555555555555".into()).await;
        job(&scene, "own", &uid).await;
        complete(&scene, "of-another").await;
        complete(&scene, "own").await;
        let own = async || scene.get("Job", "own").await;
        scene.waits("a Job of the history to be deleted", own, Value::Null).await?;
        scene.sees("Jobs", || jobs(&scene), json!([]), json!(["of-another"])).await
    })
}

async fn active(scene: &Scene) -> Value {
    let cron = scene.get("CronJob", "cron").await;
    cron["status"]["active"].as_array().map_or(0, Vec::len).into()
}

/// Differs: disowned-jobs.
fn disowned_job(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let uid = cron_job(&scene).await;
        let lost = job(&scene, "lost", &uid).await;
        job(&scene, "own", &uid).await;
        let reference = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "lost",
            "namespace": scene.name, "uid": lost["metadata"]["uid"] });
        scene.patch_status("CronJob", "cron", json!({ "active": [reference] })).await;
        scene.patch("Job", "lost", json!({ "metadata": { "ownerReferences": null } })).await;
        complete(&scene, "lost").await;
        complete(&scene, "own").await;
        let own = async || scene.get("Job", "own").await;
        scene.waits("a Job of the history to be deleted", own, Value::Null).await?;
        scene.sees("active Jobs", || active(&scene), 1.into(), 0.into()).await
    })
}

fn drops_the_job(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("active Jobs", || active(&scene), 0.into()).await })
}

/// Differs: foreign-failure-reasons.
fn foreign_reason(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let mut pod = template("web", "image:1");
        pod["spec"]["restartPolicy"] = "Never".into();
        scene.create("Job", json!({ "metadata": { "name": "web" }, "spec": { "template": pod } })).await;
        scene.waits("a pod", || pods(&scene, "web"), 1.into()).await?;
        let started = async || scene.get("Job", "web").await["status"]["active"].clone();
        scene.waits("the pod is counted", started, 1.into()).await?;
        let condition =
            json!({ "type": "FailureTarget", "status": "True", "reason": "Weird", "message": "by hand" });
        scene.patch_status("Job", "web", json!({ "conditions": [condition] })).await;
        let reasons = async || {
            let mut reasons = Vec::new();
            for reason in ["Weird", "Failed"] {
                if !scene.events(&scene.name, "web", reason).await.is_empty() {
                    reasons.push(reason);
                }
            }
            json!(reasons)
        };
        scene.sees("the reason of the Event", reasons, json!(["Weird"]), json!(["Failed"])).await
    })
}

async fn budget(scene: &Scene, name: &str, app: &str, rule: Value) {
    let mut spec = rule;
    spec["selector"] = selector(app);
    scene.create("PodDisruptionBudget", json!({ "metadata": { "name": name }, "spec": spec })).await;
}

async fn budget_status(scene: &Scene, name: &str) -> Value {
    scene.get("PodDisruptionBudget", name).await["status"].clone()
}

/// Waits until a budget that is created now has a status: changes that came before have been seen.
async fn marker_budget(scene: &Scene) -> super::Outcome {
    budget(scene, "marker", "none", json!({ "minAvailable": 1 })).await;
    let look = async || budget_status(scene, "marker").await["observedGeneration"].clone();
    scene.waits("the status of another budget", look, 1.into()).await
}

async fn allowed(scene: &Scene) -> Value {
    budget_status(scene, "web").await["disruptionsAllowed"].clone()
}

/// Differs: failed-budgets-retried.
fn late_controller(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let uid = json!(format!("11111111-2222-3333-4444-{:012}", scene.number));
        let owners = controller("apps/v1", "ReplicaSet", "late", &uid);
        scene.pod("a", json!({ "app": "web" }), owners).await;
        scene.ready("a", &["192.0.2.1"]).await;
        budget(&scene, "web", "web", json!({ "maxUnavailable": 1 })).await;
        let reason = async || budget_status(&scene, "web").await["conditions"][0]["reason"].clone();
        scene.waits("a failure", reason, "SyncFailed".into()).await?;
        let metadata = json!({ "name": "late", "namespace": scene.name, "uid": uid,
            "creationTimestamp": in_seconds(0), "generation": 1 });
        let spec =
            json!({ "replicas": 1, "selector": selector("web"), "template": template("web", "image:1") });
        let late =
            json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec });
        scene.store(&format!("replicasets/{}", scene.name), &late).await;
        let seen = async || scene.get("ReplicaSet", "late").await["status"]["readyReplicas"].clone();
        scene.waits("the ReplicaSet has a status", seen, 1.into()).await?;
        marker_budget(&scene).await?;
        scene.sees("allowed disruptions", || allowed(&scene), 0.into(), 1.into()).await
    })
}

fn opens(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("allowed disruptions", || allowed(&scene), 1.into()).await })
}

/// Differs: claims-with-owner.
fn owned_claim(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } });
        let spec = json!({ "serviceName": "web", "selector": selector("web"), "template": template("web", "image:1"),
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
            "volumeClaimTemplates": [claim] });
        scene.create("StatefulSet", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
        let owner = async || {
            let claim = scene.get("PersistentVolumeClaim", "data-web-0").await;
            claim["metadata"]["ownerReferences"][0]["kind"].clone()
        };
        scene.waits("the owner of the claim", owner, "StatefulSet".into()).await?;
        let updates = async || (scene.sent("update", "persistentvolumeclaims") > 0).into();
        scene.sees("updates of the claim", updates, true.into(), false.into()).await
    })
}

fn token_name(scene: &Scene) -> String {
    format!("bootstrap-token-{:06}", scene.number)
}

async fn token(scene: &Scene, name: &str) {
    let id = name.trim_start_matches("bootstrap-token-");
    let data =
        json!({ "token-id": id, "token-secret": "0123456789abcdef", "expiration": "2020-01-01T00:00:00Z" });
    let body =
        json!({ "metadata": { "name": name }, "type": "bootstrap.kubernetes.io/token", "stringData": data });
    scene.create_in("Secret", "kube-system", body).await;
}

async fn has_token(scene: &Scene, name: &str) -> Value {
    scene.api_in("Secret", "kube-system").get_opt(name).await.expect("an answer").is_some().into()
}

/// An expired token that nobody may delete.
fn refused_token(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = token_name(&scene);
        token(&scene, &name).await;
        scene.refuse_deletes("secrets", &name, ("Secret", "kube-system", &name)).await
    })
}

/// Differs: token-deletes-retried.
fn permitted_token(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let (name, marker) = (token_name(&scene), format!("bootstrap-token-{:06}", 500 + scene.number));
        let refused = async || {
            let all = scene.all_requests();
            all.iter().any(|event| event.verb == "delete" && event.object_ref.name == name).into()
        };
        scene.waits("a refused delete", refused, true.into()).await?;
        scene.permit_deletes(("Secret", "kube-system", &name)).await?;
        token(&scene, &marker).await;
        scene.waits("another token is deleted", || has_token(&scene, &marker), false.into()).await?;
        scene.sees("the token", || has_token(&scene, &name), true.into(), false.into()).await?;
        if scene.program == Program::Go {
            // Another case must not find it when Coxswain takes over.
            let api = scene.api_in("Secret", "kube-system");
            drop(api.delete(&name, &kube::api::DeleteParams::default()).await.expect("it is deleted"));
        }
        Ok(())
    })
}

async fn has_image(scene: &Scene, image: &str) -> Value {
    let pods = scene.list("Pod").await;
    pods.iter().any(|pod| pod["spec"]["containers"][0]["image"] == image).into()
}

/// Assigns a pod to a node, as a scheduler does.
async fn bind(scene: &Scene, pod: &str, node: &str) {
    let body = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node } });
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/binding", scene.name);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    let bound: Result<Value, _> = scene.cluster.client.request(request).await;
    drop(bound.unwrap_or_else(|error| panic!("{pod} is bound to {node}: {error}")));
}

/// Differs: pods-of-missing-nodes.
fn surge(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let nodes = [scene.own("gone"), scene.own("kept")];
        for name in &nodes {
            node(&scene, name, &scene.name).await;
        }
        let mut pod = template("web", "image:1");
        pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
        pod["spec"]["nodeSelector"] = json!({ "case": scene.name });
        let strategy = json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
        let spec = json!({ "selector": selector("web"), "template": pod, "updateStrategy": strategy });
        scene.create("DaemonSet", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
        scene.waits("two pods", || pods(&scene, "web"), 2.into()).await?;
        for pod in scene.list("Pod").await {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            // The affinity of the pod names the node.
            let affinity = pod["spec"]["affinity"].to_string();
            let target = nodes.iter().find(|node| affinity.contains(node.as_str())).expect("a node");
            bind(&scene, name, target).await;
            scene.ready(name, &["192.0.2.1"]).await;
        }
        let ready = async || scene.get("DaemonSet", "web").await["status"]["numberReady"].clone();
        scene.waits("two ready pods", ready, 2.into()).await?;
        scene.delete("Node", &nodes[0], Background).await;
        let containers = json!([{ "name": "main", "image": "image:2" }]);
        scene
            .patch(
                "DaemonSet",
                "web",
                json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
            )
            .await;
        node(&scene, &scene.own("marker"), &scene.own("marker")).await;
        daemon_set(&scene, "marker", "marker", &scene.own("marker")).await;
        scene.waits("a pod of another DaemonSet", || pods(&scene, "marker"), 1.into()).await?;
        scene
            .sees(
                "a pod of the new template",
                async || has_image(&scene, "image:2").await,
                false.into(),
                true.into(),
            )
            .await
    })
}

fn surges(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene
            .waits("a pod of the new template", async || has_image(&scene, "image:2").await, true.into())
            .await
    })
}

/// Differs: recreate-after-ended-pods.
fn recreate(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let spec = json!({ "replicas": 1, "strategy": { "type": "Recreate" }, "selector": selector("web"),
            "template": template("web", "image:1") });
        scene.create("Deployment", json!({ "metadata": { "name": "web" }, "spec": spec })).await;
        scene.waits("a pod", || pods(&scene, "web"), 1.into()).await?;
        let name = scene.list("Pod").await[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        scene.patch("Pod", &name, json!({ "metadata": { "finalizers": ["example.com/held"] } })).await;
        set_image(&scene, "image:2").await;
        let is_deleted =
            async || scene.get("Pod", &name).await["metadata"]["deletionTimestamp"].is_string().into();
        scene.waits("the pod is deleted", is_deleted, true.into()).await?;
        let observed = async || is_observed(&scene).await.into();
        scene.waits("the Deployment waits", observed, true.into()).await?;
        scene.patch_status("Pod", &name, json!({ "phase": "Succeeded" })).await;
        // Another Deployment shows that the end of the pod has been seen.
        let spec = json!({ "replicas": 1, "selector": selector("marker"), "template": template("marker", "image:1") });
        scene.create("Deployment", json!({ "metadata": { "name": "marker" }, "spec": spec })).await;
        scene.waits("a pod of another", || pods(&scene, "marker"), 1.into()).await?;
        scene.sees("a new pod", async || has_image(&scene, "image:2").await, false.into(), true.into()).await
    })
}

fn recreates(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene.waits("a new pod", async || has_image(&scene, "image:2").await, true.into()).await
    })
}
