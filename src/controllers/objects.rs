//! Objects for the tests of rooms that say where Services are served.

use crate::api::core::{Pod, PodCondition, PodIp, Service, ServicePort};
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Kind, Object};
use crate::wire::{IntOrString, Labels, Message, Time};

pub(super) const NOW: i64 = 1_700_000_000;

pub(super) fn ago(seconds: i64) -> Option<Time> {
    Time::from_seconds(NOW - seconds)
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

pub(super) fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: namespace.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    }
}

/// `default/web`: selects `app=web`, port 80, IPv4.
pub(super) fn service(change: impl FnOnce(&mut Service)) -> Service {
    let mut service = Service { metadata: meta("default", "web"), ..Service::default() };
    service.metadata.creation_timestamp = ago(10_000);
    service.spec.selector = labels(&[("app", "web")]);
    service.spec.cluster_ip = "10.96.0.1".into();
    service.spec.r#type = "ClusterIP".into();
    service.spec.ip_families = vec!["IPv4".into()];
    service.spec.ports = vec![port("", 80)];
    change(&mut service);
    service
}

pub(super) fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol: "TCP".into(),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}

/// A running pod `app=web` on `node-0`, with the address `10.0.0.NUMBER`, ready for 1000 seconds.
pub(super) fn pod(number: usize, change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = Pod { metadata: meta("default", &format!("p{number:03}")), ..Pod::default() };
    pod.metadata.labels = labels(&[("app", "web")]);
    pod.spec.node_name = "node-0".into();
    pod.status.phase = "Running".into();
    pod.status.pod_ips = vec![PodIp { ip: format!("10.0.{}.{}", number / 250, number % 250).into() }];
    ready(&mut pod, true, 1000);
    change(&mut pod);
    pod
}

pub(super) fn ready(pod: &mut Pod, ready: bool, since: i64) {
    let status = if ready { "True" } else { "False" };
    pod.status.conditions = vec![PodCondition {
        r#type: "Ready".into(),
        status: status.into(),
        last_transition_time: ago(since),
    }];
}

pub(super) fn deleting(pod: &mut Pod) {
    pod.metadata.deletion_timestamp = ago(1);
}

/// The object as the API server would send it.
pub(super) fn any<T: Object + Message>(kind: &Kind, object: &T) -> AnyObject {
    (kind.decode)(&object.to_bytes().into()).unwrap()
}
