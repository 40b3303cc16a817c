//! Mirrored Endpoints under faults: each subset and family ends up in one slice, what is not to be mirrored any more has
//! none, and slices of others are as they were.

use std::collections::BTreeMap;

use coxswain::controllers::network::endpointslice_mirroring;
use coxswain::framework::Descriptor;
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::ordeal::{LIMIT, Mortal, Ordeal, namespace};
use crate::harness::{ControlPlane, Namespace, Options, turn, until};

const ALONE: &str = "--controllers=endpointslice-mirroring-controller";
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICES: usize = 8;
/// A slice that somebody else makes for the last of them.
const BY_HAND: &str = "by-hand";

static MIRRORING: Descriptor = endpointslice_mirroring::DESCRIPTOR;

/// A slice: its Service, the UID of what it mirrors, its family, its ports, and its addresses with their readiness.
type Mirrored = (String, String, String, String, BTreeMap<String, bool>);

fn name(at: usize) -> String {
    format!("manual-{at}")
}

async fn create_services(namespace: &Namespace) {
    for at in 0..SERVICES {
        let spec = json!({ "ports": [{ "port": 80 }] });
        let _: Service = namespace.create(json!({ "metadata": { "name": name(at) }, "spec": spec })).await;
    }
}

/// Subsets that come to three slices.
fn three(at: usize) -> Value {
    let ip = |last: usize| json!({ "ip": format!("10.1.{at}.{last}") });
    json!([
        {
            "addresses": [ip(1), ip(2), ip(3), { "ip": format!("fd00::1:{at}") }],
            "notReadyAddresses": [ip(4)],
            "ports": [{ "name": "http", "port": 8080 }],
        },
        { "addresses": [ip(5)], "ports": [{ "name": "metrics", "port": 9090 }] },
    ])
}

/// Subsets that come to two: one with other addresses, one with other ports.
fn two(at: usize) -> Value {
    let ip = |last: usize| json!({ "ip": format!("10.1.{at}.{last}") });
    json!([
        {
            "addresses": [ip(2), ip(4), ip(6)],
            "notReadyAddresses": [ip(1)],
            "ports": [{ "name": "http", "port": 8080 }],
        },
        { "addresses": [ip(5)], "ports": [{ "name": "metrics", "port": 9091 }] },
    ])
}

async fn create_endpoints(namespace: &Namespace, at: usize, subsets: Value) {
    let _: Endpoints =
        namespace.create(json!({ "metadata": { "name": name(at) }, "subsets": subsets })).await;
}

async fn patch_endpoints(namespace: &Namespace, at: usize, patch: Value) {
    let api = namespace.api::<Endpoints>();
    api.patch(&name(at), &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

async fn create_all(namespace: &Namespace) -> Value {
    create_services(namespace).await;
    for at in 0..SERVICES {
        create_endpoints(namespace, at, three(at)).await;
    }
    let labels = json!({ "kubernetes.io/service-name": name(SERVICES - 1), MANAGED_BY: "tests" });
    let slice = json!({
        "metadata": { "name": BY_HAND, "labels": labels },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.1.9.9"] }],
    });
    let slice: EndpointSlice = namespace.create(slice).await;
    serde_json::to_value(slice).expect("JSON")
}

/// All change, some go, some are not to be mirrored any more, and one comes again.
async fn change_all(namespace: &Namespace) {
    for at in 0..SERVICES {
        patch_endpoints(namespace, at, json!({ "subsets": two(at) })).await;
    }
    let deletion = DeleteParams::default();
    for at in [0, 3] {
        namespace.api::<Endpoints>().delete(&name(at), &deletion).await.expect("deleted");
    }
    namespace.api::<Service>().delete(&name(1), &deletion).await.expect("deleted");
    let skip = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
    patch_endpoints(namespace, 2, json!({ "metadata": { "labels": skip } })).await;
    create_endpoints(namespace, 3, two(3)).await;
    let leader = json!({ "control-plane.alpha.kubernetes.io/leader": "{}" });
    patch_endpoints(namespace, 4, json!({ "metadata": { "annotations": leader } })).await;
}

/// The reverse, as far as there is one.
async fn change_back(namespace: &Namespace) {
    patch_endpoints(namespace, 2, json!({ "metadata": { "labels": null } })).await;
    patch_endpoints(namespace, 4, json!({ "metadata": { "annotations": null } })).await;
    for at in 2..SERVICES {
        patch_endpoints(namespace, at, json!({ "subsets": three(at) })).await;
    }
}

/// What Endpoints come to that are mirrored.
fn of(endpoints: &Endpoints) -> Vec<Mirrored> {
    let mut slices: BTreeMap<(String, String), BTreeMap<String, bool>> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = subset.ports.iter().flatten();
        let ports: Vec<String> =
            ports.map(|port| format!("{}:{}", port.name.clone().unwrap_or_default(), port.port)).collect();
        let mut enter = |address: &EndpointAddress, is_ready: bool| {
            let family = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
            let slice = slices.entry((family.to_owned(), ports.join(" "))).or_default();
            slice.insert(address.ip.clone(), is_ready);
        };
        subset.addresses.iter().flatten().for_each(|address| enter(address, true));
        subset.not_ready_addresses.iter().flatten().for_each(|address| enter(address, false));
    }
    let meta = &endpoints.metadata;
    let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
    slices
        .into_iter()
        .map(|((family, ports), addresses)| (name.clone(), uid.clone(), family, ports, addresses))
        .collect()
}

/// What there should be, but for those `excluded`.
async fn expected(namespace: &Namespace, excluded: &[usize]) -> Vec<Mirrored> {
    let list = namespace.api::<Endpoints>().list(&ListParams::default()).await.expect("Endpoints");
    let excluded: Vec<String> = excluded.iter().map(|at| name(*at)).collect();
    let is_mirrored = |endpoints: &&Endpoints| {
        !endpoints.metadata.name.as_ref().is_some_and(|name| excluded.contains(name))
    };
    let mut all: Vec<Mirrored> = list.items.iter().filter(is_mirrored).flat_map(of).collect();
    all.sort();
    all
}

/// What there is.
async fn mirrors(namespace: &Namespace) -> Vec<Mirrored> {
    let list = ListParams::default().labels(&format!("{MANAGED_BY}={MIRROR}"));
    let list = namespace.api::<EndpointSlice>().list(&list).await.expect("slices");
    let mirrored = |slice: EndpointSlice| {
        let labels = slice.metadata.labels.unwrap_or_default();
        let owner = slice.metadata.owner_references.unwrap_or_default();
        let ports = slice.ports.unwrap_or_default().into_iter();
        let port = |name: Option<String>, port: Option<i32>| {
            format!("{}:{}", name.unwrap_or_default(), port.unwrap_or_default())
        };
        let ports: Vec<String> = ports.map(|each| port(each.name, each.port)).collect();
        let mut addresses = BTreeMap::new();
        for endpoint in slice.endpoints.unwrap_or_default() {
            let is_ready = endpoint.conditions.and_then(|each| each.ready).unwrap_or_default();
            for address in endpoint.addresses {
                let twice = addresses.insert(address, is_ready);
                assert_eq!(twice, None, "an address is in a slice twice");
            }
        }
        let uid = owner.into_iter().map(|owner| owner.uid).collect();
        (labels["kubernetes.io/service-name"].clone(), uid, slice.address_type, ports.join(" "), addresses)
    };
    let mut all: Vec<Mirrored> = list.items.into_iter().map(mirrored).collect();
    all.sort();
    all
}

/// Waits until Endpoints are mirrored, each slice once, but for those `excluded`.
async fn settled(namespace: &Namespace, excluded: &[usize], count: usize) {
    let agree = async || (expected(namespace, excluded).await, mirrors(namespace).await);
    let (all, _) =
        until("Endpoints are mirrored", LIMIT, agree, |(expected, mirrors)| expected == mirrors).await;
    assert_eq!(all.len(), count, "{all:?}");
}

async fn by_hand(namespace: &Namespace) -> Value {
    serde_json::to_value(namespace.api::<EndpointSlice>().get(BY_HAND).await.expect("a slice")).expect("JSON")
}

/// The controller in this process, with faults on its requests and on its watches.
async fn faulty(plane: &ControlPlane) {
    let ordeal = Ordeal::start(plane, &MIRRORING, "*/endpointslices*", |_| {}).await;
    let namespace = &ordeal.namespace;
    let other = create_all(namespace).await;
    settled(namespace, &[], 3 * SERVICES).await;
    change_all(namespace).await;
    settled(namespace, &[1, 2, 4], 2 * (SERVICES - 4)).await;
    ordeal.relieve(15);
    ordeal.refused(3 * SERVICES, change_back).await;
    settled(namespace, &[1], 3 * (SERVICES - 2)).await;
    assert_eq!(other, by_hand(namespace).await);
    ordeal.end().await;
}

/// The whole manager is killed between its writes, again and again.
async fn killed(plane: &ControlPlane) {
    let namespace = namespace(plane, "killed").await;
    let other = create_all(&namespace).await;
    let manager = Mortal::start(plane, &[ALONE], &namespace, "endpointslices");
    manager.dies_after(0, 4).await;
    settled(&namespace, &[], 3 * SERVICES).await;
    manager.dies(4, change_all).await;
    settled(&namespace, &[1, 2, 4], 2 * (SERVICES - 4)).await;
    manager.dies(3, change_back).await;
    settled(&namespace, &[1], 3 * (SERVICES - 2)).await;
    assert_eq!(other, by_hand(&namespace).await);
    manager.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrors_end_up_as_what_they_mirror() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    faulty(&plane).await;
    killed(&plane).await;
}
