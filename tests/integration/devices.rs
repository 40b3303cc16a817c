//! Devices for pods, by the tools that people use: the real scheduler allocates what ResourceSlices of the nodes say, kwok runs the
//! pods, nobody plays a driver.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Of each of the two nodes.
const DEVICES: usize = 4;

/// The claims that there are.
async fn claims(namespace: &Namespace) -> Vec<ResourceClaim> {
    namespace.api().list(&ListParams::default()).await.expect("claims").items
}

/// Who may use a claim, by name.
fn users(claim: &ResourceClaim) -> Vec<String> {
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    reserved.into_iter().flatten().map(|consumer| consumer.name.clone()).collect()
}

/// Which devices are allocated, by pool and name.
fn devices(claims: &[ResourceClaim]) -> Vec<String> {
    let allocations =
        claims.iter().filter_map(|claim| claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref());
    let results = allocations.filter_map(|devices| devices.results.as_ref()).flatten();
    results.map(|result| format!("{}/{}", result.pool, result.device)).collect()
}

fn apply(plane: &ControlPlane, namespace: &Namespace, object: &Value) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), object.to_string()).expect("its content");
    let file = file.path().to_str().expect("text").to_owned();
    plane.kubectl(&["-n", &namespace.name, "apply", "-f", &file]);
}

/// The devices of a node, one of them broken.
fn slice(node: &str, broken: Option<&str>) -> Value {
    let device = |at: usize| {
        let name = format!("gpu-{at}");
        let taint = json!([{ "key": "gpu.example.com/broken", "effect": "NoExecute" }]);
        let taints = (broken == Some(name.as_str())).then_some(taint);
        json!({ "name": name, "taints": taints })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{node}-gpu") },
        "spec": {
            "driver": "gpu.example.com", "nodeName": node, "devices": (0..DEVICES).map(device).collect::<Vec<_>>(),
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        },
    })
}

/// A class of devices, some of them on each node, and a template.
fn install(plane: &ControlPlane, namespace: &Namespace) {
    apply(
        plane,
        namespace,
        &json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
            "spec": { "selectors": [{ "cel": { "expression": "device.driver == 'gpu.example.com'" } }] },
        }),
    );
    for node in ["node-0", "node-1"] {
        apply(plane, namespace, &slice(node, None));
    }
    apply(
        plane,
        namespace,
        &json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": { "name": "gpu" },
            "spec": { "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu" } },
            ] } } },
        }),
    );
}

/// A claim of its own outlives its pods, and is free after the last.
async fn two_pods_share_a_claim(plane: &ControlPlane, namespace: &Namespace) {
    apply(
        plane,
        namespace,
        &json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "shared" },
            "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } },
        }),
    );
    for name in ["one", "two"] {
        apply(
            plane,
            namespace,
            &json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
                "spec": {
                    "resourceClaims": [{ "name": "gpu", "resourceClaimName": "shared" }],
                    "containers": [{ "name": "c", "image": "image:1" }],
                },
            }),
        );
    }
    let shared = || async { namespace.api::<ResourceClaim>().get("shared").await.expect("the claim") };
    until("two pods share it", LIMIT, shared, |claim| users(claim).len() == 2).await;
    plane.kubectl(&["-n", &namespace.name, "delete", "pod", "one"]);
    until("one uses it", LIMIT, shared, |claim| users(claim) == ["two"]).await;
    plane.kubectl(&["-n", &namespace.name, "delete", "pod", "two"]);
    let is_free = |claim: &ResourceClaim| {
        let is_bare = claim.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        is_bare && users(claim).is_empty() && devices(std::slice::from_ref(claim)).is_empty()
    };
    until("nobody uses it, and it is free", LIMIT, shared, is_free).await;
}

#[tokio::test]
async fn pods_get_devices_and_give_them_back() {
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("devices").await;
    namespace.default_account().await;
    install(&plane, &namespace);

    // One pod more than there are devices.
    let pods = 2 * DEVICES + 1;
    apply(
        &plane,
        &namespace,
        &json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": {
                "replicas": pods,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": {
                        "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "gpu" }],
                        "containers": [{ "name": "c", "image": "image:1", "resources": { "claims": [{ "name": "gpu" }] } }],
                    },
                },
            },
        }),
    );
    let look = || claims(&namespace);
    let is_shared_out = |claims: &Vec<ResourceClaim>| {
        claims.len() == pods && claims.iter().filter(|claim| users(claim).len() == 1).count() == 2 * DEVICES
    };
    let held = until("all devices are allocated", LIMIT, look, is_shared_out).await;
    let distinct: BTreeSet<String> = devices(&held).into_iter().collect();
    assert_eq!(distinct.len(), 2 * DEVICES, "no device twice: {distinct:?}");
    let table = plane.kubectl(&["-n", &namespace.name, "get", "resourceclaims"]);
    assert_eq!(table.matches("allocated,reserved").count(), 2 * DEVICES, "{table}");
    assert_eq!(table.matches("pending").count(), 1, "{table}");

    // Of two pods that go, one makes room for the one that waits; the other for nobody.
    plane.kubectl(&["-n", &namespace.name, "scale", "deployment/web", &format!("--replicas={}", pods - 2)]);
    let is_settled = |claims: &Vec<ResourceClaim>| {
        claims.len() == pods - 2 && claims.iter().all(|claim| users(claim).len() == 1)
    };
    let held = until("the rest have devices", LIMIT, look, is_settled).await;
    assert_eq!(devices(&held).len(), pods - 2);

    // Who uses a device that breaks has to go; the next one gets the device that is left.
    let broken = devices(&held).first().expect("a device").clone();
    let (node, device) = broken.split_once('/').expect("a pool and a device");
    apply(&plane, &namespace, &slice(node, Some(device)));
    let is_replaced = |claims: &Vec<ResourceClaim>| {
        claims.len() == pods - 2
            && claims.iter().all(|claim| users(claim).len() == 1)
            && !devices(claims).contains(&broken)
    };
    until("nobody uses the broken device", LIMIT, look, is_replaced).await;
    let told = plane.kubectl(&["-n", &namespace.name, "get", "events"]);
    assert_eq!(told.matches("Marking for deletion").count(), 1, "{told}");
    apply(&plane, &namespace, &slice(node, None));

    two_pods_share_a_claim(&plane, &namespace).await;
    plane.kubectl(&["-n", &namespace.name, "delete", "deployment", "web"]);
    let names = || async {
        let names = claims(&namespace).await.into_iter().filter_map(|claim| claim.metadata.name);
        names.collect::<Vec<_>>()
    };
    until("only the shared one is left", LIMIT, names, |names| *names == ["shared"]).await;

    let audit = plane.audit();
    let ours: Vec<_> = audit.iter().filter(|event| event.coxswain().is_some()).collect();
    let made = ours
        .iter()
        .filter(|event| event.verb == "create" && event.resource() == "resourceclaims" && event.succeeded());
    assert_eq!(made.count(), pods + 1, "claims that were made");
    let forbidden: Vec<_> = ours
        .iter()
        .filter(|event| event.is_forbidden())
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect();
    assert_eq!(forbidden, Vec::<String>::new());
    assert_eq!(manager.errors(), Vec::<String>::new());
}
