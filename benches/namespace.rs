//! The end of a large namespace beside the Go manager's: the same content, the same flags, the same API server.
//!
//! A namespace with objects of twenty kinds, five of them custom resources, is filled while no manager runs; then one
//! manager is started, the namespace is deleted, and it is measured until it has gone. Of that the first five seconds are a
//! rest that both managers give it. Printed are the seconds from the delete to the end, the manager's CPU seconds for it,
//! and the requests that it sent, by the API server's audit log. `OBJECTS` (5000) says how many objects there are,
//! `ROUNDS` (2) how often each manager is measured, in turns; the least counts.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

mod cpu;
#[path = "../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;
mod settings;

use std::fs;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use cpu::cpu;
use harness::{Cluster, ControlPlane, Manager, Options};
use settings::number;

const CONTROLLERS: &str = "--controllers=namespace-controller";
/// Each acts at once: a Lease that the one before did not release would be waited for.
const NO_ELECTION: &str = "--leader-elect=false";
/// Requests under way at the same time while the namespace is filled.
const PARALLEL: usize = 16;
/// How often it is looked whether the namespace has gone.
const POLL: Duration = Duration::from_millis(20);
const GROUP: &str = "bench.example.com";
const CUSTOM: [&str; 5] = ["Axle", "Bolt", "Cog", "Disc", "Edge"];

#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    cpu_seconds: f64,
    writes: f64,
    reads: f64,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

async fn compare() {
    let (objects, rounds) = (number("OBJECTS", 5000), number("ROUNDS", 2));
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let cluster = plane.cluster().await;
    define(&cluster).await;
    let mut least: [Option<Figures>; 2] = [None, None];
    for round in 0..rounds {
        for (at, name) in ["go", "coxswain"].into_iter().enumerate() {
            let new = measure(&plane, &cluster, &format!("{name}-{round}"), at == 0, objects).await;
            let best = least[at].get_or_insert(new);
            best.seconds = best.seconds.min(new.seconds);
            best.cpu_seconds = best.cpu_seconds.min(new.cpu_seconds);
            best.writes = best.writes.min(new.writes);
            best.reads = best.reads.min(new.reads);
        }
    }
    let [go, ours] = least.map(|figures| figures.expect("at least one round"));
    println!(
        "\n| a namespace of {objects} objects of 20 kinds | Go | Coxswain | ratio |\n|---|---:|---:|---:|"
    );
    for (what, figure) in [
        ("seconds from its deletion to its end", (|each: Figures| each.seconds) as fn(Figures) -> f64),
        ("&nbsp; of it after the rest of 5 s", |each| each.seconds - 5.0),
        ("CPU seconds of the manager", |each| each.cpu_seconds),
        ("writes", |each| each.writes),
        ("reads", |each| each.reads),
    ] {
        let (go, ours) = (figure(go), figure(ours));
        println!("| {what} | {go:.2} | {ours:.2} | {:.3} |", ours / go);
    }
}

/// Makes the custom kinds, and waits until they are served.
async fn define(cluster: &Cluster) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definitions: Api<DynamicObject> =
        Api::all_with(cluster.client.clone(), &kind("apiextensions.k8s.io", "CustomResourceDefinition"));
    for name in CUSTOM {
        let plural = format!("{}s", name.to_lowercase());
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": schema });
        let definition = json!({
            "metadata": { "name": format!("{plural}.{GROUP}") },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": { "kind": name, "plural": plural },
                "versions": [version],
            },
        });
        let definition = serde_json::from_value(definition).expect("a definition");
        definitions.create(&PostParams::default(), &definition).await.expect("it is created");
        let objects: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind(GROUP, name));
        while objects.list(&kube::api::ListParams::default()).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// The kinds that the namespace is filled with, and what their objects need beyond metadata.
fn kinds() -> Vec<(ApiResource, Value)> {
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
    });
    let selector = json!({ "matchLabels": { "app": "web" } });
    let runs = json!({ "spec": { "replicas": 0, "selector": selector, "template": template } });
    let mut stateful = runs.clone();
    stateful["spec"]["serviceName"] = "web".into();
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web" });
    let mut all = vec![
        (kind("", "ConfigMap"), json!({ "data": { "k": "x".repeat(1024) } })),
        (kind("", "Secret"), json!({})),
        (kind("", "ServiceAccount"), json!({})),
        (kind("", "Endpoints"), json!({})),
        (kind("", "LimitRange"), json!({ "spec": { "limits": [] } })),
        (kind("", "PodTemplate"), json!({ "template": template })),
        (kind("", "ResourceQuota"), json!({ "spec": { "hard": {} } })),
        (kind("apps", "ControllerRevision"), json!({ "revision": 1, "data": {} })),
        (kind("apps", "Deployment"), runs.clone()),
        (kind("apps", "ReplicaSet"), runs),
        (kind("apps", "StatefulSet"), stateful),
        (kind("coordination.k8s.io", "Lease"), json!({})),
        (kind("networking.k8s.io", "NetworkPolicy"), json!({ "spec": { "podSelector": {} } })),
        (kind("rbac.authorization.k8s.io", "Role"), json!({ "rules": [] })),
        (kind("rbac.authorization.k8s.io", "RoleBinding"), json!({ "roleRef": role })),
    ];
    all.extend(CUSTOM.map(|name| (kind(GROUP, name), json!({ "spec": { "text": "x".repeat(256) } }))));
    all
}

async fn fill(cluster: &Cluster, namespace: &str, objects: usize) {
    let kinds = kinds();
    let create = async |at: usize| {
        let (kind, body) = &kinds[at % kinds.len()];
        let mut body = body.clone();
        body["apiVersion"] = kind.api_version.as_str().into();
        body["kind"] = kind.kind.as_str().into();
        body["metadata"] = json!({ "name": format!("object-{at}") });
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, kind);
        let object = serde_json::from_value(body).expect("an object");
        let created = api.create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("{}: {error}", kind.kind));
    };
    stream::iter(0..objects).for_each_concurrent(PARALLEL, create).await;
}

async fn measure(
    plane: &ControlPlane,
    cluster: &Cluster,
    name: &str,
    is_go: bool,
    objects: usize,
) -> Figures {
    println!("{name}: filling");
    let namespaces: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind("", "Namespace"));
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("the namespace is created");
    fill(cluster, name, objects).await;
    let args = [CONTROLLERS, NO_ELECTION];
    let manager = if is_go { plane.go_manager(name, &args) } else { plane.coxswain(name, &args) };
    // Starting is not what is measured.
    sleep(Duration::from_secs(3)).await;
    let before = cpu_seconds(&manager);
    let began = Instant::now();
    namespaces.delete(name, &DeleteParams::default()).await.expect("its deletion begins");
    while namespaces.get_opt(name).await.expect("an answer").is_some() {
        sleep(POLL).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds(&manager) - before;
    manager.stop();
    let (writes, reads) = requests(plane, name);
    println!("{name}: {seconds:.2} s, {cpu_seconds:.2} CPU seconds, {writes} writes, {reads} reads");
    Figures { seconds, cpu_seconds, writes: writes as f64, reads: reads as f64 }
}

fn cpu_seconds(manager: &Manager<'_>) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", manager.pid)).expect("the process lives");
    cpu(&stat).1
}

/// What the namespace controller wrote and read of a namespace.
fn requests(plane: &ControlPlane, namespace: &str) -> (usize, usize) {
    let audit = plane.audit().into_iter();
    let ours = audit.filter(|event| {
        event.user.username.ends_with(":namespace-controller")
            && (event.object_ref.namespace == namespace || event.object_ref.name == namespace)
    });
    let (writes, reads): (Vec<_>, Vec<_>) = ours.partition(harness::AuditEvent::is_write);
    (writes.len(), reads.len())
}
