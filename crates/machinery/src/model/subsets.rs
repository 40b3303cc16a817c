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
use std::mem::take;

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

/// Ports that addresses have together, as a [`Packer`] numbers them.
#[derive(Clone, Copy, Debug)]
pub struct PortSet(usize);

/// Collects addresses with their ports, and packs them. Addresses with the same ports share one set of ports, so that `n` addresses with
/// `m` ports take `n + m` places, not their product.
#[derive(Debug, Default)]
pub struct Packer {
    /// Each address as it came first, and its number.
    addresses: BTreeMap<AddressIdentity, (EndpointAddress, usize)>,
    /// Each port with what tells it from its equals, and its number.
    ports: BTreeMap<(PortIdentity, usize), usize>,
    /// Each set of ports by their numbers in ascending order, and its own number. The empty set is that of addresses without ports.
    sets: BTreeMap<Vec<usize>, usize>,
    /// By the number of a set, the numbers of its addresses, and whether each is ready. An address can occur twice.
    members: Vec<Vec<(usize, bool)>>,
    /// Subsets that were added.
    subsets: usize,
}

impl Packer {
    /// Returns the set of these ports, for [`Packer::add`]. The empty set is that of addresses without ports.
    pub fn ports<'a>(&mut self, ports: impl IntoIterator<Item = &'a EndpointPort>) -> PortSet {
        self.ports_from(ports, 0)
    }

    /// Returns the set of these ports. A port with an application protocol is another one in each `origin`.
    fn ports_from<'a>(
        &mut self,
        ports: impl IntoIterator<Item = &'a EndpointPort>,
        origin: usize,
    ) -> PortSet {
        let mut numbers = Vec::new();
        for port in ports {
            let origin = if port.app_protocol.is_some() { origin } else { 0 };
            let known = self.ports.len();
            numbers.push(*self.ports.entry((port_identity(port), origin)).or_insert(known));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let known = self.members.len();
        let set = *self.sets.entry(numbers).or_insert(known);
        if set == known {
            self.members.push(Vec::new());
        }
        PortSet(set)
    }

    /// Adds an address that has these ports of this packer. What is ready and not ready at the same port is not ready.
    pub fn add(&mut self, address: &EndpointAddress, ports: PortSet, ready: bool) {
        let known = self.addresses.len();
        let number = self.addresses.entry(identity(address)).or_insert_with(|| (address.clone(), known)).1;
        if let Some(members) = self.members.get_mut(ports.0) {
            members.push((number, ready));
        }
    }

    /// All addresses of a subset that is there.
    pub fn add_subset(&mut self, subset: &EncodedSubset) {
        self.subsets += 1;
        let ports = self.ports_from(subset.ports.iter().map(|(port, _)| port), self.subsets);
        for ((address, _), ready) in subset.addresses() {
            self.add(address, ports, ready);
        }
    }

    /// The subsets.
    pub fn pack(self) -> Vec<Subset> {
        self.pack_within(usize::MAX).unwrap_or_default()
    }

    /// Returns the subsets; `None` if that takes looks at more than `most` members of sets. Ports that are in the same sets cause one look
    /// at each member of these sets.
    fn pack_within(self, most: usize) -> Option<Vec<Subset>> {
        // In the order of their identities, which is that of the addresses in a subset.
        let (addresses, numbers): (Vec<EndpointAddress>, Vec<usize>) = self.addresses.into_values().unzip();
        let mut ranks = vec![0; numbers.len()];
        for (rank, number) in numbers.into_iter().enumerate() {
            ranks[number] = rank;
        }
        let mut sets_of_ports = vec![Vec::new(); self.ports.len()];
        for (ports, set) in &self.sets {
            for port in ports {
                sets_of_ports[*port].push(*set);
            }
        }
        // Ports of the same sets have the same addresses. The lists are in the same order for all ports, so that equal ones are equal sets.
        let mut choices: BTreeMap<Vec<usize>, Vec<PortIdentity>> = BTreeMap::new();
        for ((port, _), number) in self.ports {
            choices.entry(take(&mut sets_of_ports[number])).or_default().push(port);
        }
        if let Some(without_ports) = self.sets.get::<[usize]>(&[]) {
            choices.insert(vec![*without_ports], Vec::new());
        }
        // Ports of different sets may have the same addresses all the same.
        let mut groups: BTreeMap<Members, Vec<PortIdentity>> = BTreeMap::new();
        let mut looked_at = 0;
        for (sets, ports) in choices {
            looked_at += sets.iter().map(|set| self.members[*set].len()).sum::<usize>();
            if looked_at > most {
                return None;
            }
            let members = sets.iter().flat_map(|set| &self.members[*set]);
            let mut members: Vec<(usize, bool)> =
                members.map(|(number, ready)| (ranks[*number], *ready)).collect();
            // Of an address that is both, the state that is not ready is the first.
            members.sort_unstable();
            members.dedup_by_key(|(rank, _)| *rank);
            if !members.is_empty() {
                // Where nothing is known of ports is a statement of its own.
                groups.entry((ports.is_empty(), members)).or_default().extend(ports);
            }
        }
        let mut subsets: Vec<Subset> = groups
            .into_iter()
            .map(|((_, members), mut ports)| {
                let of = |wanted: bool| {
                    let chosen = members.iter().filter(move |(_, ready)| *ready == wanted);
                    chosen.map(|(rank, _)| addresses[*rank].clone()).collect()
                };
                ports.sort_unstable();
                Subset {
                    ports: ports.into_iter().map(port_of).collect(),
                    ready: of(true),
                    not_ready: of(false),
                }
            })
            .collect();
        subsets.sort_by_cached_key(|subset| subset.ports.iter().map(port_identity).collect::<Vec<_>>());
        Some(subsets)
    }
}

/// Whether it is about addresses without ports; which addresses, by the order of their identities, and whether they are ready.
type Members = (bool, Vec<(usize, bool)>);

/// The port with this identity.
fn port_of((name, protocol, port, app_protocol): PortIdentity) -> EndpointPort {
    EndpointPort { name, port, protocol, app_protocol }
}

/// Maximum number of members of port sets that [`repack`] looks at. An object of 1.5 MiB lists at most 140,000 addresses, and each is
/// looked at once if no port is in two of its subsets.
pub const MOST_MEMBERS: usize = 250_000;

/// Returns the canonical form of subsets that are there; `None` if it takes looks at more than [`MOST_MEMBERS`] members of port sets. That
/// is so only if many ports have many addresses in common, and each port has another address in addition: the canonical form can take
/// gigabytes then. The original has no limit. Differs: entangled-subsets
pub fn repack(subsets: &[EncodedSubset]) -> Option<Vec<Subset>> {
    let mut packer = Packer::default();
    for subset in subsets {
        packer.add_subset(subset);
    }
    packer.pack_within(MOST_MEMBERS)
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
