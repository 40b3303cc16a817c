//! Which keys a change concerns.

use std::sync::Arc;

use super::super::topology::KnownCapacity;
use super::super::{keys, services};
use super::fixtures::{Bench, any, deleting, labels, meta, node, pod, ready, service};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::indexes::BY_SERVICE;
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{KeyMap, Selecting};
use coxswain_machinery::informer::{Delta, Indexed, Lister};

fn told(map: &KeyMap, old: Option<&AnyObject>, new: Option<&AnyObject>) -> Vec<String> {
    let mut keys = Vec::new();
    for quiet in [(true, false), (false, true)] {
        map(Delta { old, new, initial: quiet.0, resync: quiet.1 }, &mut |key| {
            keys.push(key.to_string());
        });
    }
    assert_eq!(keys, [""; 0], "its Service brings its own key");
    map(Delta { old, new, initial: false, resync: false }, &mut |key| {
        keys.push(key.to_string());
    });
    keys.sort();
    keys.dedup();
    keys
}

/// A change of a pod, and whether an endpoint shows it.
type PodChange = (fn(&mut Pod), bool);

fn named(name: &str, namespace: &str, selector: &[(&str, &str)]) -> Service {
    let mut named = service(|_| {});
    named.metadata = meta(namespace, name);
    named.spec.selector = labels(selector);
    named
}

fn of_pods() -> impl Fn(Option<Pod>, Option<Pod>) -> Vec<String> {
    let bench = Bench::of(&service(|_| {}), []);
    bench.add(&named("front", "default", &[("app", "web"), ("tier", "front")]));
    bench.add(&named("all", "default", &[]));
    bench.add(&named("api", "default", &[("app", "api")]));
    bench.add(&named("web", "other", &[("app", "web")]));
    let map = services::of_pods(Selecting::new(&bench.store(&SERVICES)));
    move |old, new| {
        let [old, new] = [old, new].map(|pod| pod.map(|pod| any(&PODS, &pod)));
        told(&map, old.as_ref(), new.as_ref())
    }
}

#[test]
fn a_pod_concerns_whoever_selects_it() {
    let keys = of_pods();
    let front =
        |pod: &mut Pod| pod.metadata.labels = labels(&[("app", "web"), ("tier", "front"), ("z", "1")]);
    assert_eq!(keys(None, Some(pod(1, |_| {}))), ["default/web"]);
    assert_eq!(keys(Some(pod(1, |_| {})), None), ["default/web"]);
    assert_eq!(keys(None, Some(pod(1, front))), ["default/front", "default/web"]);
    let api = |pod: &mut Pod| pod.metadata.labels = labels(&[("app", "api")]);
    assert_eq!(keys(Some(pod(1, front)), Some(pod(1, api))), ["default/api", "default/front", "default/web"]);
    assert_eq!(keys(None, Some(pod(1, |pod| pod.metadata.labels = labels(&[])))), [""; 0]);
}

#[test]
fn only_what_an_endpoint_shows_counts() {
    let keys = of_pods();
    let changes: [PodChange; 9] = [
        (|pod| pod.metadata.annotations = labels(&[("a", "b")]), false),
        (|pod| pod.metadata.resource_version = "9".into(), false),
        (|pod| ready(pod, false, 1), true),
        (|pod| ready(pod, true, 1), true),
        (deleting, true),
        (|pod| pod.status.phase = "Failed".into(), true),
        (|pod| pod.status.phase = "Unknown".into(), false),
        (|pod| pod.status.pod_ips[0].ip = "10.9.9.9".into(), true),
        (|pod| pod.spec.node_name = "node-1".into(), true),
    ];
    for (at, (change, counts)) in changes.into_iter().enumerate() {
        let expected: &[&str] = if counts { &["default/web"] } else { &[] };
        assert_eq!(keys(Some(pod(1, |_| {})), Some(pod(1, change))), expected, "change {at}");
    }
}

#[test]
fn a_service_concerns_itself() {
    let map = coxswain_machinery::framework::wake::own();
    let mut keys = Vec::new();
    let object = any(&SERVICES, &service(|_| {}));
    map(Delta { old: None, new: Some(&object), initial: true, resync: false }, &mut |key| keys.push(key));
    map(Delta { old: Some(&object), new: None, initial: false, resync: false }, &mut |key| keys.push(key));
    assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["default/web", "default/web"]);
}

#[test]
fn a_slice_concerns_the_service_that_it_names() {
    let slice = |service: &str, by: &str| {
        let mut slice = EndpointSlice { metadata: meta("default", "s"), ..EndpointSlice::default() };
        slice.metadata.labels = labels(&[
            ("kubernetes.io/service-name", service),
            ("endpointslice.kubernetes.io/managed-by", by),
        ]);
        any(&ENDPOINT_SLICES, &slice)
    };
    let (ours, other) = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io");
    let map = services::of_slices(super::super::is_ours, false);
    assert_eq!(told(&map, None, Some(&slice("web", ours))), ["default/web"]);
    assert_eq!(told(&map, Some(&slice("web", ours)), None), ["default/web"]);
    assert_eq!(
        told(&map, Some(&slice("web", ours)), Some(&slice("api", ours))),
        ["default/api", "default/web"]
    );
    assert_eq!(told(&map, Some(&slice("web", ours)), Some(&slice("web", other))), ["default/web"]);
    assert_eq!(told(&map, None, Some(&slice("web", other))), [""; 0]);
}

#[test]
fn a_node_concerns_services_whose_hints_overload_a_zone_now() {
    let mut auto = service(|_| {});
    auto.metadata.annotations = labels(&[("service.kubernetes.io/topology-mode", "Auto")]);
    let pods =
        (1..7).map(|number| pod(number, |pod| pod.spec.node_name = format!("node-{}", number % 3).into()));
    let mut bench = Bench::of(&auto, pods);
    bench.settings.max_per_slice = 100;
    bench.settled();
    bench.add(&named("plain", "default", &[("app", "web")]));
    let map = keys::of_nodes(
        Lister::new(bench.store(&SERVICES)),
        Indexed::new(&bench.store(&ENDPOINT_SLICES), &BY_SERVICE),
        Arc::new(KnownCapacity::new(Lister::new(bench.store(&NODES)))),
    );
    let tell = |old: Option<Node>, new: Option<Node>| {
        if let Some(new) = &new {
            bench.add(new);
        }
        let [old, new] = [old, new].map(|node| node.map(|node| any(&NODES, &node)));
        told(&map, old.as_ref(), new.as_ref())
    };
    let small = |zone: &str| {
        let mut small = node("node-3", zone);
        small.status.allocatable.insert("cpu", "100m");
        small
    };
    // A little more in a zone that has enough.
    assert_eq!(tell(None, Some(small("a"))), [""; 0]);
    // A heartbeat changes nothing.
    let mut beaten = small("a");
    beaten.metadata.resource_version = "7".into();
    assert_eq!(tell(Some(small("a")), Some(beaten)), [""; 0]);
    // A zone that has no endpoints.
    assert_eq!(tell(Some(small("a")), Some(small("d"))), ["default/web"]);
    // Nodes of which nothing is known.
    let mut unknown = small("a");
    unknown.status.allocatable.retain(|_| false);
    assert_eq!(tell(Some(small("d")), Some(unknown)), ["default/web"]);
    // Without hints nobody is overloaded.
    let none = Bench::new();
    let map = keys::of_nodes(
        Lister::new(Arc::clone(&bench.store(&SERVICES))),
        Indexed::new(&none.store(&ENDPOINT_SLICES), &BY_SERVICE),
        Arc::new(KnownCapacity::new(Lister::new(bench.store(&NODES)))),
    );
    assert_eq!(told(&map, None, Some(&any(&NODES, &node("node-4", "x")))), [""; 0]);
}

#[test]
fn capacity_is_computed_once_until_a_node_contributes_otherwise() {
    let bench = Bench::new();
    bench.add(&node("node-1", "a"));
    bench.add(&node("node-2", "b"));
    let known = Arc::new(KnownCapacity::new(Lister::new(bench.store(&NODES))));
    let map = keys::of_nodes(
        Lister::new(bench.store(&SERVICES)),
        Indexed::new(&bench.store(&ENDPOINT_SLICES), &BY_SERVICE),
        Arc::clone(&known),
    );
    let first = known.get();
    let mut beaten = node("node-2", "b");
    beaten.metadata.resource_version = "7".into();
    bench.add(&beaten);
    let [old, new] = [node("node-2", "b"), beaten].map(|node| any(&NODES, &node));
    assert_eq!(told(&map, Some(&old), Some(&new)), [""; 0]);
    assert!(Arc::ptr_eq(&first, &known.get()), "a heartbeat");
    let moved = node("node-2", "c");
    bench.add(&moved);
    assert_eq!(told(&map, Some(&new), Some(&any(&NODES, &moved))), [""; 0]);
    assert!(!Arc::ptr_eq(&first, &known.get()));
}
