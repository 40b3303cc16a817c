//! Services and pods for the controllers that say where Services are served, and what is to be seen of them in the end.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::ordeal::LIMIT;
use crate::harness::{Namespace, until};

pub(super) const SERVICES: usize = 8;
pub(super) const PODS: usize = 12;

/// What one sees of a service: its pods with their readiness, of which none may be there twice.
pub(super) type Shown = BTreeMap<String, Vec<bool>>;
/// By service, and in how many objects.
pub(super) type Seen = BTreeMap<String, (Shown, usize)>;

pub(super) fn service_name(at: usize) -> String {
    format!("service-{at}")
}

/// A Service in front of the pods of the service at `at`.
pub(super) async fn create_service(namespace: &Namespace, name: &str, at: usize) {
    let spec = json!({ "selector": { "app": service_name(at) }, "ports": [{ "port": 80 }] });
    let _: Service = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

pub(super) async fn create_services(namespace: &Namespace) {
    for at in 0..SERVICES {
        create_service(namespace, &service_name(at), at).await;
    }
}

async fn create_pod(namespace: &Namespace, service: usize, name: &str) {
    let _: Pod = namespace
        .create(json!({
            "metadata": { "name": name, "labels": { "app": service_name(service) } },
            "spec": { "nodeName": "node-0", "containers": [{ "name": "web", "image": "nginx" }] },
        }))
        .await;
}

pub(super) async fn create_pods(namespace: &Namespace) {
    for at in 0..PODS {
        for service in 0..SERVICES {
            create_pod(namespace, service, &format!("pod-{service}-{at}")).await;
        }
    }
}

/// One pod of each service turns unready.
pub(super) async fn unready(namespace: &Namespace, at: usize) {
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let patch = Patch::Strategic(status);
    for service in 0..SERVICES {
        let name = format!("pod-{service}-{at}");
        namespace.api::<Pod>().patch_status(&name, &PatchParams::default(), &patch).await.expect("patched");
    }
}

/// What the pods are.
async fn pods(namespace: &Namespace) -> BTreeMap<String, Shown> {
    let mut services: BTreeMap<String, Shown> =
        (0..SERVICES).map(|at| (service_name(at), Shown::new())).collect();
    for pod in namespace.pods().await {
        let status = serde_json::to_value(pod.status).expect("JSON");
        if status["podIP"].is_null() || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let is_true = |each: &Value| each["type"] == "Ready" && each["status"] == "True";
        let is_ready = status["conditions"].as_array().is_some_and(|all| all.iter().any(is_true));
        let service = pod.metadata.labels.unwrap_or_default()["app"].clone();
        let shown = services.entry(service).or_default();
        shown.insert(pod.metadata.name.unwrap_or_default(), vec![is_ready]);
    }
    services
}

/// Waits until all pods run.
pub(super) async fn all_run(namespace: &Namespace) {
    let running = async || pods(namespace).await;
    until("all pods run", LIMIT, running, |pods| pods.values().all(|pods| pods.len() == PODS)).await;
}

/// Waits until so many pods of each service are seen as there are, each once; gives in how many objects.
pub(super) async fn settled(
    namespace: &Namespace,
    each: usize,
    see: &impl AsyncFn(&Namespace) -> Seen,
) -> Vec<usize> {
    let agree = async || {
        let (pods, objects) = (pods(namespace).await, see(namespace).await);
        let seen: BTreeMap<String, Shown> =
            objects.iter().map(|(name, (shown, _))| (name.clone(), shown.clone())).collect();
        (pods.values().all(|pods| pods.len() == each) && pods == seen, objects)
    };
    let (_, objects) = until("the pods are shown", LIMIT, agree, |(agree, _)| *agree).await;
    objects.into_values().map(|(_, count)| count).collect()
}

/// Pods come, turn unready, and go. There is one less of each service in the end.
pub(super) async fn life(namespace: &Namespace, see: &impl AsyncFn(&Namespace) -> Seen) {
    create_services(namespace).await;
    create_pods(namespace).await;
    unready(namespace, 1).await;
    settled(namespace, PODS, see).await;
    for service in 0..SERVICES {
        for at in [2, 3] {
            let name = format!("pod-{service}-{at}");
            namespace.api::<Pod>().delete(&name, &DeleteParams::default()).await.expect("deleted");
        }
        create_pod(namespace, service, &format!("pod-{service}-new")).await;
    }
    unready(namespace, 5).await;
}
