//! Who should use which endpoint: by the Service's traffic distribution (KEP-4444, KEP-3015), or by its zones' capacity
//! (KEP-2433).
//!
//! Only endpoints that take new traffic carry hints. A slice whose hints are right is not written.

use std::collections::BTreeMap;

use super::super::topology::{Capacity, Refusal, Share, hinted_zone, is_declined, is_ready};
use super::super::view::View;
use super::event;
use super::packing::Packed;
use crate::api::discovery::{Endpoint, EndpointHints, ForNode, ForZone};
use crate::model::plan::EventSpec;
use crate::model::slices::HeldSlice;
use crate::wire::{Str, WireError};

const ENABLED: &str = "TopologyAwareHintsEnabled";
const DISABLED: &str = "TopologyAwareHintsDisabled";

/// What the Service asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preference {
    /// Nothing.
    None,
    /// Endpoints in the client's zone.
    Zone,
    /// The endpoint on the client's node, then those in its zone.
    Node,
}

/// Gives hints to the endpoints that are written, and reopens slices whose hints are wrong. What is to be said about it.
pub(super) fn give(
    view: &View,
    family: &str,
    packed: &mut Packed<'_>,
) -> Result<Option<EventSpec>, WireError> {
    let service = &view.service;
    let say = |warning, reason, what: String| {
        Ok(Some(event(service, warning, reason, format!("{what}, addressType: {family}"))))
    };
    let hinted = Hinted::of(view, family)?;
    let Some(capacity) = &view.capacity else {
        let preference = preference(view);
        by_preference(preference, packed)?;
        // Hints for the endpoints' own zones may have been preferred as well as allotted; only the zones' capacity sends
        // traffic elsewhere.
        let declined = preference == Preference::None && is_declined(service);
        if hinted.elsewhere || (declined && hinted.to_a_zone) {
            return say(true, DISABLED, "Topology Aware Hints has been disabled".to_owned());
        }
        return Ok(None);
    };
    match by_capacity(capacity, packed)? {
        Ok(()) if hinted.at_all => Ok(None),
        Ok(()) => say(false, ENABLED, "Topology Aware Hints has been enabled".to_owned()),
        Err(refusal) => {
            by_preference(Preference::None, packed)?;
            say(true, DISABLED, refusal.to_string())
        }
    }
}

/// What the slices of a family have in the way of hints.
#[derive(Clone, Copy, Debug, Default)]
struct Hinted {
    /// Any.
    at_all: bool,
    /// Such that name a zone.
    to_a_zone: bool,
    /// Such that name a zone other than the endpoint's.
    elsewhere: bool,
}

impl Hinted {
    fn of(view: &View, family: &str) -> Result<Self, WireError> {
        let mut hinted = Self::default();
        let of_family = view.slices.iter().filter(|held| held.slice.address_type == family);
        for held in of_family.filter(|held| held.is_hinted) {
            hinted.at_all = true;
            for (endpoint, _) in held.endpoints()? {
                let zone = hinted_zone(endpoint);
                hinted.to_a_zone |= zone.is_some();
                hinted.elsewhere |= zone.is_some() && zone != endpoint.zone.as_ref();
            }
        }
        Ok(hinted)
    }
}

fn preference(view: &View) -> Preference {
    match view.service.spec.traffic_distribution.as_deref() {
        Some("PreferClose") => Preference::Zone,
        Some("PreferSameZone") if view.settings.prefer_same => Preference::Zone,
        Some("PreferSameNode") if view.settings.prefer_same => Preference::Node,
        _ => Preference::None,
    }
}

fn by_preference(preference: Preference, packed: &mut Packed<'_>) -> Result<(), WireError> {
    packed.reopen(|held| {
        if preference == Preference::None {
            return Ok(!held.is_hinted);
        }
        let mut endpoints = held.endpoints()?.iter();
        Ok(endpoints.all(|(endpoint, _)| endpoint.hints == preferred(preference, endpoint)))
    })?;
    for endpoint in packed.written() {
        endpoint.hints = preferred(preference, endpoint);
    }
    Ok(())
}

fn preferred(preference: Preference, endpoint: &Endpoint) -> Option<Box<EndpointHints>> {
    if preference == Preference::None || !is_ready(endpoint) {
        return None;
    }
    let for_zones: Vec<ForZone> = endpoint.zone.iter().map(|zone| ForZone { name: zone.clone() }).collect();
    let node = endpoint.node_name.iter().filter(|_| preference == Preference::Node);
    let for_nodes: Vec<ForNode> = node.map(|node| ForNode { name: node.clone() }).collect();
    let any = !for_zones.is_empty() || !for_nodes.is_empty();
    any.then(|| Box::new(EndpointHints { for_zones, for_nodes }))
}

/// Allots every ready endpoint to a zone: to its own as far as other zones get their shares.
fn by_capacity(capacity: &Capacity, packed: &mut Packed<'_>) -> Result<Result<(), Refusal>, WireError> {
    let (mut ready, mut everywhere) = (0, true);
    let mut count = |endpoint: &Endpoint| {
        if is_ready(endpoint) {
            ready += 1;
            everywhere &= endpoint.zone.is_some();
        }
    };
    for held in &packed.unchanged {
        held.endpoints()?.iter().for_each(|(endpoint, _)| count(endpoint));
    }
    packed.to_write().for_each(count);
    let shares = match capacity.shares(ready) {
        Ok(_) if !everywhere => return Ok(Err(Refusal::NoZone)),
        Ok(shares) => shares,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut allotted: BTreeMap<Str, usize> = BTreeMap::new();
    packed.reopen(|held| keeps_shares(held, &shares, &mut allotted))?;
    for endpoint in packed.written() {
        endpoint.hints = None;
        if is_ready(endpoint)
            && let Some(zone) = endpoint.zone.clone()
        {
            *allotted.entry(zone.clone()).or_default() += 1;
            endpoint.hints = Some(Box::new(for_zone(zone)));
        }
    }
    let (mut giving, mut receiving) = exchange(&shares, &allotted);
    for endpoint in packed.written() {
        let Some(surplus) = hinted_zone(endpoint).and_then(|zone| giving.get_mut(zone)) else { continue };
        let neediest = receiving.iter_mut().filter(|(_, lacking)| **lacking > 0);
        if *surplus > 0
            && let Some((zone, lacking)) = neediest.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0)))
        {
            *surplus -= 1;
            *lacking -= 1;
            endpoint.hints = Some(Box::new(for_zone(zone.clone())));
        }
    }
    Ok(Ok(()))
}

fn for_zone(name: Str) -> EndpointHints {
    EndpointHints { for_zones: vec![ForZone { name }], for_nodes: Vec::new() }
}

/// Whether all ready endpoints of a slice are allotted, and no zone gets more than it may by it; counts them if so.
fn keeps_shares(
    held: &HeldSlice,
    shares: &BTreeMap<Str, Share>,
    allotted: &mut BTreeMap<Str, usize>,
) -> Result<bool, WireError> {
    let mut counted = allotted.clone();
    for (endpoint, _) in held.endpoints()?.iter().filter(|(endpoint, _)| is_ready(endpoint)) {
        let Some((zone, share)) = hinted_zone(endpoint).and_then(|zone| shares.get_key_value(zone)) else {
            return Ok(false);
        };
        let count = counted.entry(zone.clone()).or_default();
        *count += 1;
        if *count > share.maximum {
            return Ok(false);
        }
    }
    *allotted = counted;
    Ok(true)
}

/// How many endpoints each zone gives and gets, so that all come as near to their shares as whole endpoints do. A zone
/// whose endpoints are allotted elsewhere counts for nothing and gives them all.
fn exchange(
    shares: &BTreeMap<Str, Share>,
    allotted: &BTreeMap<Str, usize>,
) -> (BTreeMap<Str, usize>, BTreeMap<Str, usize>) {
    let (mut giving, mut receiving) = (BTreeMap::new(), BTreeMap::new());
    let zones = shares.keys().chain(allotted.keys().filter(|zone| !shares.contains_key(*zone)));
    let mut surplus: BTreeMap<&Str, f64> = zones
        .map(|zone| {
            let desired = shares.get(zone).map_or(0.0, |share| share.desired);
            (zone, allotted.get(zone).copied().unwrap_or(0) as f64 - desired)
        })
        .collect();
    loop {
        let most = surplus.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let least = surplus.iter().min_by(|a, b| a.1.total_cmp(b.1).then(a.0.cmp(b.0)));
        let (Some((giver, has)), Some((receiver, lacks))) = (most, least) else { break };
        // Whole endpoints only, and none for a zone that would have more than its share by it.
        if *has < 1.0 || *lacks > -0.5 {
            break;
        }
        let (giver, receiver) = (*giver, *receiver);
        *giving.entry(giver.clone()).or_default() += 1;
        *receiving.entry(receiver.clone()).or_default() += 1;
        surplus.entry(giver).and_modify(|has| *has -= 1.0);
        surplus.entry(receiver).and_modify(|lacks| *lacks += 1.0);
    }
    (giving, receiving)
}
