//! What a Service's ports come to in its pods.

use super::super::super::objects::named_port;
use super::fixtures::{Bench, pod, port, service};
use coxswain_machinery::api::core::{Service, ServicePort};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::wire::IntOrString;

fn named(name: &str, target: &str) -> ServicePort {
    ServicePort { target_port: Some(IntOrString::Str(target.into())), ..port(name, 1) }
}

fn with_port(name: &'static str, number: i32) -> impl FnOnce(&mut Pod) {
    move |pod| named_port(pod, name, number, "TCP")
}

fn with_ports(ports: Vec<ServicePort>) -> Service {
    service(|service| service.spec.ports = ports)
}

#[test]
fn a_named_port_is_what_each_pod_calls_so() {
    let pods = [
        pod(1, with_port("http", 8080)),
        pod(2, with_port("http", 8081)),
        pod(3, with_port("http", 8080)),
        pod(4, |_| {}),
    ];
    let bench = Bench::of(&with_ports(vec![named("h", "http"), port("m", 9)]), pods);
    assert_eq!(
        bench.settled(),
        ["web-2 IPv4 h:8080,m:9: p001 p003", "web-3 IPv4 h:8081,m:9: p002", "web-4 IPv4 m:9: p004",]
    );
    // It changes its number with its pod.
    bench.remove(&super::super::PODS, &super::Key::new("default", "p002"));
    bench.add(&pod(5, with_port("http", 8082)));
    assert_eq!(bench.reconcile(), ["update web-3"]);
    assert_eq!(bench.told()[1], "web-3 IPv4 h:8082,m:9: p005");
    assert!(bench.plan().is_empty());
}

#[test]
fn a_port_is_meant_by_name_and_protocol() {
    let udp = ServicePort { protocol: "UDP".into(), ..named("dns", "dns") };
    let bench = Bench::of(&with_ports(vec![udp]), [pod(1, with_port("dns", 53))]);
    assert_eq!(bench.settled(), ["web-2 IPv4 : p001"]);
}

#[test]
fn a_headless_service_needs_no_ports() {
    let bench = Bench::of(
        &service(|service| {
            service.spec.cluster_ip = "None".into();
            service.spec.ports.clear();
        }),
        [pod(1, |_| {})],
    );
    assert_eq!(bench.settled(), ["web-2 IPv4 : p001"]);
    assert_eq!(bench.slice("web-2").metadata.labels.get("service.kubernetes.io/headless").unwrap(), "");
}

#[test]
fn ports_in_another_order_are_the_same() {
    let ports = || vec![port("a", 1), port("b", 2)];
    let bench = Bench::of(&with_ports(ports()), [pod(1, |_| {})]);
    bench.settled();
    bench.add(&with_ports(ports().into_iter().rev().collect()));
    assert!(bench.plan().is_empty());
    let mut other = ports();
    other[0].app_protocol = Some("h2c".into());
    bench.add(&with_ports(other));
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.slice("web-2").ports[0].app_protocol.as_deref(), Some("h2c"));
}
