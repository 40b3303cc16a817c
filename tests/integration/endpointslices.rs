//! EndpointSlices under Coxswain as the only manager: they show what the pods are, in as many slices as it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::harness::{AuditEvent, ControlPlane, Namespace, until};

const LIMIT: Duration = Duration::from_mins(2);

/// One slice, as far as the tests look at it.
#[derive(Clone, Debug)]
struct Slice {
    name: String,
    labels: BTreeMap<String, String>,
    ports: Vec<(String, i64)>,
    endpoints: Vec<Value>,
}

/// The slices of a service, by name.
fn slices(namespace: &Namespace, service: &str) -> Vec<Slice> {
    let selector = format!("kubernetes.io/service-name={service}");
    let list = ControlPlane::shared().kubectl(&[
        "-n",
        &namespace.name,
        "get",
        "endpointslices",
        "-l",
        &selector,
        "-o",
        "json",
    ]);
    let list: Value = serde_json::from_str(&list).expect("a list");
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let slice = |item: &Value| Slice {
        name: text(&item["metadata"]["name"]),
        labels: serde_json::from_value(item["metadata"]["labels"].clone()).expect("labels"),
        ports: item["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| (text(&port["name"]), port["port"].as_i64().unwrap_or_default()))
            .collect(),
        endpoints: item["endpoints"].as_array().cloned().unwrap_or_default(),
    };
    items.iter().map(slice).collect()
}

fn endpoints(slices: &[Slice]) -> impl Iterator<Item = &Value> {
    slices.iter().flat_map(|slice| &slice.endpoints)
}

fn ready(slices: &[Slice]) -> usize {
    endpoints(slices).filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
}

async fn settled(
    namespace: &Namespace,
    service: &str,
    what: &str,
    holds: impl Fn(&[Slice]) -> bool,
) -> Vec<Slice> {
    until(what, LIMIT, || async { slices(namespace, service) }, |found| holds(found)).await
}

async fn create_service(namespace: &Namespace, name: &str, spec: Value) {
    let _: Service = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

fn scale(namespace: &Namespace, replicas: u32) {
    let replicas = format!("--replicas={replicas}");
    ControlPlane::shared().kubectl(&["-n", &namespace.name, "scale", "deployment/web", &replicas]);
}

/// What Coxswain wrote of slices in a namespace, refusals included.
fn writes(namespace: &Namespace) -> Vec<AuditEvent> {
    let audit = ControlPlane::shared().audit().into_iter();
    let concerns = |event: &AuditEvent| {
        event.is_write()
            && event.coxswain() == Some("endpointslice-controller")
            && event.object_ref.namespace == namespace.name
            && event.object_ref.resource == "endpointslices"
    };
    audit.filter(concerns).collect()
}

#[tokio::test]
async fn slices_follow_the_pods() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("slices").await;
    create_service(&namespace, "web", json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] }))
        .await;
    let empty = settled(&namespace, "web", "a slice of nothing", |found| found.len() == 1).await;
    assert_eq!((empty[0].endpoints.len(), empty[0].ports.len()), (0, 0));

    namespace.deployment("web", 250, json!({})).await;
    let full = settled(&namespace, "web", "250 ready endpoints", |found| ready(found) == 250).await;
    assert!(full.len() >= 3 && full.iter().any(|slice| slice.name == empty[0].name), "{} slices", full.len());
    assert!(full.iter().all(|slice| (1..=100).contains(&slice.endpoints.len())));
    let addresses: BTreeSet<String> =
        endpoints(&full).map(|endpoint| endpoint["addresses"].to_string()).collect();
    assert_eq!(addresses.len(), 250, "no address is there twice");
    assert!(full.iter().all(|slice| slice.ports == [(String::new(), 80)]));

    // A pod that is not ready any more stays, and says so; one slice is written.
    let before = writes(&namespace).len();
    let pod = endpoints(&full).next().expect("an endpoint")["targetRef"]["name"].clone();
    let pod = pod.as_str().expect("a name");
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }).to_string();
    plane.kubectl(&["-n", &namespace.name, "patch", "pod", pod, "--subresource=status", "-p", &patch]);
    let flipped = settled(&namespace, "web", "one that is not ready", |found| ready(found) == 249).await;
    assert_eq!(endpoints(&flipped).count(), 250);
    // The log may be a moment behind.
    let written = || async { writes(&namespace).len() - before };
    assert_eq!(until("a write in the audit log", LIMIT, written, |count| *count > 0).await, 1);

    scale(&namespace, 3);
    let few =
        settled(&namespace, "web", "3 endpoints", |found| endpoints(found).count() == 3 && ready(found) == 3)
            .await;
    assert!(few.len() <= 3, "{few:?}");
    let names: BTreeSet<String> = endpoints(&few)
        .map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    let pods: BTreeSet<String> =
        namespace.pods().await.into_iter().filter_map(|pod| pod.metadata.name).collect();
    assert_eq!(names, pods);

    // What a service leaves behind is the garbage collector's.
    let before = writes(&namespace).len();
    plane.kubectl(&["-n", &namespace.name, "delete", "service", "web"]);
    scale(&namespace, 5);
    create_service(&namespace, "next", json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] }))
        .await;
    settled(&namespace, "next", "the next service's endpoints", |found| ready(found) == 5).await;
    let later: Vec<AuditEvent> = writes(&namespace).split_off(before);
    assert!(
        later.iter().all(|event| !few.iter().any(|slice| slice.name == event.object_ref.name)),
        "{later:?}"
    );
    assert!(later.iter().all(|event| !event.is_forbidden()));
}

#[tokio::test]
async fn slices_tell_ports_names_and_zones() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("shapes").await;
    let pods = |app: &str, ports: Value| {
        json!({ "template": {
            "metadata": { "labels": { "app": app, "all": "yes" } },
            "spec": {
                "subdomain": "bare",
                "hostname": app,
                "containers": [{ "name": "web", "image": "nginx:1", "ports": ports }],
            },
        } })
    };
    namespace.deployment("old", 3, pods("old", json!([{ "name": "http", "containerPort": 8080 }]))).await;
    namespace.deployment("new", 3, pods("new", json!([{ "name": "http", "containerPort": 9090 }]))).await;
    let all = json!({ "all": "yes" });
    let ports = json!([
        { "name": "http", "port": 80, "targetPort": "http" },
        { "name": "metrics", "port": 9100 },
    ]);
    create_service(&namespace, "dual", json!({ "selector": all, "ports": ports })).await;
    create_service(&namespace, "bare", json!({ "selector": all, "clusterIP": "None" })).await;
    create_service(
        &namespace,
        "near",
        json!({ "selector": all, "ports": [{ "port": 80 }], "trafficDistribution": "PreferSameZone" }),
    )
    .await;
    create_service(&namespace, "mine", json!({ "ports": [{ "port": 80 }] })).await;

    let dual = settled(&namespace, "dual", "six endpoints", |found| ready(found) == 6).await;
    let mut groups: Vec<(Vec<(String, i64)>, usize)> = dual
        .into_iter()
        .map(|slice| {
            let mut ports = slice.ports;
            ports.sort();
            (ports, slice.endpoints.len())
        })
        .collect();
    groups.sort();
    let group = |port| (vec![("http".to_owned(), port), ("metrics".to_owned(), 9100)], 3);
    assert_eq!(groups, [group(8080), group(9090)]);

    let bare = settled(&namespace, "bare", "six endpoints", |found| ready(found) == 6).await;
    assert!(bare.iter().all(|slice| slice.labels["service.kubernetes.io/headless"].is_empty()));
    assert!(endpoints(&bare).all(|endpoint| endpoint["hostname"] == "old" || endpoint["hostname"] == "new"));

    let near = settled(&namespace, "near", "six endpoints", |found| ready(found) == 6).await;
    for endpoint in endpoints(&near) {
        assert!(endpoint["zone"].as_str().is_some_and(|zone| zone.starts_with("zone-")), "{endpoint}");
        assert_eq!(endpoint["hints"]["forZones"][0]["name"], endpoint["zone"], "{endpoint}");
        assert!(endpoint["nodeName"].is_string());
    }
    assert!(slices(&namespace, "mine").is_empty());
    assert!(writes(&namespace).iter().all(|event| !event.is_forbidden()));
}
