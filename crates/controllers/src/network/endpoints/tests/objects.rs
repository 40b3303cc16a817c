//! How the object is written, and when it is left as it is.

use super::fixtures::{Bench, ago, labels, pod, port, ready, service};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::endpoints::{NOT_READY, PORTS, READY, SUBSETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::wire::Value;
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, retain_items};

const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const MANAGED: &str = "endpoints.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";

fn labels_of(bench: &Bench) -> Vec<(String, String)> {
    let held = bench.held();
    held.metadata.labels.iter().map(|(label, value)| (label.to_string(), value.to_string())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn labels_are_the_services() {
    let labeled = |all: &'static [(&str, &str)], cluster_ip: &'static str| {
        service(move |service| {
            service.metadata.labels = labels(all);
            service.spec.cluster_ip = cluster_ip.into();
        })
    };
    let managed = (MANAGED, "endpoint-controller");
    let bench = Bench::of(&labeled(&[("a", "1"), (HEADLESS, "x"), (MANAGED, "me")], "10.96.0.1"), []);
    bench.settled();
    assert_eq!(labels_of(&bench), pairs(&[("a", "1"), managed]));
    for cluster_ip in ["None", ""] {
        let bench = Bench::of(&labeled(&[("a", "1")], cluster_ip), []);
        bench.settled();
        assert_eq!(labels_of(&bench), pairs(&[("a", "1"), managed, (HEADLESS, "")]));
    }
    bench.add(&labeled(&[("b", "2")], "10.96.0.1"));
    bench.settled();
    assert_eq!(labels_of(&bench), pairs(&[("b", "2"), managed]));
}

/// Edits the Endpoints by hand, and tells what is done about it when the Service is looked at.
fn after(bench: &Bench, edits: &[Edit]) -> Vec<String> {
    bench.settled();
    bench.put(edit(&bench.held().raw, edits).unwrap());
    bench.reconcile()
}

#[test]
fn what_others_write_there_is_undone_where_it_is_ours() {
    let label = |name: &str, value: &str| Edit::MapSet(&[1, 11], name.to_owned(), value.to_owned());
    let note = |name: &str, value: &str| Edit::MapSet(&[1, 12], name.to_owned(), value.to_owned());
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    for (edits, done) in [
        (vec![label("mine", "1")], "update"),
        (vec![label(MANAGED, "me")], "update"),
        (vec![Edit::MapRemove(&[1, 11], MANAGED.to_owned())], "update"),
        (vec![Edit::Clear(&[SUBSETS])], "update"),
        (vec![note("endpoints.kubernetes.io/over-capacity", "truncated")], "update"),
        // As in the original, which cannot tell it from its own.
        (vec![label(HEADLESS, "")], ""),
        (vec![note("control-plane.alpha.kubernetes.io/leader", "{}")], ""),
        (vec![note(TRIGGER, "then")], ""),
    ] {
        assert_eq!(after(&bench, &edits).join(","), done, "{edits:?}");
    }
    // A write leaves the annotations of others, and takes what it does not mean to say.
    assert_eq!(after(&bench, &[label("mine", "1")]), ["update"]);
    let annotations = &bench.held().metadata.annotations;
    assert_eq!(*annotations, labels(&[("control-plane.alpha.kubernetes.io/leader", "{}")]));
}

#[test]
fn the_same_in_another_order_is_left_as_it_is() {
    let ports = |service: &mut Service| service.spec.ports = vec![port("a", 1), port("b", 2)];
    let bench =
        Bench::of(&service(ports), [pod(1, |_| {}), pod(2, |pod| ready(pod, false, 10)), pod(3, |_| {})]);
    bench.settled();
    let held = bench.held();
    let mut subsets = held.subsets().unwrap();
    assert_eq!(subsets.len(), 1);
    let subset = subsets.remove(0);
    // One subset for each port, the last first, and so are addresses.
    let mut body = retain_items(&held.raw, SUBSETS, |_| false).unwrap();
    for (_, port) in subset.ports.iter().rev() {
        let mut encoded = Vec::new();
        for (number, addresses) in [(READY, &subset.ready), (NOT_READY, &subset.not_ready)] {
            for (_, address) in addresses.iter().rev() {
                put_bytes(&mut encoded, number, address);
            }
        }
        put_bytes(&mut encoded, PORTS, port);
        put_bytes(&mut body, SUBSETS, &encoded);
    }
    bench.put(body);
    assert_eq!(bench.told(), ["b:2: 10.0.0.3 10.0.0.1 / 10.0.0.2", "a:1: 10.0.0.3 10.0.0.1 / 10.0.0.2"]);
    assert_eq!(bench.reconcile(), [""; 0]);
}

/// The trigger time after this has happened to settled Endpoints of two pods, in seconds ago.
fn triggered(happens: impl FnOnce(&Bench)) -> Option<String> {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), pod(2, |_| {})]);
    bench.settled();
    happens(&bench);
    bench.reconcile();
    bench.held().metadata.annotations.get(TRIGGER).map(ToString::to_string)
}

#[test]
fn a_write_tells_since_when() {
    let time = |seconds| ago(seconds).map(|time| time.to_string());
    let unready = |number, since| pod(number, move |pod| ready(pod, false, since));
    // New Endpoints: when the Service was made, however old its pods are.
    assert_eq!(triggered(|_| {}), time(10_000));
    // A pod that changed, the first of several, and not those that did not.
    assert_eq!(triggered(|bench| bench.add(&unready(1, 7))), time(7));
    assert_eq!(
        triggered(|bench| {
            bench.add(&unready(1, 7));
            bench.add(&pod(3, |pod| ready(pod, true, 9)));
            bench.add(&pod(4, |pod| pod.status.conditions.clear()));
        }),
        time(9)
    );
    // One that ends is told of as one that is not ready any more; one that is deleted while it is ready is not.
    assert_eq!(
        triggered(|bench| {
            bench.add(&pod(1, |pod| {
                ready(pod, false, 7);
                pod.status.phase = "Succeeded".into();
            }));
        }),
        time(7)
    );
    assert_eq!(triggered(|bench| bench.add(&pod(1, super::fixtures::deleting))), None);
    // What is gone, or only looks different, has no time.
    assert_eq!(triggered(|bench| bench.remove(&coxswain_machinery::api::kinds::PODS, "p001")), None);
    assert_eq!(
        triggered(|bench| bench.add(&service(|service| service.metadata.labels = labels(&[("a", "b")])))),
        None
    );
    let moved = |pod: &mut Pod| pod.status.pod_ips[0].ip = "10.0.9.9".into();
    assert_eq!(triggered(|bench| bench.add(&pod(1, moved))), None);
    // A pod that lacks the port is not what a write is about.
    assert_eq!(
        triggered(|bench| {
            bench.add(&pod(3, |pod| pod.status.pod_ips.clear()));
            bench.add(&unready(1, 7));
        }),
        time(7)
    );
}

#[test]
fn unknown_fields_stay() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), pod(2, |_| {})]);
    bench.settled();
    let held = bench.held();
    let subset = held.subsets().unwrap().remove(0);
    let mut body = retain_items(&held.raw, SUBSETS, |_| false).unwrap();
    put_bytes(&mut body, 99, b"object");
    let mut encoded = Vec::new();
    for (_, address) in &subset.ready {
        put_bytes(
            &mut encoded,
            READY,
            &edit(address, &[Edit::SetBytes(&[77], b"address".to_vec())]).unwrap(),
        );
    }
    put_bytes(&mut encoded, PORTS, &edit(&subset.ports[0].1, &[Edit::SetVarint(&[55], 5)]).unwrap());
    put_bytes(&mut encoded, 66, b"subset");
    put_bytes(&mut body, SUBSETS, &encoded);
    bench.put(edit(&body, &[Edit::SetBytes(&[1, 90], b"metadata".to_vec())]).unwrap());
    assert!(bench.plan().is_empty());

    bench.add(&pod(1, |pod| ready(pod, false, 1)));
    bench.add(&pod(2, |pod| pod.spec.node_name = "node-2".into()));
    bench.add(&pod(3, |_| {}));
    assert_eq!(bench.settled(), [":80: 10.0.0.2 10.0.0.3 / 10.0.0.1"]);
    let held = bench.held();
    assert_eq!(get(&held.raw, &[99]).unwrap(), Some(Value::Bytes(b"object")));
    assert_eq!(get(&held.raw, &[1, 90]).unwrap(), Some(Value::Bytes(b"metadata")));
    let subset = held.subsets().unwrap().remove(0);
    assert_eq!(get(&subset.rest, &[66]).unwrap(), Some(Value::Bytes(b"subset")));
    assert_eq!(get(&subset.ports[0].1, &[55]).unwrap(), Some(Value::Varint(5)));
    let marks = subset.addresses().map(|((address, bytes), _)| {
        (address.node_name.as_deref().map(str::to_owned), get(bytes, &[77]).unwrap().is_some())
    });
    let (on, other) = (Some("node-0".to_owned()), Some("node-2".to_owned()));
    assert_eq!(marks.collect::<Vec<_>>(), [(other, true), (on.clone(), false), (on, true)]);
}
