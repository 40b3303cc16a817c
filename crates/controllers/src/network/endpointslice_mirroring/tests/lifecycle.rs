//! When there is a mirror at all.

use super::fixtures::{Bench, endpoints, labels, manual, service, subset};
use crate::network::endpointslice_mirroring::keys;
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::wire::path;
use coxswain_machinery::wire::splice::{Edit, edit};

fn bench() -> Bench {
    let bench = Bench::of(&[subset(&["10.0.0.1"], &[], &[80])]);
    assert_eq!(bench.settled(), ["web-2 IPv4 80: 10.0.0.1"]);
    bench
}

#[test]
fn it_goes_with_the_endpoints_and_the_service() {
    for (what, happens) in [
        ("no Endpoints", (|bench| bench.remove(&ENDPOINTS)) as fn(&Bench)),
        ("no Service", |bench| bench.remove(&SERVICES)),
        ("a Service with a selector", |bench| bench.add(&service(|_| {}))),
        ("no addresses", |bench| bench.put(endpoints(&[], |_| {}))),
        ("a wish to be left out", |bench| {
            bench.put(marked(&[("endpointslice.kubernetes.io/skip-mirror", "true")], &[]));
        }),
        ("a lock", |bench| bench.put(marked(&[], &[("control-plane.alpha.kubernetes.io/leader", "")]))),
    ] {
        let bench = bench();
        happens(&bench);
        assert_eq!(bench.reconcile(), ["delete web-2"], "{what}");
        assert!(bench.plan().is_none_or(|plan| plan.is_empty()), "{what}");
        // And comes again.
        bench.add(&manual());
        bench.put(marked(&[], &[]));
        assert_eq!(bench.reconcile().len(), 1, "{what}");
        assert_eq!(bench.all().len(), 1, "{what}");
    }
}

fn marked(with_labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Vec<u8> {
    endpoints(&[subset(&["10.0.0.1"], &[], &[80])], |endpoints| {
        endpoints.metadata.labels = labels(with_labels);
        endpoints.metadata.annotations = labels(annotations);
    })
}

#[test]
fn only_true_means_to_be_left_out() {
    for value in ["TRUE", "false", ""] {
        let bench = bench();
        bench.put(marked(&[("endpointslice.kubernetes.io/skip-mirror", value)], &[]));
        assert_eq!(bench.reconcile(), ["update web-2"], "{value:?}");
    }
}

#[test]
fn a_service_that_is_only_a_name_is_mirrored_too() {
    let bench = Bench::of(&[subset(&["10.0.0.1"], &[], &[80])]);
    let mut external = manual();
    external.spec.r#type = "ExternalName".into();
    bench.add(&external);
    assert_eq!(bench.settled(), ["web-2 IPv4 80: 10.0.0.1"]);
}

#[test]
fn slices_of_others_are_left_alone() {
    let bench = bench();
    let mut other = bench.slice("web-2").as_ref().clone();
    other.metadata.name = "other".into();
    other.metadata.labels = other
        .metadata
        .labels
        .with("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
    bench.add(&other);
    bench.remove(&ENDPOINTS);
    assert_eq!(bench.reconcile(), ["delete web-2"]);
    assert_eq!(bench.all().len(), 1);
}

#[test]
fn slices_of_earlier_endpoints_are_replaced() {
    let bench = bench();
    bench.put(endpoints(&[subset(&["10.0.0.1"], &[], &[80])], |endpoints| {
        endpoints.metadata.uid = "another".into();
    }));
    assert_eq!(bench.reconcile(), ["create web-3", "delete web-2"]);
    assert_eq!(bench.settled(), ["web-3 IPv4 80: 10.0.0.1"]);
}

#[test]
fn mirrored_slice_without_an_owner_reference_is_adopted() {
    let bench = bench();
    let before = bench.slice("web-2");
    let restored = edit(&before.raw, &[Edit::Clear(path!(EndpointSlice, metadata.ownerReferences))]).unwrap();
    bench.slices.store.upsert(&(ENDPOINT_SLICES.decode)(&restored.into()).unwrap());
    assert_eq!(bench.reconcile(), ["update web-2"]);
    let adopted = bench.slice("web-2");
    assert_eq!(adopted.metadata.uid, before.metadata.uid, "traffic is not interrupted");
    assert_eq!(adopted.metadata.owner_references, before.metadata.owner_references);
    assert_eq!(bench.reconcile(), [""; 0]);
}

#[test]
fn nothing_is_made_for_endpoints_that_go() {
    let bench = bench();
    let going = |subsets: &[_]| {
        endpoints(subsets, |endpoints| endpoints.metadata.deletion_timestamp = super::fixtures::ago(1))
    };
    bench.put(going(&[subset(&["10.0.0.1"], &[], &[80]), subset(&["10.0.0.2"], &[], &[81])]));
    assert_eq!(bench.reconcile(), [""; 0]);
    bench.put(going(&[subset(&["10.0.0.2"], &[], &[80])]));
    assert_eq!(bench.settled(), ["web-2 IPv4 80: 10.0.0.2"]);
}

#[test]
fn endpoints_concern_themselves() {
    let endpoints = super::fixtures::any(
        &ENDPOINTS,
        &Endpoints { metadata: super::fixtures::meta("default", "web"), ..Endpoints::default() },
    );
    let map = keys::of_endpoints();
    for (old, new, initial, resync, expected) in [
        (None, Some(&endpoints), false, false, 1),
        (Some(&endpoints), Some(&endpoints), false, false, 1),
        (Some(&endpoints), None, false, false, 1),
        (None, Some(&endpoints), true, false, 1),
        (Some(&endpoints), Some(&endpoints), false, true, 0),
    ] {
        let mut told = Vec::new();
        map(Delta { old, new, initial, resync }, &mut |key| told.push(key.to_string()));
        assert_eq!(told, vec!["default/web"; expected]);
    }
}
