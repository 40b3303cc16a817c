//! What an endpoint shows of its pod.

use super::fixtures::{Bench, ago, deleting, node, pod, ready, service};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::discovery::Endpoint;
use coxswain_machinery::api::pod::{Pod, PodIp};
use coxswain_machinery::model::Step;

fn endpoint(change_service: fn(&mut Service), change_pod: fn(&mut Pod)) -> Option<Endpoint> {
    let bench = Bench::of(&service(change_service), [pod(1, change_pod)]);
    bench.settled();
    let all: Vec<Endpoint> = bench
        .all()
        .iter()
        .flat_map(|slice| slice.endpoints().unwrap())
        .map(|(endpoint, _)| endpoint)
        .collect();
    assert!(all.len() <= 1, "{all:?}");
    all.into_iter().next()
}

fn nothing<T>(_: &mut T) {}

#[test]
fn conditions_say_what_a_pod_is_fit_for() {
    let published: fn(&mut Service) = |service| service.spec.publish_not_ready_addresses = true;
    let unready: fn(&mut Pod) = |pod| ready(pod, false, 5);
    let leaving: fn(&mut Pod) = deleting;
    let unready_leaving: fn(&mut Pod) = |pod| {
        unready_now(pod);
        deleting(pod);
    };
    // (ready, serving, terminating)
    for (change_service, change_pod, expected) in [
        (nothing as fn(&mut Service), nothing as fn(&mut Pod), (true, true, false)),
        (nothing, unready, (false, false, false)),
        (nothing, leaving, (false, true, true)),
        (nothing, unready_leaving, (false, false, true)),
        (published, unready, (true, false, false)),
        (published, leaving, (true, true, true)),
    ] {
        let conditions = endpoint(change_service, change_pod).unwrap().conditions;
        let found = [conditions.ready, conditions.serving, conditions.terminating].map(Option::unwrap);
        assert_eq!(found, [expected.0, expected.1, expected.2]);
    }
}

fn unready_now(pod: &mut Pod) {
    ready(pod, false, 5);
}

#[test]
fn a_pod_that_has_finished_or_has_no_address_is_none() {
    let none: [fn(&mut Pod); 4] = [
        |pod| pod.status.phase = "Succeeded".into(),
        |pod| pod.status.phase = "Failed".into(),
        |pod| pod.status.pod_ips.clear(),
        |pod| pod.metadata.labels = super::fixtures::labels(&[("app", "other")]),
    ];
    for change in none {
        assert_eq!(endpoint(nothing, change), None);
    }
}

#[test]
fn it_names_its_pod_node_and_zone() {
    let endpoint = endpoint(nothing, nothing).unwrap();
    assert_eq!(endpoint.addresses, ["10.0.0.1"]);
    assert_eq!((endpoint.node_name.as_deref(), endpoint.zone.as_deref()), (Some("node-0"), Some("a")));
    let target = endpoint.target_ref.unwrap();
    assert_eq!(
        [&target.kind, &target.namespace, &target.name, &target.uid, &target.resource_version],
        ["Pod", "default", "p001", "p001-uid", ""]
    );
    assert_eq!((endpoint.hostname, endpoint.hints), (None, None));
}

#[test]
fn only_the_service_of_its_subdomain_lends_a_hostname() {
    for (subdomain, expected) in [("web", Some("host")), ("other", None), ("", None)] {
        let named = pod(1, |pod| {
            pod.spec.hostname = "host".into();
            pod.spec.subdomain = subdomain.into();
        });
        let bench = Bench::of(&service(|_| {}), [named]);
        bench.settled();
        let endpoints = bench.all()[0].endpoints().unwrap();
        assert_eq!(endpoints[0].0.hostname.as_deref(), expected);
    }
}

#[test]
fn a_pod_of_an_unknown_node_waits_for_it() {
    let lost = |number| pod(number, |pod| pod.spec.node_name = "node-9".into());
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), lost(2)]);
    let plan = bench.plan();
    assert_eq!(
        plan.retry.as_deref(),
        Some("skipping Pod p002 for Service default/web: Node node-9 Not Found")
    );
    assert_eq!(
        bench.reconcile(),
        [
            "create web-2",
            "FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service default/web: \
             skipping Pod p002 for Service default/web: Node node-9 Not Found",
        ]
    );
    assert_eq!(bench.told(), ["web-2 IPv4 :80: p001"]);
    bench.add(&node("node-9", "z"));
    assert_eq!(bench.plan().retry, None);
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001 p002"]);
    let both = Bench::of(&service(|_| {}), [lost(1), lost(2)]).reconcile();
    let told = both.last().unwrap();
    assert!(told.contains("web: [skipping Pod p001 ") && told.ends_with("Node node-9 Not Found]"), "{told}");

    let bench = Bench::of(&service(|service| service.spec.publish_not_ready_addresses = true), [lost(2)]);
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p002"]);
    assert_eq!(bench.all()[0].endpoints().unwrap()[0].0.zone, None);
}

#[test]
fn no_family_waits_for_another() {
    let both: fn(&mut Service) = |service| service.spec.ip_families = vec!["IPv4".into(), "IPv6".into()];
    let dual = |pod: &mut Pod| pod.status.pod_ips.push(PodIp { ip: "fd00::1".into() });
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), pod(2, dual)]);
    bench.settled();
    // One slice is new; from that of the other family a pod is taken out.
    bench.add(&service(both));
    bench.add(&pod(1, |pod| pod.status.phase = "Failed".into()));
    let plan = bench.plan();
    let [Step::Each(writes)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let verbs: Vec<&str> = writes.iter().map(|write| write.verb.name()).collect();
    assert_eq!(verbs, ["create", "update"]);
}

#[test]
fn addresses_are_spelled_in_one_way() {
    let both: fn(&mut Service) = |service| service.spec.ip_families = vec!["IPv4".into(), "IPv6".into()];
    let ips = |ips: [&'static str; 2]| {
        move |pod: &mut Pod| pod.status.pod_ips = ips.map(|ip| PodIp { ip: ip.into() }).to_vec()
    };
    let pods = [pod(1, ips(["010.1.0.1", "FD00::5"])), pod(2, ips(["::ffff:10.1.0.2", "fd00:0::6"]))];
    let bench = Bench::of(&service(both), pods);
    assert_eq!(bench.reconcile().len(), 2);
    let addresses = |name: &str| {
        let endpoints = bench.slice(name).endpoints().unwrap();
        endpoints.iter().map(|(endpoint, _)| endpoint.addresses[0].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(addresses("web-2"), ["10.1.0.1", "10.1.0.2"]);
    assert_eq!(addresses("web-3"), ["fd00::5", "fd00::6"]);
    assert_eq!(bench.reconcile(), [""; 0], "it finds again what it has written");
}

#[test]
fn each_family_has_slices_of_its_own() {
    let dual = |pod: &mut Pod| pod.status.pod_ips.push(PodIp { ip: "fd00::1".into() });
    let both: fn(&mut Service) = |service| service.spec.ip_families = vec!["IPv6".into(), "IPv4".into()];
    let six: fn(&mut Service) = |service| service.spec.ip_families = vec!["IPv6".into()];
    let old: fn(&mut Service) = |service| {
        service.spec.ip_families.clear();
        service.spec.cluster_ip = "None".into();
    };
    let old_six: fn(&mut Service) = |service| {
        service.spec.ip_families.clear();
        service.spec.cluster_ip = "fd01::1".into();
    };
    for (change, expected) in [
        (both, ["web-2 IPv4 :80: p001", "web-3 IPv6 :80: p001"].as_slice()),
        (six, &["web-2 IPv6 :80: p001"]),
        (old, &["web-2 IPv4 :80: p001", "web-3 IPv6 :80: p001"]),
        (old_six, &["web-2 IPv6 :80: p001"]),
    ] {
        let bench = Bench::of(&service(change), [pod(1, dual)]);
        assert_eq!(bench.settled(), expected);
    }
    // A family that the Service gave up goes, one in which no pod has an address keeps an empty slice.
    let bench = Bench::of(&service(both), [pod(1, |_| {})]);
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001", "web-3 IPv6 :"]);
    bench.add(&service(|_| {}));
    assert_eq!(bench.reconcile(), ["delete web-3"]);
}

#[test]
fn what_has_no_selector_or_is_elsewhere_is_left_alone() {
    let mine: fn(&mut Service) = |service| service.spec.selector = super::fixtures::labels(&[]);
    let elsewhere: fn(&mut Service) = |service| service.spec.r#type = "ExternalName".into();
    for change in [mine, elsewhere] {
        let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
        bench.settled();
        bench.add(&service(change));
        assert!(bench.plan_after(&[]).is_none());
    }
}

#[test]
fn a_service_that_goes_gets_no_new_slices() {
    let bench = Bench::of(&service(|service| service.metadata.deletion_timestamp = ago(1)), [pod(1, |_| {})]);
    assert_eq!(bench.reconcile(), [""; 0]);
}

#[test]
fn the_earliest_change_is_told() {
    let told = |bench: &Bench| {
        let name = "endpoints.kubernetes.io/last-change-trigger-time";
        bench.all()[0].metadata.annotations.get(name).map(ToString::to_string)
    };
    let at = |seconds| ago(seconds).map(|time| time.to_string());
    // A new Service, though its pods were ready before.
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), pod(2, |_| {})]);
    bench.settled();
    assert_eq!(told(&bench), at(10_000));
    // A pod's readiness.
    bench.add(&pod(1, |pod| ready(pod, false, 30)));
    bench.add(&pod(2, |pod| ready(pod, false, 20)));
    bench.settled();
    assert_eq!(told(&bench), at(30));
    // Deletion, labels and ports have no time.
    bench.add(&pod(1, |pod| {
        ready(pod, false, 30);
        deleting(pod);
    }));
    bench.settled();
    assert_eq!(told(&bench), None);
    // A pod that is new.
    bench.add(&pod(3, |pod| ready(pod, true, 7)));
    bench.settled();
    assert_eq!(told(&bench), at(7));
    // A pod that has ended.
    bench.add(&pod(3, |pod| {
        ready(pod, false, 5);
        pod.status.phase = "Failed".into();
    }));
    bench.settled();
    assert_eq!(told(&bench), at(5));
    // The same pods under another port.
    bench.add(&service(|service| service.spec.ports = vec![super::fixtures::port("", 81)]));
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(told(&bench), None);
    // The last pod has ended.
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    bench.settled();
    bench.add(&pod(1, |pod| {
        ready(pod, false, 4);
        pod.status.phase = "Succeeded".into();
    }));
    assert_eq!(bench.settled(), ["web-2 IPv4 :"]);
    assert_eq!(told(&bench), at(4));
}
