//! Properties: whatever Endpoints and slices there are, the mirror shows the Endpoints, once.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::fixtures::{Bench, Subset, endpoints, labels, subset};
use coxswain_machinery::model::Key;

/// What may happen between two reconciles.
#[derive(Clone, Debug)]
enum Change {
    Endpoints(Vec<Subset>, bool),
    /// Somebody deletes a slice.
    Delete(usize),
    /// A slice is there twice, as after a create whose answer was lost.
    Double(usize),
    /// Somebody changes the labels of a slice.
    Relabel(usize),
}

const IPS: [&str; 6] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "nowhere"];

fn subsets() -> impl Strategy<Value = Vec<Subset>> {
    let ips = || prop::collection::btree_set(0..IPS.len(), 0..4);
    let ports = prop::collection::btree_set(80..83_i32, 0..3);
    let one = (ips(), ips(), ports).prop_map(|(ready, not_ready, ports)| {
        let named = |ips: &BTreeSet<usize>| ips.iter().map(|ip| IPS[*ip]).collect::<Vec<_>>();
        subset(&named(&ready), &named(&not_ready), &ports.into_iter().collect::<Vec<_>>())
    });
    prop::collection::vec(one, 0..4)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (subsets(), any::<bool>()).prop_map(|(subsets, label)| Change::Endpoints(subsets, label)),
        1 => (0..4_usize).prop_map(Change::Delete),
        1 => (0..4_usize).prop_map(Change::Double),
        1 => (0..4_usize).prop_map(Change::Relabel),
    ]
}

/// Port (0 for none) and address → whether it is ready.
type Shown = BTreeMap<(i32, String), bool>;

/// What the Endpoints say, with room for all.
fn expected(subsets: &[Subset]) -> Shown {
    let mut shown = Shown::new();
    for subset in subsets {
        let ports: Vec<i32> = subset.ports.iter().map(|port| port.port).collect();
        let ready = subset.ready.iter().map(|address| (address, true));
        for (address, ready) in ready.chain(subset.not_ready.iter().map(|address| (address, false))) {
            for port in if ports.is_empty() { &[0][..] } else { &ports } {
                if address.ip != "nowhere" {
                    *shown.entry((*port, address.ip.to_string())).or_insert(ready) &= ready;
                }
            }
        }
    }
    shown
}

fn shown(bench: &Bench) -> Shown {
    let mut shown = Shown::new();
    for slice in bench.all() {
        let endpoints = slice.endpoints().unwrap();
        assert!(!endpoints.is_empty(), "{} is empty", slice.metadata.name);
        let ports: Vec<i32> = slice.ports.iter().filter_map(|port| port.port).collect();
        for (endpoint, _) in endpoints {
            let ip = endpoint.addresses[0].to_string();
            assert_eq!(ip.contains(':'), slice.address_type == "IPv6");
            for port in if ports.is_empty() { &[0][..] } else { &ports } {
                let twice = shown.insert((*port, ip.clone()), endpoint.conditions.ready == Some(true));
                assert_eq!(twice, None, "{ip} is there twice");
            }
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// After every reconcile the slices show what the Endpoints say, each address once, and nothing is left to do.
    #[test]
    fn slices_show_what_endpoints_say(
        rounds in prop::collection::vec(prop::collection::vec(change(), 0..4), 1..8),
    ) {
        let mut bench = Bench::of(&[]);
        bench.max_per_subset = 1000;
        let mut said = Vec::new();
        for round in rounds {
            for change in round {
                let slices = bench.all();
                match change {
                    Change::Endpoints(subsets, label) => {
                        bench.put(endpoints(&subsets, |endpoints| {
                            endpoints.metadata.labels = if label { labels(&[("a", "b")]) } else { labels(&[]) };
                        }));
                        said = subsets;
                    }
                    Change::Delete(which) => {
                        if let Some(slice) = slices.get(which) {
                            bench.slices.store.remove_key(&Key::of(&slice.metadata), "9");
                        }
                    }
                    Change::Double(which) => {
                        if let Some(slice) = slices.get(which) {
                            let name = coxswain_machinery::wire::splice::Edit::SetBytes(&[1, 1], format!("{which}-twice").into());
                            let uid = coxswain_machinery::wire::splice::Edit::SetBytes(&[1, 5], format!("{which}-twice-uid").into());
                            bench.slices.put(coxswain_machinery::wire::splice::edit(&slice.raw, &[name, uid]).unwrap());
                        }
                    }
                    Change::Relabel(which) => {
                        if let Some(slice) = slices.get(which) {
                            let label = coxswain_machinery::wire::splice::Edit::MapSet(&[1, 11], "x".into(), "y".into());
                            bench.slices.put(coxswain_machinery::wire::splice::edit(&slice.raw, &[label]).unwrap());
                        }
                    }
                }
            }
            let before = bench.all().len();
            let told = bench.reconcile();
            let again = bench.plan().unwrap_or_default();
            prop_assert!(again.is_empty(), "{again:?}");
            prop_assert_eq!(shown(&bench), expected(&said));
            let writes = told.iter().filter(|line| !line.contains(": ")).count();
            prop_assert!(writes <= before.max(bench.all().len()) + before, "{told:?}");
        }
    }
}
