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

fn packed(subsets: &[EncodedSubset]) -> Vec<Subset> {
    repack(subsets).unwrap()
}

/// Port, origin.
type Port = Option<(PortIdentity, usize)>;

/// The canonical form, made from each pair of an address and a port.
fn packed_by_pairs(subsets: &[EncodedSubset]) -> Vec<Subset> {
    let mut addresses: BTreeMap<AddressIdentity, EndpointAddress> = BTreeMap::new();
    let mut states: BTreeMap<Port, BTreeMap<AddressIdentity, bool>> = BTreeMap::new();
    for (at, subset) in subsets.iter().enumerate() {
        for ((address, _), ready) in subset.addresses() {
            addresses.entry(identity(address)).or_insert_with(|| address.clone());
            let mut ports: Vec<Port> = Vec::new();
            for (port, _) in &subset.ports {
                ports.push(Some((port_identity(port), port.app_protocol.as_ref().map_or(0, |_| at + 1))));
            }
            if ports.is_empty() {
                ports.push(None);
            }
            for port in ports {
                *states.entry(port).or_default().entry(identity(address)).or_insert(ready) &= ready;
            }
        }
    }
    let mut groups: BTreeMap<(bool, BTreeMap<AddressIdentity, bool>), Vec<EndpointPort>> = BTreeMap::new();
    for (port, members) in states {
        let ports = groups.entry((port.is_none(), members)).or_default();
        ports.extend(port.map(|((name, protocol, port, app_protocol), _)| EndpointPort {
            name,
            port,
            protocol,
            app_protocol,
        }));
    }
    let mut subsets: Vec<Subset> = groups
        .into_iter()
        .map(|((_, members), ports)| {
            let of = |wanted: bool| {
                let chosen = members.iter().filter(move |(_, ready)| **ready == wanted);
                chosen.map(|(identity, _)| addresses[identity].clone()).collect()
            };
            Subset { ports, ready: of(true), not_ready: of(false) }
        })
        .collect();
    subsets.sort_by_cached_key(|subset| subset.ports.iter().map(port_identity).collect::<Vec<_>>());
    subsets
}

/// Distinct addresses.
fn many(count: usize) -> Vec<EndpointAddress> {
    (0..count).map(|at| address(&format!("10.{}.{}.{}", at >> 16, (at >> 8) & 255, at & 255), "")).collect()
}

/// Distinct ports.
fn numbered(count: i32) -> Vec<EndpointPort> {
    (1..=count).map(|number| port(&format!("p{number}"), number)).collect()
}

#[test]
fn sparse_subsets_are_packed_in_one_look_at_each_address() {
    let (addresses, ports) = (many(45_000), numbered(45_000));
    let mut packer = Packer::default();
    for (address, port) in addresses.iter().zip(&ports) {
        let subset = encoded(std::slice::from_ref(address), &[], std::slice::from_ref(port));
        packer.add_subset(&subset);
    }
    let packed = packer.pack_within(45_000).unwrap();
    assert_eq!(packed.len(), 45_000);
    assert!(packed.iter().all(|subset| (subset.ports.len(), subset.ready.len()) == (1, 1)));
}

#[test]
fn dense_subset_is_packed_without_its_pairs() {
    let subset = encoded(&many(25_000), &[], &numbered(25_000));
    let mut packer = Packer::default();
    packer.add_subset(&subset);
    let packed = packer.pack_within(25_000).unwrap();
    let [packed] = packed.as_slice() else { panic!("{} subsets", packed.len()) };
    assert_eq!((packed.ports.len(), packed.ready.len()), (25_000, 25_000));
}

#[test]
fn dense_subset_whose_ports_all_differ_is_not_packed() {
    let (addresses, ports) = (many(5_000), numbered(5_000));
    let mut subsets = vec![encoded(&addresses, &[], &ports)];
    let others: Vec<EndpointAddress> = (0..5_000).map(|at| address(&format!("fd00::{at:x}"), "")).collect();
    for (address, port) in others.iter().zip(&ports) {
        subsets.push(encoded(std::slice::from_ref(address), &[], std::slice::from_ref(port)));
    }
    assert_eq!(repack(&subsets), None);
    // With few such ports it is: 40 times 5,001 addresses, and the other ports.
    subsets.truncate(1 + 40);
    assert_eq!(packed(&subsets).len(), 41);
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
    let said = |subsets: &[EncodedSubset]| told(&packed(subsets));
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
        told(&packed(&[encoded(&one, &[], &ports), encoded(&[], &two, &ports)])),
        ["a:1: 10.0.0.1 / 10.0.0.2", "b:2: 10.0.0.1 / ", "b:2:  / 10.0.0.2"]
    );
    // In one subset it is one.
    assert_eq!(told(&packed(&[encoded(&one, &two, &ports)])), ["a:1,b:2: 10.0.0.1 / 10.0.0.2"]);
}

#[test]
fn addresses_are_in_the_order_of_their_texts_and_pods() {
    let addresses = [("10.0.0.9", "b"), ("10.0.0.10", ""), ("10.0.0.9", ""), ("10.0.0.9", "a")];
    let ready: Vec<EndpointAddress> = addresses.iter().map(|(ip, uid)| address(ip, uid)).collect();
    let subsets = [encoded(&ready, &[], &[port("", 80)])];
    assert_eq!(told(&packed(&subsets)), [":80: 10.0.0.10 10.0.0.9 10.0.0.9a 10.0.0.9b / "]);
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

/// Subsets in which anything may be there twice, also ports.
fn odd_subset() -> impl Strategy<Value = EncodedSubset> {
    let addresses = || prop::collection::vec((0..6_u8, 0..2_usize, 0..2_usize), 0..5);
    let ports = prop::collection::vec((1..4_i32, 0..3_usize), 0..4);
    (addresses(), addresses(), ports).prop_map(|(ready, not_ready, ports)| {
        let made = |all: Vec<(u8, usize, usize)>| {
            let made = all.into_iter().map(|(ip, uid, hostname)| EndpointAddress {
                hostname: ["", "web"][hostname].into(),
                ..address(&format!("10.0.0.{ip}"), ["", "a"][uid])
            });
            made.collect::<Vec<_>>()
        };
        let made_port = |(number, protocol): (i32, usize)| EndpointPort {
            app_protocol: [None, Some("grpc"), Some("http")][protocol].map(Str::from),
            ..port("", number)
        };
        let ports: Vec<EndpointPort> = ports.into_iter().map(made_port).collect();
        encoded(&made(ready), &made(not_ready), &ports)
    })
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
    /// Sets of ports lead to the same canonical form as the pairs of addresses and ports.
    #[test]
    fn packing_by_sets_of_ports_equals_packing_by_pairs(subsets in prop::collection::vec(odd_subset(), 0..7)) {
        prop_assert_eq!(packed(&subsets), packed_by_pairs(&subsets));
    }

    /// The canonical form says the same, says nothing twice, and is the same whatever it is made from.
    #[test]
    fn packing_says_the_same(
        (subsets, shuffled) in prop::collection::vec(subset(), 0..6)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let form = packed(&subsets);
        let again: Vec<EncodedSubset> = form
            .iter()
            .map(|subset| encoded(&subset.ready, &subset.not_ready, &subset.ports))
            .collect();
        prop_assert_eq!(said(&again), said(&subsets));
        let entries: usize = form.iter().map(|subset| subset.len() * subset.ports.len().max(1)).sum();
        prop_assert_eq!(entries, said(&subsets).len());
        prop_assert!(form.iter().all(|subset| !subset.is_empty()));
        prop_assert_eq!(&packed(&again), &form);
        prop_assert!(are_same(&packed(&shuffled), &form));
    }
}
