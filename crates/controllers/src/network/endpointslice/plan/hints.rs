//! Who should use which endpoint: by the Service's traffic distribution (KEP-4444, KEP-3015), or by its zones' capacity
//! (KEP-2433).
//!
//! Only endpoints that take new traffic carry hints. A slice whose hints are right is not written.

use std::collections::BTreeMap;

use super::super::topology::{Capacity, Mode, hinted_zone, is_ready};
use super::super::view::View;
use super::allotment::{Allotment, Refusal};
use super::event;
use super::packing::Packed;
use coxswain_machinery::api::discovery::{Endpoint, EndpointHints, ForNode, ForZone};
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::wire::{Str, WireError};

/// The reason of an event that is emitted when hints are given for the first time.
pub(super) const ENABLED: &str = "TopologyAwareHintsEnabled";
/// The reason of an event that is emitted at every reconcile, as by kube-controller-manager: it says why there are no hints.
pub(super) const DISABLED: &str = "TopologyAwareHintsDisabled";

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
        let declined = preference == Preference::None && Mode::of(service) == Mode::Other;
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

/// The Service's traffic distribution, if it is one, and no topology mode takes its place.
pub(in super::super) fn distribution_in_force(view: &View) -> Option<&Str> {
    let is_in_force = view.capacity.is_none() && preference(view) != Preference::None;
    view.service.spec.traffic_distribution.as_ref().filter(|_| is_in_force)
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

/// Allots every ready endpoint to a zone: to its own as far as other zones get their parts. Slices whose hints leave every
/// zone what it needs stay as they are.
fn by_capacity(capacity: &Capacity, packed: &mut Packed<'_>) -> Result<Result<(), Refusal>, WireError> {
    // Ready endpoints, and those among them that are in no zone.
    let (mut ready, mut zoneless) = (0, 0);
    let mut count = |endpoint: &Endpoint| {
        ready += usize::from(is_ready(endpoint));
        zoneless += usize::from(is_ready(endpoint) && endpoint.zone.is_none());
    };
    for held in &packed.unchanged {
        held.endpoints()?.iter().for_each(|(endpoint, _)| count(endpoint));
    }
    packed.to_write().for_each(count);
    let mut allotment = match Allotment::new(capacity, ready) {
        Ok(allotment) if zoneless == 0 => allotment,
        Ok(_) => return Ok(Err(Refusal::NoZone)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    packed.reopen(|held| Ok(hinted_zones(held)?.is_some_and(|zones| allotment.admit(&zones))))?;
    let own_zone = |endpoint: &Endpoint| endpoint.zone.clone().filter(|_| is_ready(endpoint));
    packed.to_write().filter_map(own_zone).for_each(|zone| allotment.enter(&zone, 1));
    let mut transfers = allotment.transfers();
    for endpoint in packed.written() {
        let zone = own_zone(endpoint).map(|own| transfers.next(&own).unwrap_or(own));
        endpoint.hints = zone
            .map(|name| Box::new(EndpointHints { for_zones: vec![ForZone { name }], for_nodes: Vec::new() }));
    }
    Ok(Ok(()))
}

/// To which zones the ready endpoints of a slice are allotted, and how many to each; `None` if not all are.
fn hinted_zones(held: &HeldSlice) -> Result<Option<BTreeMap<Str, usize>>, WireError> {
    let mut zones = BTreeMap::new();
    for (endpoint, _) in held.endpoints()?.iter().filter(|(endpoint, _)| is_ready(endpoint)) {
        let Some(zone) = hinted_zone(endpoint) else { return Ok(None) };
        *zones.entry(zone.clone()).or_default() += 1;
    }
    Ok(Some(zones))
}
