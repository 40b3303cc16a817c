//! Who should use which endpoint. The nodes `node-0` to `node-2` are in the zones `a` to `c`.

use super::fixtures::{Bench, labels, node, pod, ready, service};
use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::pod::{Pod, PodIp};

fn preferring(mode: &'static str) -> Service {
    service(|service| service.spec.traffic_distribution = Some(mode.into()))
}

fn auto(mode: &'static str) -> Service {
    service(|service| {
        service.metadata.annotations = labels(&[("service.kubernetes.io/topology-mode", mode)]);
    })
}

fn on(number: usize, node: usize) -> Pod {
    pod(number, |pod| pod.spec.node_name = format!("node-{node}").into())
}

fn roomy(service: &Service, pods: impl IntoIterator<Item = Pod>) -> Bench {
    let mut bench = Bench::of(service, pods);
    bench.settings.max_per_slice = 100;
    bench
}

#[test]
fn traffic_distribution_prefers_what_is_near() {
    for (mode, expected) in [
        ("PreferClose", "p001>a p002>b p003!ready!serving"),
        ("PreferSameZone", "p001>a p002>b p003!ready!serving"),
        ("PreferSameNode", "p001>a+node-0 p002>b+node-1 p003!ready!serving"),
        ("Unheard", "p001 p002 p003!ready!serving"),
    ] {
        let unready = pod(3, |pod| ready(pod, false, 1));
        let bench = Bench::of(&preferring(mode), [on(1, 0), on(2, 1), unready]);
        assert_eq!(bench.settled(), [format!("web-2 IPv4 :80: {expected}")], "{mode}");
    }
}

#[test]
fn without_the_gate_only_the_old_name_means_something() {
    for (mode, hint) in [("PreferClose", ">a"), ("PreferSameZone", ""), ("PreferSameNode", "")] {
        let mut bench = Bench::of(&preferring(mode), [on(1, 0)]);
        bench.settings.prefer_same = false;
        assert_eq!(bench.settled(), [format!("web-2 IPv4 :80: p001{hint}")], "{mode}");
    }
}

#[test]
fn an_endpoint_in_no_zone_has_no_hint() {
    let mut bench = Bench::of(&preferring("PreferClose"), [on(1, 0), on(2, 1)]);
    bench.add(&node("node-1", ""));
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001>a p002"]);
    bench = Bench::of(&auto("Auto"), [on(1, 0), on(2, 1), on(3, 7)]);
    // It counts for no capacity, as it is not ready, and yet has pods.
    let mut unready = node("node-7", "");
    unready.status.conditions.clear();
    bench.add(&unready);
    let told = bench.reconcile();
    assert_eq!(
        told[0],
        "TopologyAwareHintsDisabled: One or more endpoints do not have a zone specified, addressType: IPv4"
    );
    assert!(bench.remaining().is_empty());
}

#[test]
fn a_service_that_gets_no_hints_is_told_why_although_no_slice_changes() {
    let bench = roomy(&service(|_| {}), [on(1, 0), on(2, 1)]);
    bench.settled();
    bench.add(&auto("Auto"));
    let told = "TopologyAwareHintsDisabled: Insufficient number of endpoints (2 endpoints, 3 zones), addressType: IPv4";
    assert_eq!(bench.reconcile(), [told]);
    assert_eq!(bench.reconcile(), [told], "at every reconcile");
}

#[test]
fn a_changed_preference_rewrites_only_what_it_changes() {
    let pods = (1..8).map(|number| on(number, 0)).chain([pod(8, |pod| ready(pod, false, 1))]);
    let bench = Bench::of(&service(|_| {}), pods);
    bench.settled();
    bench.add(&preferring("PreferClose"));
    assert_eq!(bench.reconcile(), ["update web-2", "update web-3", "update web-4"]);
    bench.add(&preferring("PreferSameZone"));
    assert!(bench.plan().is_empty(), "that means the same");
    bench.add(&pod(8, |pod| ready(pod, true, 1)));
    assert_eq!(bench.reconcile(), ["update web-4"]);
    assert_eq!(bench.told()[2], "web-4 IPv4 :80: p007>a p008>a");
    bench.add(&service(|_| {}));
    assert_eq!(bench.reconcile(), ["update web-2", "update web-3", "update web-4"]);
    assert_eq!(bench.told()[2], "web-4 IPv4 :80: p007 p008");
}

const ENABLED: &str = "TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4";

#[test]
fn every_zone_gets_its_share() {
    // Four of six in zone a, where a third of the CPUs is.
    let pods = || [on(1, 0), on(2, 0), on(3, 0), on(4, 0), on(5, 1), on(6, 2)];
    for mode in ["Auto", "auto"] {
        let bench = roomy(&auto(mode), pods());
        assert_eq!(bench.reconcile(), [ENABLED, "create web-2"]);
        assert_eq!(bench.told(), ["web-2 IPv4 :80: p001>b p002>c p003>a p004>a p005>b p006>c"]);
        assert!(bench.plan().is_empty());
        // It says so once.
        bench.add(&pod(7, |_| {}));
        bench.add(&on(8, 1));
        bench.add(&on(9, 2));
        assert_eq!(bench.reconcile(), ["update web-2"]);
    }
    let bench = roomy(&auto("Disabled"), pods());
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001 p002 p003 p004 p005 p006"]);
}

#[test]
fn endpointslice_tells_once_that_hints_are_enabled_for_two_families() {
    let mut both = auto("Auto");
    both.spec.ip_families = vec!["IPv4".into(), "IPv6".into()];
    let dual = |number: usize| {
        let mut pod = on(number, number - 1);
        pod.status.pod_ips.push(PodIp { ip: format!("fd00::{number}").into() });
        pod
    };
    let told = roomy(&both, (1..4).map(dual)).reconcile();
    assert_eq!(told.iter().filter(|line| **line == ENABLED).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|line| line.starts_with("TopologyAwareHints")).count(), 1, "{told:?}");
}

#[test]
fn unequal_zones_get_unequal_shares() {
    let bench = roomy(&auto("Auto"), (1..7).map(|number| on(number, number % 3)));
    let mut big = node("node-0", "a");
    big.status.allocatable.insert("cpu", "16");
    bench.add(&big);
    // 16, 4 and 4 CPUs: four endpoints for a, one for each of the others.
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001>a p002>a p003>a p004>b p005>c p006>a"]);
}

#[test]
fn hints_go_when_they_can_not_be_given() {
    let three = || [on(1, 0), on(2, 1), on(3, 2)];
    let refused = |what: &str| format!("TopologyAwareHintsDisabled: {what}, addressType: IPv4");
    let unknown = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    let fresh = || {
        let bench = roomy(&auto("Auto"), three());
        assert_eq!(bench.reconcile(), [ENABLED, "create web-2"]);
        assert_eq!(bench.told(), ["web-2 IPv4 :80: p001>a p002>b p003>c"]);
        bench
    };
    let bare = "web-2 IPv4 :80: p001 p002 p003";

    let bench = fresh();
    bench.add(&pod(3, |pod| ready(pod, false, 1)));
    assert_eq!(
        bench.reconcile(),
        [refused("Insufficient number of endpoints (2 endpoints, 3 zones)"), "update web-2".to_owned()]
    );
    assert_eq!(bench.told(), ["web-2 IPv4 :80: p001 p002 p003!ready!serving"]);

    let bench = fresh();
    bench.add(&on(4, 0));
    let overload = "Unable to allocate minimum required endpoints to each zone without exceeding overload \
                    threshold (4 endpoints, 3 zones)";
    assert_eq!(bench.reconcile(), [refused(overload), "update web-2".to_owned()]);

    let changes: [fn(&mut Node); 2] =
        [|node| node.metadata.labels = labels(&[]), |node| node.status.allocatable.retain(|_| false)];
    for change in changes {
        let bench = fresh();
        let mut changed = node("node-3", "a");
        change(&mut changed);
        bench.add(&changed);
        assert_eq!(bench.reconcile(), [refused(unknown), "update web-2".to_owned()]);
        assert_eq!(bench.told(), [bare]);
        assert!(bench.remaining().is_empty());
    }

    // Its zone is no zone of the capacity any more.
    let bench = fresh();
    for at in 0..3 {
        bench.add(&node(&format!("node-{at}"), "a"));
    }
    assert_eq!(bench.reconcile(), [refused(unknown), "update web-2".to_owned()]);

    // Nobody asks for it any more: that is told where it shows that it was.
    let bench = fresh();
    bench.add(&service(|_| {}));
    assert_eq!(bench.settled(), [bare]);
    let bench = fresh();
    bench.add(&auto("Disabled"));
    let disabled = refused("Topology Aware Hints has been disabled");
    assert_eq!(bench.reconcile(), [disabled, "update web-2".to_owned()]);
    let bench = roomy(&auto("Auto"), [on(1, 0), on(2, 0), on(3, 2), on(4, 0), on(5, 1), on(6, 2)]);
    bench.settled();
    bench.add(&service(|_| {}));
    assert_eq!(
        bench.reconcile(),
        [refused("Topology Aware Hints has been disabled"), "update web-2".to_owned()]
    );
}

#[test]
fn nodes_of_the_control_plane_and_unready_ones_do_not_count() {
    let mut master = node("master", "");
    master.metadata.labels = labels(&[("node-role.kubernetes.io/control-plane", "")]);
    let mut unready = node("unready", "d");
    unready.status.conditions.clear();
    let bench = roomy(&auto("Auto"), [on(1, 0), on(2, 1), on(3, 2)]);
    bench.add(&master);
    bench.add(&unready);
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001>a p002>b p003>c"]);
}

#[test]
fn slices_whose_hints_do_no_harm_are_left_alone() {
    let bench = Bench::of(&auto("Auto"), (1..7).map(|number| on(number, number % 3)));
    bench.settled();
    for number in 7..10 {
        bench.add(&on(number, number % 3));
    }
    assert_eq!(bench.reconcile(), ["create web-4"]);
    assert!(bench.plan().is_empty());
}
