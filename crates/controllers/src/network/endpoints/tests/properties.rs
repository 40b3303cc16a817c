//! Properties: whatever happens to the pods, the Endpoints show it, and then nothing is left to do.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::objects::named_port;
use super::fixtures::{Bench, deleting, labels, pod, port, ready, service};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::wire::IntOrString;

/// The state of one of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    ready: bool,
    deleting: bool,
    finished: bool,
    /// What it calls `http`; nothing if 0.
    port: i32,
    node: usize,
}

/// What may happen between two reconciles.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, State),
    Remove(usize),
    Service {
        publish: bool,
        label: bool,
        second_port: bool,
    },
    /// Somebody else empties the Endpoints.
    Tamper,
}

fn change() -> impl Strategy<Value = Change> {
    let flags = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    let state = (flags, prop_oneof![4 => Just(80), 1 => Just(81), 1 => Just(0)], 0..2_usize).prop_map(
        |((ready, deleting, finished), port, node)| State { ready, deleting, finished, port, node },
    );
    prop_oneof![
        8 => (0..12_usize, state).prop_map(|(which, state)| Change::Set(which, state)),
        4 => (0..12_usize).prop_map(Change::Remove),
        1 => any::<(bool, bool, bool)>()
            .prop_map(|(publish, label, second_port)| Change::Service { publish, label, second_port }),
        1 => Just(Change::Tamper),
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
        if state.port != 0 {
            named_port(pod, "http", state.port, "TCP");
        }
        pod.spec.node_name = format!("node-{}", state.node).into();
    })
}

fn configured(publish: bool, label: bool, second_port: bool) -> Service {
    service(|service| {
        service.spec.ports = vec![port("web", 80)];
        service.spec.ports[0].target_port = Some(IntOrString::Str("http".into()));
        if second_port {
            service.spec.ports.push(port("admin", 9));
        }
        service.spec.publish_not_ready_addresses = publish;
        if label {
            service.metadata.labels = labels(&[("team", "x")]);
        }
    })
}

/// Address and port → whether it is ready, and on which node.
type Shown = BTreeMap<(String, i32), (bool, String)>;

fn expected(pods: &BTreeMap<usize, State>, publish: bool, second_port: bool) -> Shown {
    let mut shown = Shown::new();
    for (number, state) in pods {
        if state.finished || (state.deleting && !publish) {
            continue;
        }
        let ports = [(state.port != 0, state.port), (second_port, 9)];
        for (_, port) in ports.into_iter().filter(|(there, _)| *there) {
            let what = (publish || state.ready, format!("node-{}", state.node));
            shown.insert((format!("10.0.0.{number}"), port), what);
        }
    }
    shown
}

fn shown(bench: &Bench) -> Shown {
    let mut shown = Shown::new();
    for subset in bench.held().subsets().unwrap() {
        assert!(!subset.ports.is_empty() && subset.addresses().next().is_some(), "{subset:?}");
        for (port, _) in &subset.ports {
            for ((address, _), ready) in subset.addresses() {
                let node = address.node_name.as_deref().unwrap().to_owned();
                let twice = shown.insert((address.ip.to_string(), port.port), (ready, node));
                assert_eq!(twice, None, "{} is there twice", address.ip);
            }
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// After every reconcile the Endpoints show what the pods are, nothing is left to do, and there was at most one
    /// write, and none when they showed it already.
    #[test]
    fn endpoints_show_what_pods_are(rounds in prop::collection::vec(prop::collection::vec(change(), 0..6), 1..10)) {
        let bench = Bench::of(&configured(false, false, false), []);
        prop_assert_eq!(bench.reconcile(), ["create"]);
        let (mut pods, mut settings) = (BTreeMap::new(), (false, false, false));
        for round in rounds {
            let mut relabeled = false;
            for change in round {
                match change {
                    Change::Set(which, state) => {
                        bench.add(&made(which, state));
                        pods.insert(which, state);
                    }
                    Change::Remove(which) => {
                        bench.remove(&PODS, &format!("p{which:03}"));
                        pods.remove(&which);
                    }
                    Change::Service { publish, label, second_port } => {
                        bench.add(&configured(publish, label, second_port));
                        relabeled |= settings.1 != label;
                        settings = (publish, label, second_port);
                    }
                    Change::Tamper => {
                        let kept = coxswain_machinery::wire::splice::retain_items(&bench.held().raw, 2, |_| false);
                        bench.put(kept.unwrap());
                    }
                }
            }
            let expected = expected(&pods, settings.0, settings.2);
            let is_shown = shown(&bench) == expected;
            let told = bench.reconcile();
            prop_assert!(bench.plan().is_empty(), "{:?}", bench.plan());
            prop_assert_eq!(shown(&bench), expected);
            prop_assert!(told.len() <= 1);
            if is_shown && !relabeled {
                prop_assert_eq!(told, [""; 0]);
            }
        }
    }
}
