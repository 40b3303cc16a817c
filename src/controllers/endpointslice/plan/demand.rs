//! Which endpoints a Service's pods are, by the ports that they have.
//!
//! A pod is an endpoint when it has an address of the family and has not run to its end, ready or not: its conditions say
//! what it is fit for (KEP-1669). A named target port may be another number in every pod, or missing in some, so pods
//! are grouped by what their ports come to.

use std::collections::BTreeMap;

use super::super::services::{family_of, hostname, port_number, ready_since};
use super::super::view::View;
use crate::api::core::{ObjectReference, Pod, Service};
use crate::api::discovery::{Endpoint, EndpointConditions, EndpointPort};
use crate::model::Key;
use crate::model::slices::{Identity, Ports, identity, key_of};
use crate::wire::{Str, Time};

/// An endpoint that should be there, and when its readiness changed last.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) endpoint: Endpoint,
    pub(super) since: Option<Time>,
}

/// The endpoints with one set of ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: BTreeMap<Identity, Wanted>,
}

/// The endpoints of one family.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub(super) groups: BTreeMap<Ports, Group>,
    /// Pods that are left out because their node is not known (yet), as errors show it.
    pub(super) unknown: Vec<String>,
}

/// The endpoints of one address family.
pub(super) fn of(view: &View, family: &str) -> Demand {
    let service = &view.service;
    let mut demand = Demand::default();
    for pod in &view.pods {
        if pod.is_finished() || pod.status.pod_ips.is_empty() {
            continue;
        }
        let node = &pod.spec.node_name;
        let zone = view.zones.get(node);
        // Where addresses are published whatever their pods' state, that of the node does not matter either.
        if zone.is_none() && !service.spec.publish_not_ready_addresses {
            demand.unknown.push(format!(
                "skipping Pod {} for Service {}: Node {node} Not Found",
                pod.metadata.name,
                Key::of(&service.metadata),
            ));
            continue;
        }
        let endpoint = endpoint(service, pod, family, zone);
        if endpoint.addresses.is_empty() {
            continue;
        }
        let ports = ports(service, pod);
        let group = demand
            .groups
            .entry(key_of(&ports))
            .or_insert_with(|| Group { ports, endpoints: BTreeMap::new() });
        group.endpoints.insert(identity(&endpoint), Wanted { endpoint, since: ready_since(pod) });
    }
    demand
}

fn endpoint(service: &Service, pod: &Pod, family: &str, zone: Option<&Str>) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_deleting());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let given = |text: &Str| (!text.is_empty()).then(|| text.clone());
    let addresses = pod.status.pod_ips.iter().map(|held| &held.ip);
    Endpoint {
        addresses: addresses
            .filter(|address| !address.is_empty() && family_of(address) == family)
            .cloned()
            .collect(),
        conditions: EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: hostname(service, pod).cloned(),
        target_ref: Some(Box::new(ObjectReference {
            kind: "Pod".into(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        })),
        node_name: given(&pod.spec.node_name),
        zone: zone.and_then(given),
        hints: None,
    }
}

/// What the Service's ports come to in this pod; a named one that it does not have is left out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let resolved = service.spec.ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone()),
            protocol: Some(port.protocol.clone()),
            port: Some(port_number(port, pod)?),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}
