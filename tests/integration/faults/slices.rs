//! Slices under faults: whatever happens to watches, requests and the manager itself, they end up showing the pods, each
//! once, in as many slices as without faults.

use coxswain::controllers::network::endpointslice;
use coxswain::framework::Descriptor;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;

use super::ordeal::{Mortal, Ordeal, namespace};
use super::served::{PODS, SERVICES, Seen, all_run, create_pods, create_services, life, settled, unready};
use crate::harness::{ControlPlane, Namespace, Options, turn};

/// Endpoints in one slice, so that few pods need several.
const MAX: &str = "--max-endpoints-per-slice=5";
const ALONE: &str = "--controllers=endpointslice-controller";

static ENDPOINT_SLICES: Descriptor = endpointslice::DESCRIPTOR;

/// What the slices show, by service, and how many they are.
async fn shown(namespace: &Namespace) -> Seen {
    let list = namespace.api::<EndpointSlice>().list(&ListParams::default()).await.expect("slices");
    let mut services = Seen::new();
    for slice in list.items {
        let name = slice.metadata.labels.unwrap_or_default()["kubernetes.io/service-name"].clone();
        let (shown, count) = services.entry(name).or_default();
        *count += 1;
        for endpoint in slice.endpoints.unwrap_or_default() {
            let pod = endpoint.target_ref.and_then(|target| target.name).unwrap_or_default();
            let is_ready = endpoint.conditions.and_then(|conditions| conditions.ready).unwrap_or_default();
            shown.entry(pod).or_default().push(is_ready);
        }
    }
    services
}

/// The controller in this process, with faults on its requests and on its watches.
async fn faulty(plane: &ControlPlane) {
    let ordeal = Ordeal::start(plane, &ENDPOINT_SLICES, "*/endpointslices*", |config| {
        config.flags.max_endpoints_per_slice = 5;
    });
    let ordeal = ordeal.await;
    life(&ordeal.namespace, &shown).await;
    let slices = settled(&ordeal.namespace, PODS - 1, &shown).await;
    // Twelve pods need three slices of five; who came and went may leave one more.
    assert!(slices.iter().all(|count| (3..=4).contains(count)), "{slices:?}");
    ordeal.relieve(15);
    let slices_later = settled(&ordeal.namespace, PODS - 1, &shown).await;
    assert_eq!(slices, slices_later, "what faults left behind was put right before they ended");
    ordeal.refused(3 * SERVICES, async |namespace| unready(namespace, 6).await).await;
    assert_eq!(slices, settled(&ordeal.namespace, PODS - 1, &shown).await);
    ordeal.end().await;
}

/// The whole manager is killed between its writes, again and again.
async fn killed(plane: &ControlPlane) {
    let namespace = namespace(plane, "killed").await;
    // Everything is there before it starts: it has many writes to make at once, and is slow about them.
    create_services(&namespace).await;
    create_pods(&namespace).await;
    all_run(&namespace).await;
    let manager = Mortal::start(plane, &[ALONE, MAX], &namespace, "endpointslices");
    manager.dies_after(0, 4).await;
    let slices = settled(&namespace, PODS, &shown).await;
    assert_eq!(slices, [3; SERVICES], "as many as without being killed");
    manager.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_end_up_showing_the_pods() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    faulty(&plane).await;
    killed(&plane).await;
}
