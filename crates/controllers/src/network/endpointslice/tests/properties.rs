//! Properties: whatever happens to the pods, the slices show it, with few writes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::objects::named_port;
use super::fixtures::{Bench, deleting, labels, pod, ready, service};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::{Pod, PodIp};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::IntOrString;

/// The state of one of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn on its own, as a pod's fields are set")]
struct State {
    ready: bool,
    deleting: bool,
    finished: bool,
    dual: bool,
    /// What it calls `http`; nothing if 0.
    port: i32,
    node: usize,
}

/// What may happen between two reconciles.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, State),
    Remove(usize),
    Service { mode: usize, publish: bool, label: bool, dual: bool },
}

const MODES: [&str; 5] = ["", "PreferClose", "PreferSameNode", "Auto", "Unheard"];

fn state() -> impl Strategy<Value = State> {
    let flags = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1), any::<bool>());
    (flags, prop_oneof![4 => Just(80), 1 => Just(81), 1 => Just(0)], 0..3_usize).prop_map(
        |((ready, deleting, finished, dual), port, node)| State {
            ready,
            deleting,
            finished,
            dual,
            port,
            node,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0..30_usize, state()).prop_map(|(which, state)| Change::Set(which, state)),
        4 => (0..30_usize).prop_map(Change::Remove),
        1 => (0..MODES.len(), any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(mode, publish, label, dual)| Change::Service { mode, publish, label, dual }),
    ]
}

fn made(number: usize, state: State) -> Pod {
    pod(number, |pod| {
        ready(pod, state.ready, 10);
        if state.deleting {
            deleting(pod);
        }
        if state.finished {
            pod.status.phase = "Succeeded".into();
        }
        if state.dual {
            pod.status.pod_ips.push(PodIp { ip: format!("fd00::1:{number:x}").into() });
        }
        if state.port != 0 {
            named_port(pod, "http", state.port, "TCP");
        }
        pod.spec.node_name = format!("node-{}", state.node).into();
    })
}

fn configured(mode: usize, publish: bool, label: bool, dual: bool) -> Service {
    service(|service| {
        service.spec.ports[0].target_port = Some(IntOrString::Str("http".into()));
        service.spec.publish_not_ready_addresses = publish;
        match MODES[mode] {
            "" => {}
            "Auto" => {
                service.metadata.annotations = labels(&[("service.kubernetes.io/topology-mode", "Auto")]);
            }
            other => service.spec.traffic_distribution = Some(other.into()),
        }
        if label {
            service.metadata.labels = labels(&[("team", "x")]);
        }
        if dual {
            service.spec.ip_families.push("IPv6".into());
        }
    })
}

/// Address → port, ready, serving, terminating.
type Shown = BTreeMap<String, (i32, bool, bool, bool)>;

fn expected(pods: &BTreeMap<usize, State>, publish: bool, dual: bool) -> Shown {
    let mut shown = Shown::new();
    for (number, state) in pods.iter().filter(|(_, state)| !state.finished) {
        let fit = (state.port, publish || (state.ready && !state.deleting), state.ready, state.deleting);
        shown.insert(format!("10.0.0.{number}"), fit);
        if dual && state.dual {
            shown.insert(format!("fd00::1:{number:x}"), fit);
        }
    }
    shown
}

fn shown(bench: &Bench) -> Shown {
    let mut shown = Shown::new();
    for slice in bench.all() {
        let endpoints = slice.endpoints().unwrap();
        assert!(endpoints.len() <= bench.settings.max_per_slice, "{} is too large", slice.metadata.name);
        let port = slice.ports.first().and_then(|port| port.port).unwrap_or(0);
        for (endpoint, _) in endpoints {
            let conditions = &endpoint.conditions;
            let is = |condition: Option<bool>| condition == Some(true);
            let fit = (port, is(conditions.ready), is(conditions.serving), is(conditions.terminating));
            let twice = shown.insert(endpoint.addresses[0].to_string(), fit);
            assert_eq!(twice, None, "{:?} is there twice", endpoint.addresses);
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// After every reconcile the slices show what the pods are, nothing is left to do, and no more was written than the
    /// changes since the last one called for.
    #[test]
    fn slices_show_what_pods_are(
        max_per_slice in 1..6_usize,
        rounds in prop::collection::vec(prop::collection::vec(change(), 0..8), 1..12),
    ) {
        let mut bench = Bench::of(&configured(0, false, false, false), []);
        bench.settings.max_per_slice = max_per_slice;
        bench.settled();
        let (mut pods, mut settings) = (BTreeMap::new(), (0, false, false, false));
        for round in rounds {
            let (before, was) = (pods.clone(), settings);
            for change in round {
                match change {
                    Change::Set(which, state) => {
                        bench.add(&made(which, state));
                        pods.insert(which, state);
                    }
                    Change::Remove(which) => {
                        bench.remove(&PODS, &Key::new("default", format!("p{which:03}")));
                        pods.remove(&which);
                    }
                    Change::Service { mode, publish, label, dual } => {
                        bench.add(&configured(mode, publish, label, dual));
                        settings = (mode, publish, label, dual);
                    }
                }
            }
            let slices = bench.all().len();
            let told = bench.reconcile();
            prop_assert!(bench.remaining().is_empty(), "{:?}", bench.remaining());
            prop_assert_eq!(shown(&bench), expected(&pods, settings.1, settings.3));

            let writes = told.iter().filter(|line| !line.contains(": ")).count();
            let changed = (0..30).filter(|which| before.get(which) != pods.get(which)).count();
            if settings != was {
                // All slices that there were may have to be written, and those that there are now.
                prop_assert!(writes <= slices + bench.all().len(), "{told:?}");
            } else if MODES[settings.0] != "Auto" {
                // A pod that changes concerns the slice that it was in and the one that it is in, in each family.
                prop_assert!(writes <= 4 * changed, "{told:?}");
            }
        }
    }

    /// However they come, so many pods of one sort never have more slices than they fill, but for the last.
    #[test]
    fn slices_that_only_grow_are_full(max_per_slice in 1..10_usize, batches in prop::collection::vec(1..20_usize, 1..8)) {
        let mut bench = Bench::of(&service(|_| {}), []);
        bench.settings.max_per_slice = max_per_slice;
        bench.settled();
        let mut count = 0;
        for batch in batches {
            for _ in 0..batch {
                bench.add(&pod(count, |_| {}));
                count += 1;
            }
            let told = bench.reconcile();
            prop_assert!(told.len() <= batch.div_ceil(max_per_slice) + 1, "{told:?}");
        }
        let slices = bench.all();
        prop_assert!(slices.iter().all(|slice| !slice.endpoints().unwrap().is_empty()));
        prop_assert_eq!(slices.iter().map(|slice| slice.endpoints().unwrap().len()).sum::<usize>(), count);
    }
}
