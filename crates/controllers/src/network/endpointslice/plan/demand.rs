//! Which endpoints a Service's pods are, by the ports that they have.
//!
//! A pod is an endpoint when it has an address of the family and has not run to its end, ready or not: its conditions say
//! what it is fit for (KEP-1669). A named target port may be another number in every pod, or missing in some, so pods
//! are grouped by what their ports come to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::services::{canonical, hostname, port_number, ready_since};
use super::super::view::View;
use coxswain_machinery::api::core::{ObjectReference, Service};
use coxswain_machinery::api::discovery::{Endpoint, EndpointConditions, EndpointPort};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::slices::{EncodedEndpoint, Ports, key_of};
use coxswain_machinery::wire::{Str, Time};

/// A pod that should have an endpoint. The endpoint is made only where it is written: of most it is enough to see that
/// they are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) pod: &'a Pod,
    zone: Option<&'a Str>,
    /// No slice that was looked at so far holds it.
    pub(super) is_missing: bool,
}

/// The endpoints with one set of ports.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    pub(super) ports: Vec<EndpointPort>,
    /// What tells the ports from others.
    pub(super) key: Ports,
    /// By their pods' names.
    pub(super) wanted: Vec<Wanted<'a>>,
}

/// What each port of a Service comes to in a pod.
type Numbers = SmallVec<[Option<i32>; 4]>;

/// The endpoints of one family.
#[derive(Debug, Default)]
pub(super) struct Demand<'a> {
    /// By their ports.
    pub(super) groups: Vec<Group<'a>>,
    /// Pods that are left out because their node is not known (yet), as errors show it.
    pub(super) unknown: Vec<String>,
}

/// Positions in [`Demand::groups`]. A search of the groups for each pod would take quadratic time if each pod has other ports.
#[derive(Debug, Default)]
struct GroupPositions {
    by_numbers: BTreeMap<Numbers, usize>,
    by_key: BTreeMap<Ports, usize>,
}

/// The endpoints of one address family.
pub(super) fn of<'a>(view: &'a View, family: &str) -> Demand<'a> {
    let service = &view.service;
    let mut demand = Demand::default();
    let mut positions = GroupPositions::default();
    for pod in view.pods.iter().map(Arc::as_ref) {
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
        if addresses(pod, family).next().is_none() {
            continue;
        }
        let group = demand.group(&mut positions, service, pod);
        group.wanted.push(Wanted { pod, zone, is_missing: true });
    }
    demand.groups.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    demand
}

impl<'a> Demand<'a> {
    /// The group with what the Service's ports come to in this pod.
    fn group(&mut self, positions: &mut GroupPositions, service: &Service, pod: &Pod) -> &mut Group<'a> {
        let numbers: Numbers = service.spec.ports.iter().map(|port| port_number(port, pod)).collect();
        let groups = &mut self.groups;
        let held = positions.by_numbers.get(&numbers).copied();
        let at = held.unwrap_or_else(|| {
            let ports = ports(service, &numbers);
            let key = key_of(&ports);
            // Two ports that are said to be the same may be told in two ways.
            let at = *positions.by_key.entry(key.clone()).or_insert_with(|| {
                groups.push(Group { ports, key, wanted: Vec::new() });
                groups.len() - 1
            });
            positions.by_numbers.insert(numbers, at);
            at
        });
        &mut groups[at]
    }
}

impl<'a> Group<'a> {
    /// The one that is wanted and that this endpoint is, which is no longer missing then. An endpoint is known by its pod,
    /// its addresses and its hostname; all else may change in its place.
    pub(super) fn find(
        &mut self,
        service: &Service,
        family: &str,
        seen: &EncodedEndpoint<'_>,
    ) -> Option<Wanted<'a>> {
        let target = seen.target.as_ref()?;
        let at = self.wanted.binary_search_by(|wanted| wanted.pod.metadata.name.as_str().cmp(&target.name));
        let wanted = &mut self.wanted[at.ok()?];
        let pod = wanted.pod;
        let mut own = addresses(pod, family);
        let is_it = wanted.is_missing
            && pod.metadata.namespace == *target.namespace
            && seen.addresses.iter().all(|seen| own.next().is_some_and(|own| **own == **seen))
            && own.next().is_none()
            && hostname(service, pod).map_or("", Str::as_str) == seen.hostname.as_deref().unwrap_or_default();
        wanted.is_missing &= !is_it;
        is_it.then_some(*wanted)
    }
}

impl Wanted<'_> {
    /// Whether the endpoint is as it should be, apart from its hints.
    pub(super) fn is_shown(&self, service: &Service, seen: &EncodedEndpoint<'_>) -> bool {
        let metadata = &self.pod.metadata;
        let shown = |text: Option<&Str>, seen: Option<&str>| text.map(Str::as_str) == seen;
        conditions(service, self.pod) == seen.conditions
            && shown(given(&self.pod.spec.node_name), seen.node_name.as_deref())
            && shown(self.zone.and_then(given), seen.zone.as_deref())
            && seen.target.as_ref().is_some_and(|target| target.kind == POD && metadata.uid == *target.uid)
    }

    /// When the pod's readiness changed last.
    pub(super) fn since(&self) -> Option<Time> {
        ready_since(self.pod)
    }

    /// The endpoint, without hints.
    pub(super) fn endpoint(&self, service: &Service, family: &str) -> Endpoint {
        let pod = self.pod;
        Endpoint {
            addresses: addresses(pod, family).map(Cow::into_owned).collect(),
            conditions: conditions(service, pod),
            hostname: hostname(service, pod).cloned(),
            target_ref: Some(Box::new(ObjectReference {
                kind: POD.into(),
                namespace: pod.metadata.namespace.clone(),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.to_str(),
                ..ObjectReference::default()
            })),
            node_name: given(&pod.spec.node_name).cloned(),
            zone: self.zone.and_then(given).cloned(),
            hints: None,
        }
    }
}

/// What endpoints refer to.
const POD: &str = "Pod";

/// The pod's addresses of a family.
fn addresses<'a>(pod: &'a Pod, family: &str) -> impl Iterator<Item = Cow<'a, Str>> {
    let all = pod.status.pod_ips.iter().filter_map(|held| canonical(&held.ip));
    all.filter(move |(held, _)| *held == family).map(|(_, address)| address)
}

fn conditions(service: &Service, pod: &Pod) -> EndpointConditions {
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_deleting());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) }
}

fn given(text: &Str) -> Option<&Str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The Service's ports as they are in a pod; a named one that it does not have is left out.
fn ports(service: &Service, numbers: &Numbers) -> Vec<EndpointPort> {
    let resolved = service.spec.ports.iter().zip(numbers).filter_map(|(port, number)| {
        Some(EndpointPort {
            name: Some(port.name.clone()),
            protocol: Some(port.protocol.clone()),
            port: Some((*number)?),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}
