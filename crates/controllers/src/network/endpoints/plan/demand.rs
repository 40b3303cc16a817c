//! Which addresses a Service has, at which ports: those of the pods that it selects.
//!
//! A pod that has run to its end has none, nor has one that is being deleted, unless the Service publishes whatever it
//! selects. Only the address of the Service's first family counts.

use std::sync::Arc;

use super::super::services::{
    HeldEndpoints, MANAGED_BY, canonical, family_of, fixed_number, hostname, is_headless, port_number,
    ready_since,
};
use coxswain_machinery::api::core::{ObjectReference, Service, ServicePort};
use coxswain_machinery::api::endpoints::{EncodedSubset, EndpointAddress, EndpointPort};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::subsets::{Packer, Subset};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{Str, Time};

/// What the Service's Endpoints should say.
pub(super) fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<Subset> {
    let ports = &service.spec.ports;
    let resolved = |port: &ServicePort, number: Option<i32>| number.map(|number| endpoint_port(port, number));
    // Ports with fixed numbers are the same in all pods, so they are packed as one set.
    let fixed: Vec<EndpointPort> =
        ports.iter().filter_map(|port| resolved(port, fixed_number(port))).collect();
    let named: Vec<&ServicePort> = ports.iter().filter(|port| fixed_number(port).is_none()).collect();
    // One without ports is for DNS alone, which a Service with an address has no use for.
    let is_for_dns = ports.is_empty() && is_headless(service);
    let mut packer = Packer::default();
    let fixed_ports = packer.ports(&fixed);
    for pod in pods {
        let Some(address) = address(service, pod) else { continue };
        let ready = service.spec.publish_not_ready_addresses || pod.is_ready();
        if !fixed.is_empty() || is_for_dns {
            packer.add(&address, fixed_ports, ready);
        }
        // A pod that lacks a named port is not found there, but perhaps at another.
        let numbered: Vec<EndpointPort> =
            named.iter().filter_map(|port| resolved(port, port_number(port, pod))).collect();
        if !numbered.is_empty() {
            let numbered_ports = packer.ports(&numbered);
            packer.add(&address, numbered_ports, ready);
        }
    }
    packer.pack()
}

/// When what is new in these subsets has happened: when the Service was made, for new Endpoints and those that were
/// somebody else's; else when the first of those pods changed that are new, or whose
/// readiness is another, though they may be gone from it.
pub(super) fn since(
    service: &Service,
    pods: &[Arc<Pod>],
    held: Option<&HeldEndpoints>,
    wanted: &[Subset],
) -> Option<Time> {
    let Some(held) = held.filter(|held| held.endpoints.metadata.labels.contains_key(MANAGED_BY)) else {
        return service.metadata.creation_timestamp;
    };
    let held = held.subsets.iter().flat_map(EncodedSubset::addresses);
    let known: HashMap<Str, bool> = held.map(|((address, _), ready)| (address.target_uid(), ready)).collect();
    let wanted: HashSet<Str> = wanted
        .iter()
        .flat_map(|subset| subset.ready.iter().chain(&subset.not_ready))
        .map(EndpointAddress::target_uid)
        .collect();
    let publish = service.spec.publish_not_ready_addresses;
    let is_news = |pod: &Pod| {
        let uid = pod.metadata.uid.to_str();
        match known.get(&uid) {
            None => wanted.contains(&uid),
            // Where all are published, readiness is not shown.
            Some(ready) => !publish && *ready != pod.is_ready(),
        }
    };
    pods.iter().filter(|pod| is_news(pod)).filter_map(|pod| ready_since(pod)).min()
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let stays = service.spec.publish_not_ready_addresses || !pod.metadata.is_deleting();
    if pod.is_finished() || !stays {
        return None;
    }
    let wanted = family(service, pod)?;
    let mut addresses = pod.status.pod_ips.iter().filter_map(|held| canonical(&held.ip));
    let (_, ip) = addresses.find(|(family, _)| *family == wanted)?;
    Some(EndpointAddress {
        ip: ip.into_owned(),
        target_ref: Some(Box::new(ObjectReference {
            kind: "Pod".into(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.to_str(),
            ..ObjectReference::default()
        })),
        hostname: hostname(service, pod).cloned().unwrap_or_default(),
        node_name: Some(pod.spec.node_name.clone()),
    })
}

/// The family of the Service's addresses: its first; where it names none, that of its address; and of a headless one,
/// which is older than families, that of the pod.
fn family<'a>(service: &'a Service, pod: &Pod) -> Option<&'a str> {
    let spec = &service.spec;
    if let Some(first) = spec.ip_families.first() {
        return Some(first);
    }
    if is_headless(service) {
        return pod.status.pod_ips.first().and_then(|held| Some(canonical(&held.ip)?.0));
    }
    Some(family_of(&spec.cluster_ip))
}

fn endpoint_port(port: &ServicePort, number: i32) -> EndpointPort {
    EndpointPort {
        name: port.name.clone(),
        port: number,
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    }
}
