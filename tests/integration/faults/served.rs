//! Services and pods for the controllers that say where Services are served.
//!
//! Pods are there and run before their Services come, so that each Service is a number of writes that is known.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{LIMIT, Place};
use crate::harness::until;

/// Pods of each application.
pub(super) const PODS: usize = 12;
/// Applications. Services select the pods of one each.
const APPS: [&str; 2] = ["one", "two"];
/// Of the applications' first Services one stays, one goes, and one comes again.
pub(super) const FIRST: [(&str, &str); 3] = [("stays", "one"), ("goes", "two"), ("returns", "two")];
/// These come later.
const LATER: [(&str, &str); 2] = [("late", "one"), ("later", "two")];

/// What is seen of a Service: its pods with their readiness, of which none may be there twice.
pub(super) type Shown = BTreeMap<String, Vec<bool>>;

fn pod(app: &str, at: usize) -> String {
    format!("{app}-{at}")
}

/// Makes the pods, and waits until they run; then makes the first Services.
pub(super) async fn prepare(place: &Place) {
    let namespace = &place.namespace;
    namespace.default_account().await;
    for app in APPS {
        for at in 0..PODS {
            let body = json!({
                "metadata": { "name": pod(app, at), "labels": { "app": app } },
                "spec": { "nodeName": "node-0", "containers": [{ "name": "web", "image": "web:1" }] },
            });
            let _: Pod = namespace.create(body).await;
        }
    }
    let running = async || namespace.pods().await.into_iter().filter(runs).count();
    until("all pods run", LIMIT, running, |count| *count == APPS.len() * PODS).await;
    for (name, app) in FIRST {
        service(place, name, app).await;
    }
}

fn runs(pod: &Pod) -> bool {
    let status = serde_json::to_value(&pod.status).expect("JSON");
    let is_ready = |each: &Value| each["type"] == "Ready" && each["status"] == "True";
    status["podIP"].is_string() && status["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready))
}

async fn service(place: &Place, name: &str, app: &str) {
    // Without an address: those are of ranges that others look after.
    let spec = json!({ "clusterIP": "None", "selector": { "app": app }, "ports": [{ "port": 80 }] });
    let _: Service = place.namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// A pod turns unready, Services come and go, and one comes again.
pub(super) async fn act(place: &Place) {
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let (pods, patch) = (place.namespace.api::<Pod>(), Patch::Strategic(status));
    pods.patch_status(&pod("one", 0), &PatchParams::default(), &patch).await.expect("patched");
    for (name, app) in LATER {
        service(place, name, app).await;
    }
    let services = place.namespace.api::<Service>();
    for name in ["goes", "returns"] {
        services.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    service(place, "returns", "two").await;
}

/// What each Service that there is in the end must show.
pub(super) fn expected() -> BTreeMap<&'static str, Shown> {
    let shown = |app: &str| {
        let pods = (0..PODS).map(|at| (pod(app, at), vec![(app, at) != ("one", 0)]));
        pods.collect::<Shown>()
    };
    let services = FIRST.into_iter().chain(LATER).filter(|(name, _)| *name != "goes");
    services.map(|(name, app)| (name, shown(app))).collect()
}
