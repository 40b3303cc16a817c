//! A large namespace that is deleted: objects of twenty kinds, five of them custom resources.
//!
//! What is measured is a manager at work: before it, unmeasured, an empty namespace is deleted, and what a manager does
//! once, such as asking for a token, is done then (see `churn`).

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, kind, many};
use crate::figures::Figures;
use crate::harness::{Cluster, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, until_none};

const OBJECTS: usize = 2000;
/// How often it is looked whether the namespace has gone.
const POLL: Duration = Duration::from_millis(20);
const GROUP: &str = "bench.example.com";
const CUSTOM: [&str; 5] = ["Axle", "Bolt", "Cog", "Disc", "Edge"];

pub(super) struct Namespaces {
    objects: usize,
}

impl Namespaces {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { objects: bench.scaled(OBJECTS) }
    }
}

impl Scenario for Namespaces {
    fn name(&self) -> String {
        "namespace deletion".to_owned()
    }

    fn about(&self) -> String {
        format!("A namespace of {} objects of 20 kinds, 5 of them custom, is deleted.", self.objects)
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["namespace-controller"]
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        define(&bench.cluster).boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("large").await;
            fill(&bench.cluster, &namespace.name, self.objects).await;
            let manager = bench.manager(turn, "namespace", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;
            let empty = bench.cluster.namespace("empty").await;
            delete(&bench.cluster, &empty.name).await;
            calm(manager.pid).await;

            let gauge = Gauge::start(bench, turn.program, manager.pid);
            delete(&bench.cluster, &namespace.name).await;
            gauge.close("", Until::Calm, &mut figures).await;
            figures
        }
        .boxed_local()
    }

    fn clear<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            let definitions = definitions(&bench.cluster);
            for name in CUSTOM {
                let name = format!("{}.{GROUP}", plural(name));
                definitions.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
                until_none(&definitions, &name).await;
            }
        }
        .boxed_local()
    }
}

/// Deletes a namespace, and waits until it has gone.
async fn delete(cluster: &Cluster, name: &str) {
    let all: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind("", "Namespace"));
    all.delete(name, &DeleteParams::default()).await.expect("its deletion begins");
    let deadline = Instant::now() + LIMIT;
    while all.get_opt(name).await.expect("an answer").is_some() {
        assert!(Instant::now() < deadline, "{name} does not go");
        sleep(POLL).await;
    }
}

fn plural(name: &str) -> String {
    format!("{}s", name.to_lowercase())
}

fn definitions(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.client.clone(), &kind("apiextensions.k8s.io", "CustomResourceDefinition"))
}

/// Makes the custom kinds, and waits until they are served.
async fn define(cluster: &Cluster) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    for name in CUSTOM {
        let plural = plural(name);
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
        let made = definitions(cluster).create(&PostParams::default(), &definition).await;
        made.expect("it is created");
        let objects: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind(GROUP, name));
        let served = async || objects.list(&ListParams::default()).await.is_ok();
        until("the custom kind to be served", LIMIT, served, |served| *served).await;
    }
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
    many(objects, async |at| {
        let (kind, body) = &kinds[at % kinds.len()];
        let mut body = body.clone();
        body["apiVersion"] = kind.api_version.as_str().into();
        body["kind"] = kind.kind.as_str().into();
        body["metadata"] = json!({ "name": format!("object-{at}") });
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, kind);
        let object = serde_json::from_value(body).expect("an object");
        let created = api.create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("{}: {error}", kind.kind));
    })
    .await;
}
