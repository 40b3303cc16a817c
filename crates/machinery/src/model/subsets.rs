//! The canonical form of Endpoints' subsets.
//!
//! An `Endpoints` object says which addresses have which ports, grouped into subsets; the same can be said with many
//! groupings. In the canonical one every address is once with all ports that it has in the same state: ports that the
//! same addresses have, equally ready, are one subset. Subsets are in the order of their ports, ports in that of name,
//! protocol and number, addresses in that of their IPs as text and the UIDs of their pods.
//!
//! Two objects that say the same have the same canonical form. (The original's has the same subsets in another order: it
//! goes by hashes of its in-memory types. Differs: order-of-subsets.) But for one thing, which is the original's too, and by which it cuts slices: a
//! port with an application protocol is another port in every subset that names it. The canonical form names none twice,
//! unless what it was made from does.

use std::collections::BTreeMap;

use crate::api::endpoints::{EncodedSubset, EndpointAddress, EndpointPort};
use crate::wire::Str;

#[cfg(test)]
mod tests;

/// Addresses that have the same ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subset {
    /// The ports, by name, protocol and number; none if nothing is known of ports.
    pub ports: Vec<EndpointPort>,
    /// Addresses that take traffic.
    pub ready: Vec<EndpointAddress>,
    /// Addresses that do not.
    pub not_ready: Vec<EndpointAddress>,
}

impl Subset {
    /// How many addresses there are.
    pub fn len(&self) -> usize {
        self.ready.len() + self.not_ready.len()
    }

    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// By what an address is known: its IP, and the UID of the pod behind it, for pods may share their node's.
pub type AddressIdentity = (Str, Str);

/// By what this address is known.
pub fn identity(address: &EndpointAddress) -> AddressIdentity {
    (address.ip.clone(), address.target_uid())
}

/// What tells one port from another: name, protocol, number, application protocol.
pub type PortIdentity = (Str, Str, i32, Option<Str>);

/// By what this port is known.
pub fn port_identity(port: &EndpointPort) -> PortIdentity {
    (port.name.clone(), port.protocol.clone(), port.port, port.app_protocol.clone())
}

/// Collects addresses with their ports, and packs them.
#[derive(Debug, Default)]
pub struct Packer {
    /// Each address as it came first, and which it was.
    addresses: BTreeMap<AddressIdentity, (EndpointAddress, usize)>,
    /// Which addresses have this port, and whether they are ready; under `None` those without any. With the port goes what
    /// tells it from its equals.
    ports: BTreeMap<Option<(PortIdentity, usize)>, BTreeMap<usize, bool>>,
    /// Subsets that were added.
    subsets: usize,
}

impl Packer {
    /// An address that has this port, or none at all. What is ready and not ready at the same port is not ready.
    pub fn add(&mut self, address: &EndpointAddress, port: Option<&EndpointPort>, ready: bool) {
        self.enter(address, port.map(|port| (port_identity(port), 0)), ready);
    }

    fn enter(&mut self, address: &EndpointAddress, port: Option<(PortIdentity, usize)>, ready: bool) {
        let known = self.addresses.len();
        let number = self.addresses.entry(identity(address)).or_insert_with(|| (address.clone(), known)).1;
        let states = self.ports.entry(port).or_default();
        let state = states.entry(number).or_insert(ready);
        *state &= ready;
    }

    /// All addresses of a subset that is there.
    pub fn add_subset(&mut self, subset: &EncodedSubset) {
        self.subsets += 1;
        for ((address, _), ready) in subset.addresses() {
            if subset.ports.is_empty() {
                self.add(address, None, ready);
            }
            // Linear: each pair of an address and a port is packed.
            for (port, _) in &subset.ports {
                let origin = if port.app_protocol.is_some() { self.subsets } else { 0 };
                self.enter(address, Some((port_identity(port), origin)), ready);
            }
        }
    }

    /// The subsets.
    pub fn pack(self) -> Vec<Subset> {
        // In the order of their identities, which is that of the addresses in a subset.
        let addresses: Vec<(EndpointAddress, usize)> = self.addresses.into_values().collect();
        let mut groups: BTreeMap<Members, Vec<EndpointPort>> = BTreeMap::new();
        for (port, states) in self.ports {
            let members = addresses
                .iter()
                .enumerate()
                .filter_map(|(at, (_, number))| states.get(number).map(|ready| (at, *ready)))
                .collect();
            // Where nothing is known of ports is a statement of its own.
            let ports = groups.entry((port.is_none(), members)).or_default();
            ports.extend(port.map(|((name, protocol, port, app_protocol), _)| EndpointPort {
                name,
                port,
                protocol,
                app_protocol,
            }));
        }
        let mut subsets: Vec<Subset> = groups
            .into_iter()
            .map(|((_, members), ports)| {
                let of = |wanted: bool| {
                    let chosen = members.iter().filter(move |(_, ready)| *ready == wanted);
                    chosen.map(|(at, _)| addresses[*at].0.clone()).collect()
                };
                Subset { ports, ready: of(true), not_ready: of(false) }
            })
            .collect();
        subsets.sort_by_cached_key(|subset| subset.ports.iter().map(port_identity).collect::<Vec<_>>());
        subsets
    }
}

/// Whether it is about addresses without ports; which addresses, and whether they are ready.
type Members = (bool, Vec<(usize, bool)>);

/// The canonical form of subsets that are there.
pub fn repack(subsets: &[EncodedSubset]) -> Vec<Subset> {
    let mut packer = Packer::default();
    for subset in subsets {
        packer.add_subset(subset);
    }
    packer.pack()
}

/// Whether two addresses say the same. Of the object behind them the version does not count: an object changes in many
/// ways that concern nobody here.
pub fn is_same(held: &EndpointAddress, wanted: &EndpointAddress) -> bool {
    let target = |address: &EndpointAddress| {
        let target = address.target_ref.as_ref()?;
        Some((target.kind.clone(), target.namespace.clone(), target.name.clone(), target.uid.clone()))
    };
    (&held.ip, &held.hostname, &held.node_name) == (&wanted.ip, &wanted.hostname, &wanted.node_name)
        && target(held) == target(wanted)
}

/// Whether two canonical forms say the same.
pub fn are_same(held: &[Subset], wanted: &[Subset]) -> bool {
    let addresses = |held: &[EndpointAddress], wanted: &[EndpointAddress]| {
        held.len() == wanted.len() && held.iter().zip(wanted).all(|(held, wanted)| is_same(held, wanted))
    };
    held.len() == wanted.len()
        && held.iter().zip(wanted).all(|(held, wanted)| {
            held.ports == wanted.ports
                && addresses(&held.ready, &wanted.ready)
                && addresses(&held.not_ready, &wanted.not_ready)
        })
}
