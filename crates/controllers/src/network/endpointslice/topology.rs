//! What topology aware routing rests on (KEP-2433): whether a Service asks for it, which part of the CPUs each zone has,
//! and how many endpoints it needs for its part of the load. Pure; who gets which endpoint is the plan's.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::discovery::{Endpoint, EndpointSlice};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::wire::Str;

/// Label of a node: its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Nodes with one of these labels run the control plane and serve nobody.
const NOT_COUNTED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Annotations of a Service that ask for topology aware routing; the deprecated one wins.
const ANNOTATIONS: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// By how much more than its share of the load an endpoint may get.
const OVERLOAD: f64 = 0.2;

/// What a Service says about topology aware routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing.
    Unset,
    /// It asks for it.
    Auto,
    /// It asks for something else, which is taken as a no.
    Other,
}

impl Mode {
    /// What this Service says.
    pub(super) fn of(service: &Service) -> Self {
        match ANNOTATIONS.iter().find_map(|name| service.metadata.annotations.get(name)).map(Str::as_str) {
            None => Self::Unset,
            Some("Auto" | "auto") => Self::Auto,
            Some(_) => Self::Other,
        }
    }
}

/// The zone of a node; empty if it has none.
pub(super) fn zone(node: &Node) -> Str {
    node.metadata.labels.get(ZONE).cloned().unwrap_or_default()
}

/// What a node adds to the capacity: its zone and thousandths of a CPU; `None` if it does not count. A node that counts
/// and lacks either makes the capacity unknown.
pub(super) fn contribution(node: &Node) -> Option<(Str, u64)> {
    let labels = &node.metadata.labels;
    if !node.is_ready() || NOT_COUNTED.iter().any(|label| labels.contains_key(label)) {
        return None;
    }
    let cpu = node.status.allocatable.get("cpu").and_then(|amount| amount.parse::<Quantity>().ok());
    Some((zone(node), cpu.map_or(0, Quantity::thousandths)))
}

/// Which part of all CPUs is in which zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// By name. None at all where it is not known or there is but one zone, so that there is nothing to choose.
    zones: Vec<(Str, f64)>,
}

/// The capacity of all nodes. It is computed when it is asked for after a change of a node that counts, and not for each Service: with 15,000
/// nodes that takes 5 ms.
pub(super) struct KnownCapacity {
    nodes: Lister<Node>,
    held: Mutex<Option<Arc<Capacity>>>,
}

impl KnownCapacity {
    /// The capacity of these nodes; changes of them are to be told by [`forget`](Self::forget).
    pub(super) fn new(nodes: Lister<Node>) -> Self {
        Self { nodes, held: Mutex::default() }
    }

    /// The capacity as of the last change.
    pub(super) fn get(&self) -> Arc<Capacity> {
        let mut held = self.held.lock();
        let compute = || Arc::new(Capacity::of(self.nodes.list().iter().map(AsRef::as_ref)));
        Arc::clone(held.get_or_insert_with(compute))
    }

    /// What a node contributes has changed.
    pub(super) fn forget(&self) {
        *self.held.lock() = None;
    }
}

/// How many of a Service's endpoints a zone should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Need {
    /// Its part of them, by its CPUs.
    pub(super) part: f64,
    /// As many as keep them from being overloaded by its part of the load.
    pub(super) least: usize,
}

impl Capacity {
    /// The capacity of these nodes.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let counted: Vec<(Str, u64)> = nodes.filter_map(contribution).collect();
        let is_known = counted.iter().all(|(zone, cpu)| !zone.is_empty() && *cpu > 0);
        if is_known { Self::of_zones(counted.into_iter()) } else { Self::default() }
    }

    /// The capacity of these zones, which may be named more than once, with these thousandths of CPUs.
    pub(super) fn of_zones(counted: impl Iterator<Item = (Str, u64)>) -> Self {
        let mut zones: BTreeMap<Str, f64> = BTreeMap::new();
        for (zone, cpu) in counted {
            *zones.entry(zone).or_default() += cpu as f64;
        }
        if zones.len() < 2 {
            return Self::default();
        }
        let all: f64 = zones.values().sum();
        Self { zones: zones.into_iter().map(|(zone, cpu)| (zone, cpu / all)).collect() }
    }

    /// How many zones there are; 0 if that is not known.
    pub(super) fn zones(&self) -> usize {
        self.zones.len()
    }

    /// What each zone needs of so many endpoints.
    pub(super) fn needs(&self, endpoints: usize) -> impl Iterator<Item = (&Str, Need)> {
        self.zones.iter().map(move |(zone, part)| {
            let part = part * endpoints as f64;
            (zone, Need { part, least: (part / (1.0 + OVERLOAD)).ceil() as usize })
        })
    }
}

/// Whether an endpoint takes new traffic.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.ready == Some(true)
}

/// The zone whose clients an endpoint is meant for.
pub(super) fn hinted_zone(endpoint: &Endpoint) -> Option<&Str> {
    endpoint.hints.as_ref()?.for_zones.first().map(|zone| &zone.name)
}

/// Whether the hints of a Service's slices leave a zone with too few endpoints of a family, by the capacity there is now.
/// Slices without hints overload nobody.
pub(super) fn is_overloaded<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    capacity: &Capacity,
) -> bool {
    let mut families: BTreeMap<&Str, BTreeMap<Str, usize>> = BTreeMap::new();
    for slice in slices {
        let hinted = families.entry(&slice.address_type).or_default();
        // One that can't be read is the plan's to report.
        let endpoints = slice.endpoints().unwrap_or_default();
        for zone in endpoints.iter().filter_map(|(endpoint, _)| hinted_zone(endpoint)) {
            *hinted.entry(zone.clone()).or_default() += 1;
        }
    }
    families.values().filter(|hinted| !hinted.is_empty()).any(|hinted| {
        let has = |zone: &Str| hinted.get(zone).copied().unwrap_or_default();
        let mut needs = capacity.needs(hinted.values().sum());
        capacity.zones() == 0 || needs.any(|(zone, need)| has(zone) < need.least)
    })
}
