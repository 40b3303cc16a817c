//! Which slices Endpoints come to: for each subset and family one.
//!
//! Subsets are taken in their canonical form, so that those with the same ports are one. Of a subset no more addresses
//! are taken than a slice may hold, those that are ready first. Endpoints may spell addresses as they like, slices may not.

use std::collections::BTreeMap;

use super::super::services::canonical;
use super::super::view::MirroredEndpoints;
use coxswain_machinery::api::discovery::{Endpoint, EndpointConditions, EndpointPort};
use coxswain_machinery::api::endpoints::{self, EndpointAddress};
use coxswain_machinery::model::slices::{EndpointIdentity, Ports, identity, key_of};
use coxswain_machinery::wire::Str;

/// Family and ports: there is one slice for each.
pub(super) type Place = (Str, Ports);

/// What one slice should hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) family: Str,
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

impl Group {
    /// The addresses of its endpoints.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Str> {
        self.endpoints.values().flat_map(|endpoint| endpoint.addresses.iter().cloned())
    }
}

/// What all slices should hold.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub(super) groups: BTreeMap<Place, Group>,
    /// Addresses that are none, and therefore left out.
    pub(super) invalid: usize,
    /// Addresses that are too many, and therefore left out.
    pub(super) surplus: usize,
}

pub(super) fn of(mirrored: &MirroredEndpoints, max_per_subset: usize) -> Demand {
    let mut demand = Demand::default();
    for subset in &mirrored.subsets {
        let mut families: BTreeMap<&str, BTreeMap<EndpointIdentity, Endpoint>> = BTreeMap::new();
        let ready = subset.ready.iter().map(|address| (address, true));
        let mut taken = 0;
        for (address, ready) in ready.chain(subset.not_ready.iter().map(|address| (address, false))) {
            let Some((family, ip)) = canonical(&address.ip) else {
                demand.invalid += 1;
                continue;
            };
            if taken == max_per_subset {
                demand.surplus += 1;
            } else {
                taken += 1;
                let endpoint = endpoint(address, ip.into_owned(), ready);
                families.entry(family).or_default().insert(identity(&endpoint), endpoint);
            }
        }
        // Once for each family, because a subset may have as many ports as addresses.
        let ports: Vec<EndpointPort> = subset.ports.iter().map(port).collect();
        let key = key_of(&ports);
        for (family, endpoints) in families {
            let family = Str::from(family);
            let group = demand.groups.entry((family.clone(), key.clone())).or_insert_with(|| Group {
                family,
                ports: ports.clone(),
                endpoints: BTreeMap::new(),
            });
            group.endpoints.extend(endpoints);
        }
    }
    demand
}

fn port(port: &endpoints::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(port.port),
        app_protocol: port.app_protocol.clone(),
    }
}

fn endpoint(address: &EndpointAddress, ip: Str, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip],
        conditions: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        hostname: (!address.hostname.is_empty()).then(|| address.hostname.clone()),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    }
}
