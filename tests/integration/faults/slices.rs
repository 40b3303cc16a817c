//! Slices under faults: they end up showing the pods, each once, in as many slices as without faults.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use serde_json::json;

use super::served::{self, FIRST, PODS, Shown};
use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::until;

/// Endpoints in one slice, so that few pods need several.
const FULL: usize = 5;

struct Slices;

/// Describes a Service by its pods and the number of its slices. `outdated` is the number of slices that an earlier Service of the same name owns.
fn seen(shown: &Shown, slices: usize, outdated: usize) -> serde_json::Value {
    json!({ "pods": shown, "slices": slices, "outdated": outdated })
}

impl Scenario for Slices {
    const CONTROLLER: &'static str = "endpointslice-controller";
    const ACCOUNT: &'static str = "endpointslice-controller";
    const ARGS: &'static [&'static str] = &["--max-endpoints-per-slice=5"];

    async fn prepare(place: &Place) {
        served::prepare(place).await;
        let whole = |outcome: &Outcome| {
            let is_whole =
                |seen: &serde_json::Value| seen["pods"].as_object().is_some_and(|pods| pods.len() == PODS);
            outcome.len() == FIRST.len() && outcome.values().all(is_whole)
        };
        until("the first slices", LIMIT, || Self::outcome(place), whole).await;
    }

    async fn act(place: &Place) {
        served::act(place).await;
    }

    async fn outcome(place: &Place) -> Outcome {
        let services = place.namespace.api::<Service>().list(&ListParams::default()).await.expect("services");
        let uids: BTreeMap<_, _> =
            services.items.into_iter().map(|service| (service.metadata.name, service.metadata.uid)).collect();
        let list = place.namespace.api::<EndpointSlice>().list(&ListParams::default()).await.expect("slices");
        let mut services: BTreeMap<String, (Shown, usize, usize)> = BTreeMap::new();
        for slice in list.items {
            let name = slice.metadata.labels.unwrap_or_default()["kubernetes.io/service-name"].clone();
            let owner = slice.metadata.owner_references.unwrap_or_default().into_iter().next();
            let owner = owner.map(|owner| owner.uid);
            let is_outdated = uids.get(&Some(name.clone())).is_some_and(|uid| *uid != owner);
            let (shown, count, outdated) = services.entry(name).or_default();
            *count += 1;
            *outdated += usize::from(is_outdated);
            for endpoint in slice.endpoints.unwrap_or_default() {
                let pod = endpoint.target_ref.and_then(|target| target.name).unwrap_or_default();
                let is_ready =
                    endpoint.conditions.and_then(|conditions| conditions.ready).unwrap_or_default();
                shown.entry(pod).or_default().push(is_ready);
            }
        }
        let seen = |(name, (shown, count, outdated))| (name, seen(&shown, count, outdated));
        services.into_iter().map(seen).collect()
    }

    /// The slices of a Service that has gone are garbage, which is not collected here.
    fn expected() -> Outcome {
        let slices = PODS.div_ceil(FULL);
        let mut services = served::expected();
        services.insert("goes", services["later"].clone());
        services.into_iter().map(|(name, shown)| (name.to_owned(), seen(&shown, slices, 0))).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_end_up_showing_the_pods() {
    let shared = shared().await;
    let stage = Stage::start::<Slices>(&shared.plane).await;
    stage.endures_faults::<Slices>().await;
    stage.stays::<Slices>().await;
}
