//! Which slices are written: as few as possible. Three endpoints fit into a slice here.

use super::fixtures::{Bench, pod, ready, service};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::model::Key;

fn bench(pods: std::ops::Range<usize>) -> Bench {
    let bench = Bench::of(&service(|_| {}), pods.map(|number| pod(number, |_| {})));
    bench.settled();
    bench
}

fn remove(bench: &Bench, pods: &[usize]) {
    for number in pods {
        bench.remove(&PODS, &Key::new("default", format!("p{number:03}")));
    }
}

fn add(bench: &Bench, pods: &[usize]) {
    for number in pods {
        bench.add(&pod(*number, |_| {}));
    }
}

#[test]
fn slices_are_filled_one_after_the_other() {
    assert_eq!(
        bench(1..8).told(),
        ["web-2 IPv4 :80: p001 p002 p003", "web-3 IPv4 :80: p004 p005 p006", "web-4 IPv4 :80: p007"]
    );
}

#[test]
fn a_new_endpoint_goes_where_least_room_is_left_by_it() {
    let bench = bench(1..8);
    remove(&bench, &[1]);
    assert_eq!(bench.reconcile(), ["update web-2"]);
    add(&bench, &[8]);
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.told()[0], "web-2 IPv4 :80: p002 p003 p008");
}

#[test]
fn new_endpoints_go_where_something_is_written_anyway() {
    let bench = bench(1..8);
    remove(&bench, &[5]);
    add(&bench, &[8, 9]);
    // One fits into the slice that lost one, the other into the last.
    assert_eq!(bench.reconcile(), ["update web-3", "update web-4"]);
    assert_eq!(bench.told()[1..], ["web-3 IPv4 :80: p004 p006 p008", "web-4 IPv4 :80: p007 p009"]);
}

#[test]
fn what_fits_nowhere_together_gets_a_slice_of_its_own() {
    let bench = bench(1..6);
    add(&bench, &[6, 7]);
    // Rather one slice more than two writes.
    assert_eq!(bench.reconcile(), ["create web-4"]);
    assert_eq!(bench.told()[1..], ["web-3 IPv4 :80: p004 p005", "web-4 IPv4 :80: p006 p007"]);
    add(&bench, &[8, 9, 10, 11]);
    // Three fill a slice, the fourth goes into one that is there.
    assert_eq!(bench.reconcile(), ["create web-5", "update web-3"]);
}

#[test]
fn an_empty_slice_goes_and_the_last_stays() {
    let bench = bench(1..8);
    remove(&bench, &[4, 5, 6, 7]);
    assert_eq!(bench.reconcile(), ["delete web-3", "delete web-4"]);
    remove(&bench, &[1, 2, 3]);
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.told(), ["web-2 IPv4 :"]);
    assert!(bench.plan().is_empty());
    add(&bench, &[1]);
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.told(), ["web-2 IPv4 :80: p001"]);
}

#[test]
fn slices_that_would_go_are_rewritten_instead_of_new_ones() {
    let bench = bench(1..5);
    remove(&bench, &[1, 2, 3, 4]);
    add(&bench, &[5, 6, 7, 8]);
    assert_eq!(bench.reconcile(), ["update web-2", "update web-3"]);
    assert_eq!(bench.told(), ["web-2 IPv4 :80: p005 p006 p007", "web-3 IPv4 :80: p008"]);
}

#[test]
fn a_flip_writes_one_slice() {
    let bench = bench(1..8);
    bench.add(&pod(5, |pod| ready(pod, false, 3)));
    assert_eq!(bench.reconcile(), ["update web-3"]);
    assert_eq!(bench.told()[1], "web-3 IPv4 :80: p004 p005!ready!serving p006");
    assert!(bench.plan().is_empty());
    bench.add(&pod(5, |_| {}));
    assert_eq!(bench.reconcile(), ["update web-3"]);
}

#[test]
fn an_endpoint_that_is_held_twice_is_dropped_once() {
    let bench = bench(1..3);
    copy(&bench, |copy| copy.metadata.name = "web-z".into());
    assert_eq!(bench.told().len(), 2);
    assert_eq!(bench.reconcile(), ["delete web-z"]);
    assert!(bench.plan().is_empty());
}

/// Adds a slice that differs from `web-2` in its metadata and type only.
fn copy(bench: &Bench, change: impl FnOnce(&mut EndpointSlice)) {
    use coxswain_machinery::wire::Message;
    let held = bench.slice("web-2");
    let mut copied = (*held).clone();
    change(&mut copied);
    copied.metadata.uid = format!("{}-uid", copied.metadata.name).into();
    let mut bytes = copied.to_bytes();
    for (_, endpoint) in held.endpoints().unwrap() {
        coxswain_machinery::wire::splice::put_bytes(&mut bytes, 2, &endpoint);
    }
    bench.slices.store.upsert(&(super::ENDPOINT_SLICES.decode)(&bytes.into()).unwrap());
}

#[test]
fn slices_of_an_earlier_service_go_and_those_of_others_stay() {
    let bench = bench(1..3);
    copy(&bench, |copy| {
        copy.metadata.name = "earlier".into();
        copy.metadata.owner_references[0].uid = "earlier-web".into();
    });
    copy(&bench, |copy| {
        copy.metadata.name = "of-another-group".into();
        copy.metadata.owner_references[0].api_version = "example.com/v1".into();
    });
    copy(&bench, |copy| {
        copy.metadata.name = "made-by-hand".into();
        let by = "endpointslice.kubernetes.io/managed-by";
        copy.metadata.labels = copy.metadata.labels.with(by, "staff");
    });
    copy(&bench, |copy| {
        copy.metadata.name = "going".into();
        copy.metadata.deletion_timestamp = super::fixtures::ago(1);
    });
    copy(&bench, |copy| {
        copy.metadata.name = "fqdn".into();
        copy.address_type = "FQDN".into();
    });
    assert_eq!(bench.reconcile(), ["delete fqdn", "delete earlier", "delete of-another-group"]);
    assert!(bench.plan().is_empty());
    assert_eq!(bench.all().len(), 3);
}

#[test]
fn a_slice_that_was_tampered_with_is_put_right() {
    let bench = bench(1..4);
    let raw = &bench.slice("web-2").raw;
    let mut keep = [false, true, true].into_iter();
    let tampered = coxswain_machinery::wire::splice::retain_items(raw, 2, |_| keep.next().unwrap()).unwrap();
    bench.slices.store.upsert(&(super::ENDPOINT_SLICES.decode)(&tampered.into()).unwrap());
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.told(), ["web-2 IPv4 :80: p002 p003 p001"]);
}
