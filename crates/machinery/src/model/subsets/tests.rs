//! Tables and properties of the canonical form.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::api::core::ObjectReference;
use crate::wire::Message;

fn address(ip: &str, uid: &str) -> EndpointAddress {
    let target = ObjectReference { kind: "Pod".into(), uid: uid.into(), ..ObjectReference::default() };
    EndpointAddress {
        ip: ip.into(),
        target_ref: (!uid.is_empty()).then(|| Box::new(target)),
        ..EndpointAddress::default()
    }
}

fn port(name: &str, number: i32) -> EndpointPort {
    EndpointPort { name: name.into(), port: number, protocol: "TCP".into(), app_protocol: None }
}

fn encoded(
    ready: &[EndpointAddress],
    not_ready: &[EndpointAddress],
    ports: &[EndpointPort],
) -> EncodedSubset {
    let with = |address: &EndpointAddress| (address.clone(), address.to_bytes().into());
    EncodedSubset {
        ready: ready.iter().map(with).collect(),
        not_ready: not_ready.iter().map(with).collect(),
        ports: ports.iter().map(|port| (port.clone(), port.to_bytes().into())).collect(),
        rest: Vec::new(),
    }
}

/// `PORTS: READY / NOT READY`
fn told(subsets: &[Subset]) -> Vec<String> {
    let line = |subset: &Subset| {
        let ports = subset.ports.iter().map(|port| format!("{}:{}", port.name, port.port));
        let ips = |all: &[EndpointAddress]| {
            let told = all.iter().map(|address| format!("{}{}", address.ip, address.target_uid()));
            told.collect::<Vec<_>>().join(" ")
        };
        let ports = ports.collect::<Vec<_>>().join(",");
        format!("{ports}: {} / {}", ips(&subset.ready), ips(&subset.not_ready))
    };
    subsets.iter().map(line).collect()
}

#[test]
fn ports_of_the_same_addresses_are_together() {
    let (one, two, three) = (address("10.0.0.1", ""), address("10.0.0.2", ""), address("10.0.0.3", ""));
    let (a, b, c) = (port("a", 1), port("b", 2), port("c", 3));
    let (one, two, three) = (&one, &two, &three);
    let said = |subsets: &[EncodedSubset]| told(&repack(subsets));
    let all =
        |addresses: &[&EndpointAddress]| addresses.iter().map(|each| (*each).clone()).collect::<Vec<_>>();
    // Ports and addresses in any order; subsets with the same ports are one.
    assert_eq!(
        said(&[
            encoded(&all(&[three, one]), &[], &[b.clone(), a.clone()]),
            encoded(&[], &all(&[two]), &[a.clone(), b.clone()]),
        ]),
        ["a:1,b:2: 10.0.0.1 10.0.0.3 / 10.0.0.2"]
    );
    // An address that is ready at one port only.
    assert_eq!(
        said(&[
            encoded(&all(&[one, two]), &[], std::slice::from_ref(&a)),
            encoded(&all(&[one]), &all(&[two]), std::slice::from_ref(&b)),
            encoded(&all(&[one, two]), &[], std::slice::from_ref(&c)),
        ]),
        ["a:1,c:3: 10.0.0.1 10.0.0.2 / ", "b:2: 10.0.0.1 / 10.0.0.2"]
    );
    // What is both at one port is not ready; what has no ports is for itself.
    assert_eq!(
        said(&[
            encoded(&all(&[one]), &[], std::slice::from_ref(&a)),
            encoded(&[], &all(&[one]), std::slice::from_ref(&a)),
            encoded(&[], &all(&[one]), &[]),
        ]),
        [":  / 10.0.0.1", "a:1:  / 10.0.0.1"]
    );
    assert_eq!(said(&[encoded(&[], &[], &[a])]), [""; 0]);
}

#[test]
fn a_port_with_a_protocol_is_another_in_each_subset() {
    let (one, two) = ([address("10.0.0.1", "")], [address("10.0.0.2", "")]);
    let (a, mut b) = (port("a", 1), port("b", 2));
    b.app_protocol = Some("grpc".into());
    let ports = [a, b];
    assert_eq!(
        told(&repack(&[encoded(&one, &[], &ports), encoded(&[], &two, &ports)])),
        ["a:1: 10.0.0.1 / 10.0.0.2", "b:2: 10.0.0.1 / ", "b:2:  / 10.0.0.2"]
    );
    // In one subset it is one.
    assert_eq!(told(&repack(&[encoded(&one, &two, &ports)])), ["a:1,b:2: 10.0.0.1 / 10.0.0.2"]);
}

#[test]
fn addresses_are_in_the_order_of_their_texts_and_pods() {
    let addresses = [("10.0.0.9", "b"), ("10.0.0.10", ""), ("10.0.0.9", ""), ("10.0.0.9", "a")];
    let ready: Vec<EndpointAddress> = addresses.iter().map(|(ip, uid)| address(ip, uid)).collect();
    let subsets = [encoded(&ready, &[], &[port("", 80)])];
    assert_eq!(told(&repack(&subsets)), [":80: 10.0.0.10 10.0.0.9 10.0.0.9a 10.0.0.9b / "]);
}

#[test]
fn what_says_the_same_is_told_apart_from_what_does_not() {
    let plain = || address("10.0.0.1", "uid");
    let with = |change: &dyn Fn(&mut EndpointAddress)| {
        let mut changed = plain();
        change(&mut changed);
        is_same(&plain(), &changed)
    };
    let target = |change: fn(&mut ObjectReference)| {
        with(&|address| change(address.target_ref.as_deref_mut().unwrap()))
    };
    assert!(with(&|_| {}));
    assert!(target(|target| target.resource_version = "7".into()));
    assert!(!target(|target| target.name = "other".into()));
    assert!(!target(|target| target.uid = "other".into()));
    assert!(!with(&|address| address.target_ref = None));
    assert!(!with(&|address| address.hostname = "web-0".into()));
    assert!(!with(&|address| address.node_name = Some("node-1".into())));
}

/// Everything that subsets say: address, port (0 for none), whether it is ready there.
type Said = BTreeMap<(String, i32), bool>;

fn said(subsets: &[EncodedSubset]) -> Said {
    let mut said = Said::new();
    for subset in subsets {
        let ports: Vec<i32> = subset.ports.iter().map(|(port, _)| port.port).collect();
        for ((address, _), ready) in subset.addresses() {
            for port in if ports.is_empty() { &[0][..] } else { &ports } {
                *said.entry((format!("{}{}", address.ip, address.target_uid()), *port)).or_insert(ready) &=
                    ready;
            }
        }
    }
    said
}

fn subset() -> impl Strategy<Value = EncodedSubset> {
    let addresses = || prop::collection::vec((0..6_u8, 0..3_usize), 0..6);
    (addresses(), addresses(), prop::collection::btree_set(1..5_i32, 0..4)).prop_map(
        |(ready, not_ready, ports)| {
            let made = |all: Vec<(u8, usize)>| {
                let made =
                    all.into_iter().map(|(ip, uid)| address(&format!("10.0.0.{ip}"), ["", "a", "b"][uid]));
                made.collect::<Vec<_>>()
            };
            let ports: Vec<EndpointPort> = ports.into_iter().map(|number| port("", number)).collect();
            encoded(&made(ready), &made(not_ready), &ports)
        },
    )
}

proptest! {
    /// The canonical form says the same, says nothing twice, and is the same whatever it is made from.
    #[test]
    fn packing_says_the_same(
        (subsets, shuffled) in prop::collection::vec(subset(), 0..6)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let packed = repack(&subsets);
        let again: Vec<EncodedSubset> = packed
            .iter()
            .map(|subset| encoded(&subset.ready, &subset.not_ready, &subset.ports))
            .collect();
        prop_assert_eq!(said(&again), said(&subsets));
        let entries: usize = packed.iter().map(|subset| subset.len() * subset.ports.len().max(1)).sum();
        prop_assert_eq!(entries, said(&subsets).len());
        prop_assert!(packed.iter().all(|subset| !subset.is_empty()));
        prop_assert_eq!(&repack(&again), &packed);
        prop_assert!(are_same(&repack(&shuffled), &packed));
    }
}
