//! Mirrored Endpoints under faults: each subset and family ends up in one slice, what is not to be mirrored any more has
//! none, and slices of others are as they were.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::until;

/// Services whose Endpoints are written by hand, by what becomes of them.
const CHANGE: &str = "change";
const GO: &str = "go";
const COME_AGAIN: &str = "come-again";
const LOSE_SERVICE: &str = "lose-service";
const ASK_NOT_TO_BE: &str = "ask-not-to-be";
const BECOME_A_LOCK: &str = "become-a-lock";
const SERVICES: [&str; 6] = [CHANGE, GO, COME_AGAIN, LOSE_SERVICE, ASK_NOT_TO_BE, BECOME_A_LOCK];
/// A slice that somebody else makes for the first of them.
const BY_HAND: &str = "by-hand";

struct Mirrors;

/// Subsets that come to three slices.
fn three() -> Value {
    json!([
        {
            "addresses": [{ "ip": "10.1.0.1" }, { "ip": "10.1.0.2" }, { "ip": "10.1.0.3" }, { "ip": "fd00::1" }],
            "notReadyAddresses": [{ "ip": "10.1.0.4" }],
            "ports": [{ "name": "http", "port": 8080 }],
        },
        { "addresses": [{ "ip": "10.1.0.5" }], "ports": [{ "name": "metrics", "port": 9090 }] },
    ])
}

/// Subsets that come to two: one with other addresses, one with other ports.
fn two() -> Value {
    json!([
        {
            "addresses": [{ "ip": "10.1.0.2" }, { "ip": "10.1.0.4" }, { "ip": "10.1.0.6" }],
            "notReadyAddresses": [{ "ip": "10.1.0.1" }],
            "ports": [{ "name": "http", "port": 8080 }],
        },
        { "addresses": [{ "ip": "10.1.0.5" }], "ports": [{ "name": "metrics", "port": 9091 }] },
    ])
}

/// What is seen of mirrors of [`three`] and of [`two`]: by family and ports, whether each address is ready.
fn mirrored(subsets: &Value) -> Value {
    if *subsets == three() {
        json!({
            "IPv4 http:8080": { "10.1.0.1": true, "10.1.0.2": true, "10.1.0.3": true, "10.1.0.4": false },
            "IPv6 http:8080": { "fd00::1": true },
            "IPv4 metrics:9090": { "10.1.0.5": true },
        })
    } else {
        json!({
            "IPv4 http:8080": { "10.1.0.1": false, "10.1.0.2": true, "10.1.0.4": true, "10.1.0.6": true },
            "IPv4 metrics:9091": { "10.1.0.5": true },
        })
    }
}

async fn create(place: &Place, name: &str, subsets: &Value) {
    let body = json!({ "metadata": { "name": name }, "subsets": subsets });
    let _: Endpoints = place.namespace.create(body).await;
}

async fn patch(place: &Place, name: &str, patch: Value) {
    let api = place.namespace.api::<Endpoints>();
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

/// The family and ports of a slice, and its addresses with their readiness.
fn content(slice: EndpointSlice) -> (String, Value) {
    let ports = slice.ports.unwrap_or_default().into_iter();
    let ports: Vec<String> = ports
        .map(|each| format!("{}:{}", each.name.unwrap_or_default(), each.port.unwrap_or_default()))
        .collect();
    let mut addresses: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for endpoint in slice.endpoints.unwrap_or_default() {
        let is_ready = endpoint.conditions.and_then(|each| each.ready).unwrap_or_default();
        for address in endpoint.addresses {
            addresses.entry(address).or_default().push(is_ready);
        }
    }
    // An address that is in a slice twice shows as a list.
    let shown = addresses.into_iter().map(|(address, ready)| match ready[..] {
        [is_ready] => (address, is_ready.into()),
        _ => (address, ready.into()),
    });
    (format!("{} {}", slice.address_type, ports.join(" ")), Value::Object(shown.collect()))
}

impl Scenario for Mirrors {
    const CONTROLLER: &'static str = "endpointslice-mirroring-controller";
    const ACCOUNT: &'static str = "endpointslicemirroring-controller";

    async fn prepare(place: &Place) {
        for name in SERVICES {
            // Without an address: those are of ranges that others look after.
            let spec = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
            let _: Service =
                place.namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
            create(place, name, &three()).await;
        }
        let labels = json!({
            "kubernetes.io/service-name": CHANGE, "endpointslice.kubernetes.io/managed-by": "tests",
        });
        let slice = json!({
            "metadata": { "name": BY_HAND, "labels": labels },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.1.9.9"], "conditions": { "ready": true } }],
        });
        let _: EndpointSlice = place.namespace.create(slice).await;
        let mut all: Outcome = SERVICES.map(|name| (name.to_owned(), mirrored(&three()))).into();
        all.insert(BY_HAND.to_owned(), json!({ "IPv4 ": { "10.1.9.9": true } }));
        until("the first mirrors", LIMIT, || Self::outcome(place), |outcome| *outcome == all).await;
    }

    async fn act(place: &Place) {
        let deletion = DeleteParams::default();
        patch(place, CHANGE, json!({ "subsets": two() })).await;
        let endpoints = place.namespace.api::<Endpoints>();
        for name in [GO, COME_AGAIN] {
            endpoints.delete(name, &deletion).await.expect("deleted");
        }
        place.namespace.api::<Service>().delete(LOSE_SERVICE, &deletion).await.expect("deleted");
        let skip = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
        patch(place, ASK_NOT_TO_BE, json!({ "metadata": { "labels": skip } })).await;
        create(place, COME_AGAIN, &two()).await;
        let leader = json!({ "control-plane.alpha.kubernetes.io/leader": "{}" });
        patch(place, BECOME_A_LOCK, json!({ "metadata": { "annotations": leader } })).await;
    }

    /// Slices by the Endpoints that are mirrored, of which each has the UID; that of somebody else by its own name.
    async fn outcome(place: &Place) -> Outcome {
        let list = ListParams::default();
        let endpoints = place.namespace.api::<Endpoints>().list(&list).await.expect("Endpoints").items;
        let uids: Vec<Option<String>> = endpoints.into_iter().map(|each| each.metadata.uid).collect();
        let mut outcome = Outcome::new();
        for slice in place.namespace.api::<EndpointSlice>().list(&list).await.expect("slices").items {
            let labels = slice.metadata.labels.clone().unwrap_or_default();
            let owner =
                slice.metadata.owner_references.iter().flatten().next().map(|owner| owner.uid.clone());
            let name = match &owner {
                None => slice.metadata.name.clone().unwrap_or_default(),
                Some(_) if uids.contains(&owner) => labels["kubernetes.io/service-name"].clone(),
                Some(_) => format!("{} as it was", labels["kubernetes.io/service-name"]),
            };
            let (mut key, content) = content(slice);
            let slices = outcome.entry(name).or_insert_with(|| json!({}));
            while slices.get(&key).is_some() {
                key.push_str(" again");
            }
            slices[key] = content;
        }
        outcome
    }

    fn expected() -> Outcome {
        [
            (CHANGE, mirrored(&two())),
            (COME_AGAIN, mirrored(&two())),
            (BY_HAND, json!({ "IPv4 ": { "10.1.9.9": true } })),
        ]
        .map(|(name, seen)| (name.to_owned(), seen))
        .into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrors_end_up_as_what_they_mirror() {
    let shared = shared().await;
    let stage = Stage::start::<Mirrors>(&shared.plane).await;
    stage.endures_faults::<Mirrors>().await;
    stage.stays::<Mirrors>().await;
}
