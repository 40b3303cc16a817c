//! What topology aware routing rests on (KEP-2433): how much CPU each zone has, and how many endpoints it may therefore
//! claim. Pure; the hints themselves are given by the plan.

use std::collections::BTreeMap;

use crate::api::core::{Node, Service};
use crate::api::discovery::{Endpoint, EndpointSlice};
use crate::wire::Str;

/// Label of a node: its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Nodes with one of these labels run the control plane and serve nobody.
const NOT_COUNTED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Annotations of a Service that ask for topology aware routing; the deprecated one wins.
const ANNOTATIONS: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// By how much more than its share of the load a zone's endpoints may get.
const OVERLOAD: f64 = 0.2;

/// Whether the Service asks for topology aware routing.
pub(super) fn is_auto(service: &Service) -> bool {
    mode(service).is_some_and(|mode| *mode == "Auto" || *mode == "auto")
}

/// Whether the Service says that it does not want topology aware routing.
pub(super) fn is_declined(service: &Service) -> bool {
    mode(service).is_some() && !is_auto(service)
}

fn mode(service: &Service) -> Option<&Str> {
    ANNOTATIONS.iter().find_map(|name| service.metadata.annotations.get(name))
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
    let cpu = node.status.allocatable.get("cpu").and_then(|amount| milli_cpus(amount));
    Some((zone(node), cpu.unwrap_or(0)))
}

/// Thousandths of a CPU, rounded up; `None` for what is not a quantity of CPUs. See "Quantity" in the Kubernetes API.
fn milli_cpus(amount: &str) -> Option<u64> {
    let digits = amount.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let scale = match &amount[digits.len()..] {
        "n" => 1e-6,
        "u" => 1e-3,
        "m" => 1.0,
        "" => 1e3,
        "k" => 1e6,
        "Ki" => 1024e3,
        _ => return None,
    };
    let milli = (digits.parse::<f64>().ok()? * scale).ceil();
    (0.0..=1e15).contains(&milli).then_some(milli as u64)
}

/// The CPUs of the zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Thousandths of a CPU by zone; none at all where it is not known or there is but one zone, so that no share can
    /// be told.
    zones: BTreeMap<Str, u64>,
}

/// How many endpoints a zone should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// As many as it needs not to be overloaded.
    pub(super) minimum: usize,
    /// As many as are left when all others have what they need.
    pub(super) maximum: usize,
    /// Its exact share, at least its minimum.
    pub(super) desired: f64,
}

/// Why no hints can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The capacity is not known.
    Nodes,
    /// There are fewer endpoints than zones.
    TooFew {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones.
        zones: usize,
    },
    /// No distribution keeps all zones from being overloaded.
    Overload {
        /// Ready endpoints.
        endpoints: usize,
        /// Zones.
        zones: usize,
    },
    /// There is an endpoint in no zone.
    NoZone,
}

impl std::fmt::Display for Refusal {
    /// As events show it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nodes => f.write_str(
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
            ),
            Self::TooFew { endpoints, zones } => {
                write!(f, "Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")
            }
            Self::Overload { endpoints, zones } => write!(
                f,
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 ({endpoints} endpoints, {zones} zones)"
            ),
            Self::NoZone => f.write_str("One or more endpoints do not have a zone specified"),
        }
    }
}

impl Capacity {
    /// The capacity of these nodes.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let mut zones: BTreeMap<Str, u64> = BTreeMap::new();
        for (zone, cpu) in nodes.filter_map(contribution) {
            if zone.is_empty() || cpu == 0 {
                return Self::default();
            }
            *zones.entry(zone).or_default() += cpu;
        }
        if zones.len() < 2 { Self::default() } else { Self { zones } }
    }

    /// Each zone's share of so many ready endpoints.
    pub(super) fn shares(&self, endpoints: usize) -> Result<BTreeMap<Str, Share>, Refusal> {
        let zones = self.zones.len();
        if zones == 0 {
            return Err(Refusal::Nodes);
        }
        if zones > endpoints {
            return Err(Refusal::TooFew { endpoints, zones });
        }
        let minima: Vec<usize> = self.zones.values().map(|cpu| self.minimum(*cpu, endpoints)).collect();
        let needed: usize = minima.iter().sum();
        if needed > endpoints {
            return Err(Refusal::Overload { endpoints, zones });
        }
        let share = |((zone, cpu), minimum): ((&Str, &u64), usize)| {
            let desired = self.exact(*cpu, endpoints).max(minimum as f64);
            (zone.clone(), Share { minimum, maximum: minimum + endpoints - needed, desired })
        };
        Ok(self.zones.iter().zip(minima).map(share).collect())
    }

    fn exact(&self, cpu: u64, endpoints: usize) -> f64 {
        cpu as f64 / self.zones.values().sum::<u64>() as f64 * endpoints as f64
    }

    fn minimum(&self, cpu: u64, endpoints: usize) -> usize {
        (self.exact(cpu, endpoints) / (1.0 + OVERLOAD)).ceil() as usize
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

/// Whether the hints of a Service's slices leave a zone with too few endpoints, by the capacity there is now. Slices
/// without hints overload nobody.
pub(super) fn is_overloaded<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    capacity: &Capacity,
) -> bool {
    let mut families: BTreeMap<&Str, BTreeMap<Str, usize>> = BTreeMap::new();
    for slice in slices {
        // One that can't be read is the plan's to report.
        for (endpoint, _) in slice.endpoints().unwrap_or_default() {
            if let Some(zone) = hinted_zone(&endpoint) {
                *families.entry(&slice.address_type).or_default().entry(zone.clone()).or_default() += 1;
            }
        }
    }
    families.values().any(|hinted| {
        let total = hinted.values().sum();
        let lacks = |(zone, cpu): (&Str, &u64)| {
            hinted.get(zone).copied().unwrap_or(0) < capacity.minimum(*cpu, total)
        };
        capacity.zones.is_empty() || capacity.zones.iter().any(lacks)
    })
}

#[cfg(test)]
mod tests {
    use super::milli_cpus;

    #[test]
    fn cpus_are_read_in_every_notation() {
        for (amount, milli) in [
            ("64", Some(64_000)),
            ("3920m", Some(3920)),
            ("0.5", Some(500)),
            ("1500u", Some(2)),
            ("100n", Some(1)),
            ("2k", Some(2_000_000)),
            ("1Ki", Some(1_024_000)),
            ("0", Some(0)),
            ("", None),
            ("many", None),
            ("-1", None),
        ] {
            assert_eq!(milli_cpus(amount), milli, "{amount}");
        }
    }
}
