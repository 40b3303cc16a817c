//! Controllers of Services and their addresses.

use serde_json::{Value as Json, json};

use super::{Row, row};
use crate::matrix::TAGS;
use crate::matrix::seeder::{Seeder, owner, template};

const ENDPOINTS: &str = "endpoints-controller";
const SLICES: &str = "endpointslice-controller";
const MIRRORING: &str = "endpointslice-mirroring-controller";
const RANGES: &str = "service-cidr-controller";

pub(super) static ROWS: &[Row] = &[
    row(ENDPOINTS, "create endpoints", |seeder| _ = served(seeder)),
    row(ENDPOINTS, "update endpoints", |seeder| {
        served(seeder);
        endpoints(seeder);
    }),
    row(ENDPOINTS, "delete endpoints", |seeder| _ = endpoints(seeder)),
    row(SLICES, "create endpointslices.discovery.k8s.io", |seeder| _ = served(seeder)),
    row(SLICES, "update endpointslices.discovery.k8s.io", |seeder| {
        let service = served(seeder);
        slice(seeder, "endpointslice-controller.k8s.io", "IPv4", &owner("v1", "Service", &service));
    }),
    row(SLICES, "delete endpointslices.discovery.k8s.io", |seeder| {
        let service = served(seeder);
        slice(seeder, "endpointslice-controller.k8s.io", "IPv6", &owner("v1", "Service", &service));
    }),
    row(MIRRORING, "create endpointslices.discovery.k8s.io", |seeder| {
        service(seeder, &Json::Null);
        endpoints(seeder);
    }),
    row(MIRRORING, "update endpointslices.discovery.k8s.io", |seeder| {
        service(seeder, &Json::Null);
        let endpoints = endpoints(seeder);
        // A slice of another owner would be deleted, and a new one created.
        let owner = owner("v1", "Endpoints", &endpoints);
        slice(seeder, "endpointslicemirroring-controller.k8s.io", "IPv4", &owner);
    }),
    row(MIRRORING, "delete endpointslices.discovery.k8s.io", |seeder| {
        service(seeder, &Json::Null);
        slice(seeder, "endpointslicemirroring-controller.k8s.io", "IPv4", &Json::Null);
    }),
    row(RANGES, "update servicecidrs.networking.k8s.io", range),
    row(RANGES, "update servicecidrs.networking.k8s.io/status", range),
];

fn service(seeder: &mut Seeder<'_>, selector: &Json) -> Json {
    let spec = json!({
        "selector": selector, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }],
    });
    seeder.make("services", json!({ "spec": spec }))
}

/// A Service and a pod that serves it.
fn served(seeder: &mut Seeder<'_>) -> Json {
    let service = service(seeder, &json!({ "app": "web" }));
    let pod = seeder.make("pods", template());
    seeder.amend("pods", &pod, |pod| {
        pod["spec"]["nodeName"] = json!("node");
        pod["status"] = json!({
            "phase": "Running", "podIP": "10.8.0.1", "podIPs": [{ "ip": "10.8.0.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        });
    });
    service
}

/// Endpoints that someone else has written.
fn endpoints(seeder: &mut Seeder<'_>) -> Json {
    let subset = json!({
        "addresses": [{ "ip": "10.9.9.9" }], "ports": [{ "port": 9, "protocol": "TCP" }],
    });
    seeder.make("endpoints", json!({ "subsets": [subset] }))
}

/// A slice with an address that is no longer served.
fn slice(seeder: &mut Seeder<'_>, manager: &str, family: &str, owners: &Json) {
    let labels = json!({
        "kubernetes.io/service-name": seeder.tag, "endpointslice.kubernetes.io/managed-by": manager,
    });
    let address = if family == "IPv4" { "10.7.7.7" } else { "fd00::7" };
    let slice = json!({
        "metadata": {
            "name": format!("{}-old", seeder.tag), "labels": labels, "ownerReferences": owners,
        },
        "addressType": family,
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "port": 9, "protocol": "TCP", "name": "" }],
    });
    seeder.make("endpointslices", slice);
}

fn range(seeder: &mut Seeder<'_>) {
    let number = TAGS.iter().position(|tag| *tag == seeder.tag).unwrap_or_default();
    seeder.make("servicecidrs", json!({ "spec": { "cidrs": [format!("10.{number}.0.0/24")] } }));
}
