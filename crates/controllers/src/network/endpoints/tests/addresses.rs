//! Which addresses a Service has, at which ports.

use super::super::super::objects::named_port;
use super::fixtures::{Bench, deleting, pod, port, ready, service};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::pod::{Pod, PodIp};
use coxswain_machinery::wire::IntOrString;

fn told(change: impl FnOnce(&mut Service), pods: impl IntoIterator<Item = Pod>) -> Vec<String> {
    Bench::of(&service(change), pods).settled()
}

fn ips(pod: &mut Pod, ips: &[&str]) {
    pod.status.pod_ips = ips.iter().map(|ip| PodIp { ip: (*ip).into() }).collect();
}

#[test]
fn pods_that_run_have_addresses() {
    let pods = || {
        [
            pod(1, |_| {}),
            pod(2, |pod| ready(pod, false, 10)),
            pod(3, |pod| pod.status.conditions.clear()),
            pod(4, |pod| pod.status.phase = "Succeeded".into()),
            pod(5, |pod| pod.status.phase = "Failed".into()),
            pod(6, deleting),
            pod(7, |pod| pod.status.pod_ips.clear()),
            pod(8, |pod| pod.metadata.labels = super::fixtures::labels(&[("app", "api")])),
        ]
    };
    assert_eq!(told(|_| {}, pods()), [":80: 10.0.0.1 / 10.0.0.2 10.0.0.3"]);
    let publish = |service: &mut Service| service.spec.publish_not_ready_addresses = true;
    assert_eq!(told(publish, pods()), [":80: 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.6"]);
    assert_eq!(told(|_| {}, []), [""; 0]);
}

#[test]
fn a_service_without_pods_to_select_is_left_alone() {
    for change in
        [(|service| service.spec.selector = super::fixtures::labels(&[])) as fn(&mut Service), |service| {
            service.spec.r#type = "ExternalName".into();
        }]
    {
        let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
        bench.settled();
        bench.add(&service(change));
        assert!(bench.plan_after(&[]).is_none());
    }
}

#[test]
fn only_the_first_family_counts() {
    let pods = || {
        [
            pod(1, |pod| ips(pod, &["10.0.0.1", "fd00::1"])),
            pod(2, |pod| ips(pod, &["fd00::2", "10.0.0.2"])),
            pod(3, |pod| ips(pod, &["fd00::3"])),
        ]
    };
    let of = |families: &[&str], cluster_ip: &str| {
        let (families, cluster_ip) =
            (families.iter().map(|family| (*family).into()).collect(), cluster_ip.into());
        told(
            move |service| (service.spec.ip_families, service.spec.cluster_ip) = (families, cluster_ip),
            pods(),
        )
    };
    assert_eq!(of(&["IPv4", "IPv6"], "10.96.0.1"), [":80: 10.0.0.1 10.0.0.2"]);
    assert_eq!(of(&["IPv6", "IPv4"], "fd00:96::1"), [":80: fd00::1 fd00::2 fd00::3"]);
    // Services that are older than families.
    assert_eq!(of(&[], "10.96.0.1"), [":80: 10.0.0.1 10.0.0.2"]);
    assert_eq!(of(&[], "fd00:96::1"), [":80: fd00::1 fd00::2 fd00::3"]);
    assert_eq!(of(&[], "None"), [":80: 10.0.0.1 fd00::2 fd00::3"]);
}

#[test]
fn addresses_are_spelled_in_one_way() {
    let pods = || {
        [
            pod(1, |pod| ips(pod, &["010.1.0.1", "FD00::5"])),
            pod(2, |pod| ips(pod, &["::ffff:10.1.0.2", "fd00:0::6"])),
            pod(3, |pod| ips(pod, &["none", ""])),
        ]
    };
    for (family, expected) in [("IPv4", ":80: 10.1.0.1 10.1.0.2"), ("IPv6", ":80: fd00::5 fd00::6")] {
        let change = move |service: &mut Service| service.spec.ip_families = vec![family.into()];
        assert_eq!(told(change, pods()), [expected]);
    }
}

#[test]
fn addresses_say_whose_they_are() {
    let named = |name: &'static str, subdomain: &'static str| {
        move |pod: &mut Pod| {
            (pod.spec.hostname, pod.spec.subdomain) = (name.into(), subdomain.into());
        }
    };
    let bench = Bench::of(
        &service(|_| {}),
        [pod(1, named("one", "web")), pod(2, named("two", "api")), pod(3, named("", "web"))],
    );
    bench.settled();
    let subsets = bench.held().subsets().unwrap();
    let hostnames: Vec<&str> =
        subsets[0].ready.iter().map(|(address, _)| address.hostname.as_str()).collect();
    assert_eq!(hostnames, ["one", "", ""]);
    let (first, _) = &subsets[0].ready[0];
    assert_eq!(first.node_name.as_deref(), Some("node-0"));
    let target = first.target_ref.as_deref().unwrap();
    assert_eq!(
        [
            &target.kind,
            &target.namespace,
            &target.name,
            &target.uid,
            &target.resource_version,
            &target.api_version
        ]
        .map(coxswain_machinery::wire::Str::as_str),
        ["Pod", "default", "p001", "p001-uid", "", ""]
    );
}

#[test]
fn named_ports_are_looked_up() {
    let by_name = |service: &mut Service| {
        service.spec.ports = vec![port("web", 80), port("metrics", 9090)];
        service.spec.ports[0].target_port = Some(IntOrString::Str("http".into()));
        service.spec.ports[1].app_protocol = Some("prometheus".into());
    };
    let container =
        |number, protocol: &'static str| move |pod: &mut Pod| named_port(pod, "http", number, protocol);
    let pods = [
        pod(1, container(8080, "TCP")),
        pod(2, container(8081, "TCP")),
        pod(3, container(8080, "UDP")),
        pod(4, |pod| {
            named_port(pod, "http", 8080, "TCP");
            ready(pod, false, 10);
        }),
    ];
    assert_eq!(
        told(by_name, pods),
        [
            "metrics:9090: 10.0.0.1 10.0.0.2 10.0.0.3 / 10.0.0.4",
            "web:8080: 10.0.0.1 / 10.0.0.4",
            "web:8081: 10.0.0.2",
        ]
    );
    // Ports that come to the same number have each their name; without a target the port itself is meant.
    let twice = |service: &mut Service| {
        service.spec.ports = vec![port("b", 80), port("a", 81)];
        service.spec.ports[0].target_port = Some(IntOrString::Int(8080));
        service.spec.ports[1].target_port = None;
    };
    assert_eq!(told(twice, [pod(1, |_| {})]), ["a:81,b:8080: 10.0.0.1"]);
    // Nobody has the port.
    let nobody = |service: &mut Service| {
        service.spec.ports[0].target_port = Some(IntOrString::Str("https".into()));
    };
    assert_eq!(told(nobody, [pod(1, |_| {})]), [""; 0]);
}

#[test]
fn a_service_without_ports_is_for_dns() {
    let portless = |cluster_ip: &'static str| {
        move |service: &mut Service| {
            service.spec.ports.clear();
            service.spec.cluster_ip = cluster_ip.into();
        }
    };
    let pods = || [pod(1, |_| {}), pod(2, |pod| ready(pod, false, 10))];
    assert_eq!(told(portless("None"), pods()), [": 10.0.0.1 / 10.0.0.2"]);
    assert_eq!(told(portless("10.96.0.1"), pods()), [""; 0]);
}

#[test]
fn pods_may_share_an_address() {
    let on_host = |pod: &mut Pod| ips(pod, &["10.1.0.1"]);
    let pods = [
        pod(1, on_host),
        pod(2, |pod| {
            on_host(pod);
            ready(pod, false, 10);
        }),
        pod(3, on_host),
    ];
    assert_eq!(told(|_| {}, pods), [":80: 10.1.0.1 10.1.0.1 / 10.1.0.1"]);
}
