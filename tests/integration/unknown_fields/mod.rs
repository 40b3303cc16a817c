//! An API server that is newer than this program: every object that it sends has fields which nobody here knows, at every
//! level and of every wire type. No write may lose one, and what is made from a template has the template's.

mod fields;
mod newer;
mod newer_json;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, Proxy, Tamper, eventually, turn, until};
use newer::Newer;
use newer_json::NewerJson;

const LIMIT: Duration = Duration::from_mins(3);

fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": {
            "securityContext": { "runAsNonRoot": false },
            "initContainers": [{ "name": "first", "image": "busybox" }],
            "containers": [{
                "name": "web",
                "image": "nginx",
                "ports": [{ "containerPort": 80 }],
                "env": [{ "name": "A", "value": "b" }],
                "resources": { "requests": { "cpu": "1m" } },
            }],
        },
    })
}

async fn merge<K>(namespace: &Namespace, name: &str, patch: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
    K::DynamicType: Default,
{
    let patched = namespace.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.expect("the object is patched");
}

async fn scale(namespace: &Namespace, name: &str, replicas: i32) {
    merge::<ReplicaSet>(namespace, name, json!({ "spec": { "replicas": replicas } })).await;
}

/// Waits for this many available pods and this many conditions.
async fn settled(namespace: &Namespace, name: &str, available: i32, conditions: usize) {
    let observe = async || namespace.api::<ReplicaSet>().get(name).await.expect("the ReplicaSet").status;
    until(&format!("{available} pods of {name}"), LIMIT, observe, |status| {
        let status = status.clone().unwrap_or_default();
        status.available_replicas.unwrap_or(0) == available
            && status.replicas == available
            && status.conditions.unwrap_or_default().len() == conditions
    })
    .await;
}

/// A ReplicaSet grows, shrinks, adopts, is refused pods by a quota, and recovers.
async fn replica_set(namespace: &Namespace) {
    let spec = json!({
        "replicas": 3,
        "selector": {
            "matchLabels": { "app": "set" },
            "matchExpressions": [{ "key": "app", "operator": "Exists" }],
        },
        "template": template("set"),
    });
    let _: ReplicaSet = namespace.create(json!({ "metadata": { "name": "set" }, "spec": spec })).await;
    settled(namespace, "set", 3, 0).await;
    scale(namespace, "set", 6).await;
    settled(namespace, "set", 6, 0).await;
    scale(namespace, "set", 2).await;
    settled(namespace, "set", 2, 0).await;

    let mut orphan = template("set");
    orphan["metadata"]["name"] = json!("orphan");
    let _: Pod = namespace.create(orphan).await;
    let adopted = async || {
        let orphan = namespace.api::<Pod>().get_opt("orphan").await.expect("an answer");
        orphan.is_none_or(|pod| pod.metadata.owner_references.is_some())
    };
    eventually("the orphan is adopted", LIMIT, adopted).await;
    settled(namespace, "set", 2, 0).await;

    // The quota controller does not run: admission charges a pod before the pod is stored, and a count in between would free the place again.
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "3" } } });
    let _: ResourceQuota = namespace.create(quota).await;
    let quotas = namespace.api::<ResourceQuota>();
    let count = async |used: &str| {
        let usage = Patch::Merge(json!({ "status": { "hard": { "pods": "3" }, "used": { "pods": used } } }));
        quotas.patch_status("small", &PatchParams::default(), &usage).await.expect("the quota's status");
    };
    // Admission lets pods pass until it has seen the quota, so first it is full.
    count("3").await;
    let mut probe = template("set");
    probe["metadata"]["name"] = json!("probe");
    let probe: Pod = serde_json::from_value(probe).expect("a pod");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused = async || namespace.api::<Pod>().create(&dry_run, &probe).await.is_err();
    eventually("admission knows the quota", LIMIT, refused).await;
    count("2").await;
    scale(namespace, "set", 5).await;
    settled(namespace, "set", 3, 1).await;
    quotas.delete("small", &DeleteParams::default()).await.expect("the quota goes");
    settled(namespace, "set", 5, 0).await;
}

/// A Deployment rolls to another template, grows, and rolls back.
async fn deployment(namespace: &Namespace) {
    namespace
        .deployment(
            "web",
            3,
            json!({ "template": template("web"), "strategy": { "rollingUpdate": { "maxSurge": 1 } } }),
        )
        .await;
    let available = async |replicas: i32| {
        let observe = async || namespace.get_deployment("web").await;
        until("the Deployment is rolled out", LIMIT, observe, |deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation == deployment.metadata.generation
                && status.replicas == Some(replicas)
                && status.updated_replicas == Some(replicas)
                && status.available_replicas == Some(replicas)
        })
        .await;
    };
    available(3).await;
    namespace.set_image("web", "nginx:2").await;
    available(3).await;
    namespace.patch_deployment("web", json!({ "spec": { "replicas": 5 } })).await;
    available(5).await;
    namespace.set_image("web", "nginx").await;
    available(5).await;
    assert_eq!(namespace.replica_sets().await.keys().filter(|name| name.starts_with("web-")).count(), 2);
}

/// The published bundle is put right.
async fn bundle(namespace: &Namespace) {
    let get = async || namespace.api::<ConfigMap>().get_opt("kube-root-ca.crt").await.expect("an answer");
    let published = until("the bundle", LIMIT, get, Option::is_some).await.and_then(|found| found.data);
    merge::<ConfigMap>(namespace, "kube-root-ca.crt", json!({ "data": { "ca.crt": "not it" } })).await;
    until("the bundle as it was", LIMIT, get, |found| {
        found.as_ref().is_some_and(|found| found.data == published)
    })
    .await;
}

/// Token secrets are filled; one that is gone is no longer named by its account, another still is.
async fn tokens(namespace: &Namespace) {
    for name in ["first", "second"] {
        let body = json!({
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": "default" } },
            "type": "kubernetes.io/service-account-token",
        });
        let _: Secret = namespace.create(body).await;
        let filled = async || {
            let secret = namespace.api::<Secret>().get(name).await.expect("the secret");
            secret.data.is_some_and(|data| data.contains_key("token"))
        };
        eventually("the secret is filled", LIMIT, filled).await;
    }
    let references = json!({
        "secrets": [{ "name": "first" }, { "name": "second" }],
        "imagePullSecrets": [{ "name": "registry" }],
    });
    merge::<ServiceAccount>(namespace, "default", references).await;
    namespace.api::<Secret>().delete("first", &DeleteParams::default()).await.expect("the secret goes");
    let forgotten = async || {
        let account = namespace.api::<ServiceAccount>().get("default").await.expect("the account");
        let names = account.secrets.unwrap_or_default().into_iter().filter_map(|secret| secret.name);
        names.collect::<Vec<_>>() == ["second"]
    };
    eventually("the account has forgotten the secret", LIMIT, forgotten).await;
}

/// A quota's status is written.
async fn quota(namespace: &Namespace) {
    let hard = json!({ "count/configmaps": "9" });
    let _: ResourceQuota =
        namespace.create(json!({ "metadata": { "name": "counted" }, "spec": { "hard": hard } })).await;
    let counted = async || {
        let quota = namespace.api::<ResourceQuota>().get("counted").await.expect("the quota");
        quota.status.and_then(|status| status.used).is_some_and(|used| used.contains_key("count/configmaps"))
    };
    eventually("the quota is counted", LIMIT, counted).await;
}

/// Has objects of many kinds made, changed and mended by a Coxswain that speaks with a newer API server.
async fn work_with(newer: Arc<dyn Tamper>, content_type: &str) {
    let plane = ControlPlane::start(&Options { nodes: 2, args: Vec::new() });
    let proxy = Proxy::start(&plane, newer).await;
    let master = format!("--master={}", proxy.url);
    let content_type = format!("--kube-api-content-type={content_type}");
    let args = |controllers| {
        [master.as_str(), &content_type, "--kube-api-qps=100", "--kube-api-burst=100", controllers]
    };
    let coxswain = plane.coxswain("coxswain", &args("--controllers=*,-resourcequota-controller"));
    let namespace = plane.cluster().await.namespace("newer").await;
    let account = async || namespace.api::<ServiceAccount>().get_opt("default").await.expect("an answer");
    until("the default account", LIMIT, account, Option::is_some).await;
    bundle(&namespace).await;
    tokens(&namespace).await;
    replica_set(&namespace).await;
    deployment(&namespace).await;
    coxswain.stop();
    let coxswain = plane.coxswain("quotas", &args("--controllers=resourcequota-controller"));
    quota(&namespace).await;
    coxswain.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_loses_what_it_does_not_know() {
    let _turn = turn().await;
    let newer = Arc::new(Newer::default());
    work_with(Arc::clone(&newer) as _, "application/vnd.kubernetes.protobuf").await;
    judge(&newer.checked());
}

/// The same where JSON is spoken, which `--kube-api-content-type` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_in_json_loses_what_it_does_not_know() {
    let _turn = turn().await;
    let newer = Arc::new(NewerJson::default());
    work_with(Arc::clone(&newer) as _, "application/json").await;
    judge(&newer.checked());
}

/// Enough was looked at of every kind.
fn judge(checked: &BTreeMap<String, usize>) {
    let least = BTreeMap::from([
        ("POST Pod", 15),
        ("POST ReplicaSet", 2),
        ("PUT ConfigMap", 1),
        ("PUT Deployment/status", 5),
        ("PUT Lease", 2),
        ("PUT ReplicaSet", 3),
        ("PUT ReplicaSet/status", 8),
        ("PUT ResourceQuota/status", 1),
        ("PUT Secret", 2),
        ("PUT ServiceAccount", 1),
    ]);
    for (what, least) in least {
        let count = checked.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what}: {count} of at least {least} in {checked:?}");
    }
}
