//! Endpoints under faults: they end up showing the pods, those of Services that are gone are gone, and those of others are
//! as they were.

use std::collections::BTreeMap;

use coxswain::controllers::network::endpoints;
use coxswain::framework::Descriptor;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::ordeal::{LIMIT, Mortal, Ordeal, namespace};
use super::served::{
    PODS, SERVICES, Seen, all_run, create_pods, create_service, create_services, life, service_name, settled,
    unready,
};
use crate::harness::{ControlPlane, Namespace, Options, turn, until};

const ALONE: &str = "--controllers=endpoints-controller";
/// There are more faults than this.
const FAULTS: usize = 15;
/// Services whose pods are those of the first one.
const GONE: &str = "gone";
const AGAIN: &str = "again";
/// Endpoints of others: written by hand for a Service, and the lock of an election.
const OTHERS: [&str; 2] = ["manual", "lock"];

static ENDPOINTS: Descriptor = endpoints::DESCRIPTOR;

async fn all(namespace: &Namespace) -> BTreeMap<String, Endpoints> {
    let list = namespace.api::<Endpoints>().list(&ListParams::default()).await.expect("Endpoints");
    list.items.into_iter().map(|each| (each.metadata.name.clone().unwrap_or_default(), each)).collect()
}

/// What Endpoints show, and of how many subsets they are.
fn content(endpoints: Endpoints) -> (BTreeMap<String, Vec<bool>>, usize) {
    let subsets = endpoints.subsets.unwrap_or_default();
    let count = subsets.len();
    let mut shown: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for subset in subsets {
        let (ready, not) = (subset.addresses.unwrap_or_default(), subset.not_ready_addresses);
        let ready = ready.into_iter().map(|address| (address, true));
        for (address, is_ready) in
            ready.chain(not.unwrap_or_default().into_iter().map(|address| (address, false)))
        {
            let pod = address.target_ref.and_then(|target| target.name).unwrap_or_default();
            shown.entry(pod).or_default().push(is_ready);
        }
    }
    (shown, count)
}

async fn shown(namespace: &Namespace) -> Seen {
    let all = all(namespace).await.into_iter();
    let served = all.filter(|(name, _)| (0..SERVICES).any(|at| *name == service_name(at)));
    served.map(|(name, endpoints)| (name, content(endpoints))).collect()
}

/// What is nobody's business but its maker's.
async fn create_others(namespace: &Namespace) -> Vec<Value> {
    let spec = json!({ "ports": [{ "port": 80 }] });
    let _: Service = namespace.create(json!({ "metadata": { "name": OTHERS[0] }, "spec": spec })).await;
    let subsets = json!([{ "addresses": [{ "ip": "192.0.2.1" }], "ports": [{ "port": 8080 }] }]);
    let _: Endpoints =
        namespace.create(json!({ "metadata": { "name": OTHERS[0] }, "subsets": subsets })).await;
    let leader = json!({ "control-plane.alpha.kubernetes.io/leader": "{}" });
    let metadata = json!({ "name": OTHERS[1], "annotations": leader });
    let _: Endpoints = namespace.create(json!({ "metadata": metadata })).await;
    others(namespace).await
}

async fn others(namespace: &Namespace) -> Vec<Value> {
    let all = all(namespace).await;
    OTHERS.iter().map(|name| serde_json::to_value(all.get(*name)).expect("JSON")).collect()
}

async fn create_two_more(namespace: &Namespace) {
    for name in [GONE, AGAIN] {
        create_service(namespace, name, 0).await;
    }
}

/// Two Services go, of which one comes again.
async fn lose_two(namespace: &Namespace) {
    for name in [GONE, AGAIN] {
        namespace.api::<Service>().delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    create_service(namespace, AGAIN, 0).await;
}

/// Waits until the Service that came again has the Endpoints of the first, and the one that went has none, if it `went`.
async fn settled_too(namespace: &Namespace, went: bool) {
    let seen = async || {
        let mut all = all(namespace).await;
        [service_name(0).as_str(), AGAIN, GONE].map(|name| all.remove(name).map(content))
    };
    let agree = |[first, again, gone]: &[Option<_>; 3]| {
        first.is_some() && first == again && *gone == first.clone().filter(|_| !went)
    };
    until("Endpoints of Services that come and go", LIMIT, seen, agree).await;
}

/// The controller in this process, with faults on its requests and on its watches.
async fn faulty(plane: &ControlPlane) {
    let ordeal = Ordeal::start(plane, &ENDPOINTS, "*/endpoints*", |_| {}).await;
    let namespace = &ordeal.namespace;
    let before = create_others(namespace).await;
    create_two_more(namespace).await;
    life(namespace, &shown).await;
    settled_too(namespace, false).await;
    lose_two(namespace).await;
    unready(namespace, 7).await;
    assert_eq!(settled(namespace, PODS - 1, &shown).await, [1; SERVICES]);
    settled_too(namespace, true).await;
    // Many pods may have been one write.
    for at in [0, 4, 8, 9, 10, 11] {
        if ordeal.hits() <= FAULTS {
            unready(namespace, at).await;
            assert_eq!(settled(namespace, PODS - 1, &shown).await, [1; SERVICES]);
        }
    }
    ordeal.relieve(FAULTS);
    create_service(namespace, GONE, 0).await;
    settled_too(namespace, false).await;
    let change = async |namespace: &Namespace| {
        unready(namespace, 6).await;
        lose_two(namespace).await;
    };
    ordeal.refused(3 * SERVICES, change).await;
    assert_eq!(settled(namespace, PODS - 1, &shown).await, [1; SERVICES]);
    settled_too(namespace, true).await;
    assert_eq!(before, others(namespace).await);
    ordeal.end().await;
}

/// The whole manager is killed between its writes, again and again.
async fn killed(plane: &ControlPlane) {
    let namespace = namespace(plane, "killed").await;
    let before = create_others(&namespace).await;
    create_services(&namespace).await;
    create_two_more(&namespace).await;
    create_pods(&namespace).await;
    all_run(&namespace).await;
    let manager = Mortal::start(plane, &[ALONE], &namespace, "endpoints");
    manager.dies_after(0, 2).await;
    assert_eq!(settled(&namespace, PODS, &shown).await, [1; SERVICES]);
    settled_too(&namespace, false).await;
    let change = async |namespace: &Namespace| {
        unready(namespace, 1).await;
        lose_two(namespace).await;
    };
    manager.dies(2, change).await;
    assert_eq!(settled(&namespace, PODS, &shown).await, [1; SERVICES]);
    settled_too(&namespace, true).await;
    assert_eq!(before, others(&namespace).await);
    manager.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_end_up_showing_the_pods() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    faulty(&plane).await;
    killed(&plane).await;
}
