//! Faults of kube-controller-manager 1.36 that Coxswain does not have. Each test runs Coxswain alone.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::deployments::settled;
use crate::harness::{
    ControlPlane, MetricsApi, Namespace, Numbers, Options, create, eventually, object, turn_beside_another,
    until, webhook,
};

const LIMIT: Duration = Duration::from_mins(2);

fn template(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "web", "image": "image:1" }] } })
}

async fn pod_names(namespace: &Namespace) -> Vec<String> {
    let pods = namespace.pods().await;
    let mut names: Vec<String> = pods.into_iter().filter_map(|pod| pod.metadata.name).collect();
    names.sort_unstable();
    names
}

/// kube-controller-manager looks for activations after now minus the deadline. With `@every` the first one then is always in the future.
#[tokio::test]
async fn cron_job_with_every_and_a_shorter_starting_deadline_starts_jobs() {
    let namespace = ControlPlane::shared().cluster().await.namespace("every").await;
    let spec = json!({ "schedule": "@every 15s", "startingDeadlineSeconds": 10, "jobTemplate": { "spec": {
        "managedBy": "example.com/by-hand",
        "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "image" }] } },
    } } });
    let _: CronJob = namespace.create(json!({ "metadata": { "name": "often" }, "spec": spec })).await;
    let jobs = async || namespace.api::<Job>().list(&ListParams::default()).await.expect("Jobs").items.len();
    until("a Job", LIMIT, jobs, |count| *count > 0).await;
    namespace.api::<CronJob>().delete("often", &DeleteParams::default()).await.expect("it is deleted");
}

/// The refused create of a pod kept surplus pods, which filled the quota.
#[tokio::test]
async fn parallel_stateful_set_whose_pod_a_quota_refuses_is_scaled_down() {
    let namespace = ControlPlane::shared().cluster().await.namespace("surplus").await;
    namespace.default_account().await;
    let quotas = namespace.api::<ResourceQuota>();
    let counted = async |pods: &str| {
        let hard = async || {
            let status = quotas.get("few").await.expect("the quota").status.unwrap_or_default();
            status.used.and(status.hard)
        };
        let is_in_force = |hard: &Option<BTreeMap<String, _>>| {
            hard.as_ref()
                .and_then(|hard| hard.get("pods"))
                .is_some_and(|held: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| held.0 == pods)
        };
        until("the quota is counted", LIMIT, hard, is_in_force).await;
    };
    let _: ResourceQuota =
        namespace.create(json!({ "metadata": { "name": "few" }, "spec": { "hard": { "pods": "4" } } })).await;
    counted("4").await;
    let spec = json!({ "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "web",
        "selector": { "matchLabels": { "app": "web" } }, "template": template("web") });
    let _: StatefulSet = namespace.create(json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    let sets = namespace.api::<StatefulSet>();
    let ready = async || {
        let status = sets.get("web").await.expect("the StatefulSet").status.unwrap_or_default();
        status.ready_replicas.unwrap_or(0)
    };
    until("two pods", LIMIT, ready, |ready| *ready == 2).await;
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        sets.patch("web", &PatchParams::default(), &patch).await.expect("it is scaled");
    };
    scale(8).await;
    until("pods up to the quota", LIMIT, ready, |ready| *ready >= 4).await;
    let fewer = Patch::Merge(json!({ "spec": { "hard": { "pods": "3" } } }));
    quotas.patch("few", &PatchParams::default(), &fewer).await.expect("the quota is patched");
    counted("3").await;
    namespace.api::<Pod>().delete("web-0", &DeleteParams::default()).await.expect("the pod is deleted");
    scale(1).await;
    until("the first pod alone", LIMIT, || pod_names(&namespace), |names| *names == ["web-0"]).await;
    until("it is ready", LIMIT, ready, |ready| *ready == 1).await;
}

/// The template of a created ReplicaSet was another one than that of the Deployment, so another ReplicaSet was created, without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_whose_replica_sets_admission_changes_has_one_of_each_template() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("changed").await;
    // Each created ReplicaSet gets another grace period.
    let patch =
        json!([{ "op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 7 }]);
    let response =
        json!({ "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()) });
    let (_webhook, config) = webhook(plane, move |_| response.clone()).await;
    let webhooks = json!({ "metadata": { "name": namespace.name }, "webhooks": [{
        "name": "change.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": config,
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace.name } },
        "rules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["replicasets"], "scope": "Namespaced" }],
    }] });
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    create(configurations.clone(), webhooks).await;
    let probe = object::<ReplicaSet>(json!({ "metadata": { "name": "probe" }, "spec": {
        "selector": { "matchLabels": { "app": "probe" } }, "template": template("probe") } }));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let is_changed = async || {
        let created = namespace.api::<ReplicaSet>().create(&dry, &probe).await.expect("an answer");
        let pod = created.spec.and_then(|spec| spec.template).and_then(|template| template.spec);
        pod.and_then(|pod| pod.termination_grace_period_seconds) == Some(7)
    };
    eventually("the webhook is in force", LIMIT, is_changed).await;
    namespace.deployment("web", 2, json!({})).await;
    settled(&namespace, "web", 2).await;
    assert_eq!(namespace.replica_sets().await.len(), 1);
    namespace.set_image("web", "nginx:2").await;
    settled(&namespace, "web", 2).await;
    assert_eq!(namespace.replica_sets().await.len(), 2);
    configurations.delete(&namespace.name, &DeleteParams::default()).await.expect("it is deleted");
}

/// Pods that are ready and not yet available were all replaced at once.
#[tokio::test]
async fn daemon_set_replaces_one_pod_that_is_not_yet_available_at_a_time() {
    let namespace = ControlPlane::shared().cluster().await.namespace("waiting").await;
    namespace.default_account().await;
    let spec = json!({ "minReadySeconds": 3600, "selector": { "matchLabels": { "app": "agent" } },
        "template": template("agent") });
    let _: DaemonSet = namespace.create(json!({ "metadata": { "name": "agent" }, "spec": spec })).await;
    let sets = namespace.api::<DaemonSet>();
    let status = async || sets.get("agent").await.expect("the DaemonSet").status.unwrap_or_default();
    let all = |status: &k8s_openapi::api::apps::v1::DaemonSetStatus| {
        status.desired_number_scheduled > 1 && status.number_ready == status.desired_number_scheduled
    };
    let wanted = until("a pod on each node", LIMIT, status, all).await.desired_number_scheduled;
    let change = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "image:2" }] } } } });
    sets.patch("agent", &PatchParams::default(), &Patch::Strategic(change)).await.expect("it is patched");
    until("one pod is replaced and ready", LIMIT, status, |status| {
        all(status) && status.updated_number_scheduled == Some(1)
    })
    .await;
    let pods = namespace.pods().await;
    let old = pods.iter().filter(|pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
        image == Some("image:1") && pod.metadata.deletion_timestamp.is_none()
    });
    assert_eq!(old.count(), usize::try_from(wanted - 1).expect("a number"));
}

/// A new autoscaler waited for a period, and pods that had ended counted as pods that use nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_autoscaler_is_evaluated_at_once_and_ignores_pods_that_have_ended() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: Vec::new() });
    let _manager = plane.coxswain("coxswain", &["--horizontal-pod-autoscaler-sync-period=1h"]);
    let cluster = plane.cluster().await;
    let metrics = MetricsApi::start(&plane, &cluster.client, &["v1beta2"]).await;
    let namespace = cluster.namespace("ended").await;
    namespace.default_account().await;
    let usage = BTreeMap::from([("cpu".to_owned(), "100m".to_owned())]);
    metrics.say(&namespace.name, Numbers { usage, age: -60, ..Numbers::default() });
    let pods = namespace.api::<Pod>();
    for at in 0..6 {
        // A ReplicaSet would adopt a pod that has not ended.
        let name = format!("ended-{at}");
        let _: Pod = namespace
            .create(json!({ "metadata": { "name": name }, "spec": { "schedulerName": "nobody",
                "containers": [{ "name": "web", "image": "image", "resources": { "requests": { "cpu": "100m" } } }] } }))
            .await;
        let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
        pods.patch_status(&name, &PatchParams::default(), &ended).await.expect("the status is patched");
        let label = Patch::Merge(json!({ "metadata": { "labels": { "app": "web" } } }));
        pods.patch(&name, &PatchParams::default(), &label).await.expect("the pod is patched");
    }
    let container =
        json!({ "name": "web", "image": "image", "resources": { "requests": { "cpu": "100m" } } });
    let labels = json!({ "labels": { "app": "web" } });
    let spec = json!({ "template": { "metadata": labels, "spec": { "containers": [container] } } });
    namespace.deployment("web", 2, spec).await;
    settled(&namespace, "web", 2).await;
    let cpu = json!({ "type": "Resource", "resource": {
        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } });
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [cpu] });
    let _: HorizontalPodAutoscaler =
        namespace.create(json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    settled(&namespace, "web", 4).await;
}
