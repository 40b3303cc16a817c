//! Ranges of Service addresses under faults: none is let go while an address hangs on it, the others go.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::{object, until};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

struct Ranges;

fn cidrs(place: &Place) -> Api<ServiceCIDR> {
    Api::all(place.namespace.client.clone())
}

fn named(place: &Place, name: &str) -> String {
    format!("{}-{name}", place.name())
}

/// An address or a range of the place's own: `REST` of 10.N.REST.
fn own(place: &Place, rest: &str) -> String {
    format!("10.{}.{rest}", 100 + place.at)
}

async fn create(place: &Place, name: &str, range: &str) {
    let body =
        json!({ "metadata": { "name": named(place, name) }, "spec": { "cidrs": [own(place, range)] } });
    cidrs(place).create(&PostParams::default(), &object(body)).await.expect("created");
}

async fn delete(place: &Place, name: &str) {
    let deleted = cidrs(place).delete(&named(place, name), &DeleteParams::default()).await;
    drop(deleted.expect("deleted"));
}

/// A service with this address. API servers need a moment to know of a range.
async fn service(place: &Place, name: &str, address: &str) {
    let spec = json!({ "clusterIP": own(place, address), "ports": [{ "port": 80 }] });
    let body: Service = object(json!({ "metadata": { "name": name }, "spec": spec }));
    let services = place.namespace.api::<Service>();
    let created = async || {
        let created = services.create(&PostParams::default(), &body).await;
        created.map(drop).map_err(|error| error.to_string())
    };
    until(&format!("a service at {address}"), LIMIT, created, Result::is_ok).await.expect("just seen");
}

/// What each range of a place says.
async fn said(place: &Place) -> Outcome {
    let all = cidrs(place).list(&ListParams::default()).await.expect("ranges").items;
    let prefix = named(place, "");
    let own = all.into_iter().filter_map(|cidr| {
        let name = cidr.metadata.name.as_deref()?.strip_prefix(&prefix)?.to_owned();
        let conditions = cidr.status.unwrap_or_default().conditions.unwrap_or_default();
        let conditions: Vec<String> = conditions
            .iter()
            .map(|held| format!("{} {} {}: {}", held.type_, held.status, held.reason, held.message))
            .collect();
        let state = json!({
            "finalizers": cidr.metadata.finalizers.unwrap_or_default(),
            "deleting": cidr.metadata.deletion_timestamp.is_some(),
            "conditions": conditions,
        });
        Some((name, state))
    });
    own.collect()
}

fn ready() -> Value {
    json!({
        "finalizers": [FINALIZER], "deleting": false,
        "conditions": ["Ready True : Kubernetes Service CIDR is ready"],
    })
}

fn waits() -> Value {
    let why = "Ready False Terminating: There are still IPAddresses referencing the ServiceCIDR, \
               please remove them or create a new ServiceCIDR";
    json!({ "finalizers": [FINALIZER], "deleting": true, "conditions": [why] })
}

async fn all_ready(place: &Place, count: usize) {
    let all = |said: &Outcome| said.len() == count && said.values().all(|state| *state == ready());
    until("ready ranges", LIMIT, || said(place), all).await;
}

impl Scenario for Ranges {
    const CONTROLLER: &'static str = "service-cidr-controller";
    const ACCOUNT: &'static str = "service-cidrs-controller";

    async fn prepare(place: &Place) {
        for (name, range) in [
            ("used", "1.0/24"),
            ("free", "2.0/24"),
            ("twin", "4.0/24"),
            ("heir", "4.0/23"),
            ("lasting", "6.0/24"),
        ] {
            create(place, name, range).await;
        }
        all_ready(place, 5).await;
        service(place, "web", "1.7").await;
        service(place, "inherited", "4.7").await;
    }

    async fn act(place: &Place) {
        for name in ["used", "free", "twin"] {
            delete(place, name).await;
        }
        create(place, "fresh", "8.0/24").await;
    }

    async fn outcome(place: &Place) -> Outcome {
        said(place).await
    }

    fn expected() -> Outcome {
        [("used", waits()), ("heir", ready()), ("lasting", ready()), ("fresh", ready())]
            .map(|(name, state)| (name.to_owned(), state))
            .into()
    }
}

/// It does not hear of an address that was given out while its range was being deleted.
async fn lags(stage: &Stage<'_>) {
    let place = stage.empty::<Ranges>().await;
    stage.leave(&place);
    for (name, range) in [("a", "1.0/24"), ("b", "2.0/24")] {
        create(&place, name, range).await;
    }
    all_ready(&place, 2).await;
    // The API server knows both.
    service(&place, "first", "1.7").await;
    service(&place, "other", "2.7").await;
    let services = place.namespace.api::<Service>();
    services.delete("first", &DeleteParams::default()).await.expect("deleted");
    services.delete("other", &DeleteParams::default()).await.expect("deleted");
    let addresses: Api<IPAddress> = Api::all(place.namespace.client.clone());
    let gone = async || addresses.get_opt(&own(&place, "1.7")).await.expect("an answer").is_none();
    until("a free address", LIMIT, gone, |gone| *gone).await;

    stage.line.hold("ipaddresses");
    service(&place, "second", "1.8").await;
    delete(&place, "a").await;
    delete(&place, "b").await;
    // Both were deleted at the same time, so it has decided about both.
    let decided = |said: &Outcome| !said.contains_key("b") && said.get("a").is_none_or(|a| *a != ready());
    let said_then = until("the end of b", LIMIT, || said(&place), decided).await;
    assert!(said_then.contains_key("a"), "an address hangs on it");
    stage.line.release();
    until("it waits", LIMIT, || said(&place), |said| said.get("a") == Some(&waits())).await;
    services.delete("second", &DeleteParams::default()).await.expect("deleted");
    until("the end of a", LIMIT, || said(&place), Outcome::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_range_goes_while_addresses_hang_on_it() {
    let shared = shared().await;
    let stage = Stage::start::<Ranges>(&shared.plane).await;
    stage.endures_faults::<Ranges>().await;
    lags(&stage).await;
    stage.stays::<Ranges>().await;
}
