//! Endpoints under faults: they end up showing the pods, those of Services that are gone are gone, and those of others are
//! as they were.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::served::{self, FIRST, PODS, Shown};
use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::until;

/// Endpoints of others: written by hand for a Service, and the lock of an election.
const OTHERS: [&str; 2] = ["manual", "lock"];

struct Shows;

/// What Endpoints show, and of how many subsets they are.
fn seen(shown: &Shown, subsets: usize) -> Value {
    json!({ "shown": shown, "subsets": subsets })
}

fn content(endpoints: Endpoints) -> Value {
    let subsets = endpoints.subsets.unwrap_or_default();
    let count = subsets.len();
    let mut shown: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for subset in subsets {
        let (ready, not) = (subset.addresses.unwrap_or_default(), subset.not_ready_addresses);
        let ready = ready.into_iter().map(|address| (address, true));
        for (address, is_ready) in
            ready.chain(not.unwrap_or_default().into_iter().map(|address| (address, false)))
        {
            let name = address.target_ref.and_then(|target| target.name).unwrap_or(address.ip);
            shown.entry(name).or_default().push(is_ready);
        }
    }
    seen(&shown, count)
}

/// What is nobody's business but its maker's.
async fn create_others(place: &Place) {
    let namespace = &place.namespace;
    // Without an address: those are of ranges that others look after.
    let spec = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
    let _: Service = namespace.create(json!({ "metadata": { "name": OTHERS[0] }, "spec": spec })).await;
    let subsets = json!([{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 8080 }] }]);
    let _: Endpoints =
        namespace.create(json!({ "metadata": { "name": OTHERS[0] }, "subsets": subsets })).await;
    let leader = json!({ "control-plane.alpha.kubernetes.io/leader": "{}" });
    let metadata = json!({ "name": OTHERS[1], "annotations": leader });
    let _: Endpoints = namespace.create(json!({ "metadata": metadata })).await;
}

impl Scenario for Shows {
    const CONTROLLER: &'static str = "endpoints-controller";
    const ACCOUNT: &'static str = "endpoint-controller";

    async fn prepare(place: &Place) {
        create_others(place).await;
        served::prepare(place).await;
        let whole = |outcome: &Outcome| {
            let of = |name: &str| outcome.get(name).and_then(|seen| seen["shown"].as_object());
            FIRST.iter().all(|(name, _)| of(name).is_some_and(|shown| shown.len() == PODS))
        };
        until("the first Endpoints", LIMIT, || Self::outcome(place), whole).await;
    }

    async fn act(place: &Place) {
        served::act(place).await;
    }

    async fn outcome(place: &Place) -> Outcome {
        let list = place.namespace.api::<Endpoints>().list(&ListParams::default()).await.expect("Endpoints");
        let all = list.items.into_iter();
        all.map(|each| (each.metadata.name.clone().unwrap_or_default(), content(each))).collect()
    }

    fn expected() -> Outcome {
        let services = served::expected().into_iter();
        let mut expected: Outcome =
            services.map(|(name, shown)| (name.to_owned(), seen(&shown, 1))).collect();
        let manual = Shown::from([("192.0.2.1".to_owned(), vec![true])]);
        expected.insert(OTHERS[0].to_owned(), seen(&manual, 1));
        expected.insert(OTHERS[1].to_owned(), seen(&Shown::new(), 0));
        expected
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_end_up_showing_the_pods() {
    let shared = shared().await;
    let stage = Stage::start::<Shows>(&shared.plane).await;
    stage.endures_faults::<Shows>().await;
    stage.stays::<Shows>().await;
}
