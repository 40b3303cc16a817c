//! `core/v1` Endpoints, trimmed. They are rewritten, so their bytes are kept in `raw`; their addresses, of which a large
//! service has a thousand, are in these bytes only, see [`Endpoints::subsets`].

use bytes::Bytes;

use super::core::ObjectReference;
use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Message, Reader, Str, WireError, field, message};

kinds! {
    /// Endpoints.
    ENDPOINTS = ApiVersion::CORE.namespaced::<Endpoints>("Endpoints", "endpoints");
}

objects! {
    Endpoints + raw;
}

message! {
    schema SCHEMA;

    /// Where a service is served, all in one object. Superseded by `EndpointSlice`.
    pub struct Endpoints + raw = "k8s.io.api.core.v1.Endpoints" {
        /// Metadata.
        1 => metadata: ObjectMeta,
    } + named {
        2 => subsets as EndpointSubset,
    }

    /// Addresses that have the same ports. It is taken apart by hand, see [`EncodedSubset`].
    pub struct EndpointSubset = "k8s.io.api.core.v1.EndpointSubset" {
    } + named {
        1 => addresses as EndpointAddress,
        2 => not_ready_addresses as EndpointAddress,
        3 => ports as EndpointPort,
    }

    /// One address.
    pub struct EndpointAddress = "k8s.io.api.core.v1.EndpointAddress" {
        /// The IP address.
        1 => ip: Str,
        /// The object behind it.
        2 => target_ref: Option<Box<ObjectReference>>,
        /// Hostname under which DNS knows it.
        3 => hostname: Str,
        /// Node that it is on.
        4 => node_name: Option<Str> [interned],
    }

    /// A port that all addresses of a subset have.
    pub struct EndpointPort = "k8s.io.api.core.v1.EndpointPort" {
        /// Name of the service's port.
        1 => name: Str [interned],
        /// Number.
        2 => port: i32,
        /// `TCP`, `UDP` or `SCTP`.
        3 => protocol: Str [interned],
        /// What is spoken there.
        4 => app_protocol: Option<Str> [interned],
    }
}

/// `Endpoints.subsets`.
pub const SUBSETS: u32 = field!(Endpoints, subsets);
/// `EndpointSubset.addresses`.
pub const READY: u32 = field!(EndpointSubset, addresses);
/// `EndpointSubset.notReadyAddresses`.
pub const NOT_READY: u32 = field!(EndpointSubset, notReadyAddresses);
/// `EndpointSubset.ports`.
pub const PORTS: u32 = field!(EndpointSubset, ports);

/// Addresses that have the same ports, each with its own encoding, which may hold more than we know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedSubset {
    /// Addresses that take traffic.
    pub ready: Vec<(EndpointAddress, Bytes)>,
    /// Addresses that do not.
    pub not_ready: Vec<(EndpointAddress, Bytes)>,
    /// Their ports.
    pub ports: Vec<(EndpointPort, Bytes)>,
    /// All else, encoded.
    pub rest: Vec<u8>,
}

impl Endpoints {
    /// Their subsets.
    ///
    /// # Errors
    /// The kept bytes are malformed.
    pub fn subsets(&self) -> Result<Vec<EncodedSubset>, WireError> {
        let mut subsets = Vec::new();
        let mut fields = Reader::new(&self.raw);
        while let Some((number, value)) = fields.next_field()? {
            if number == SUBSETS {
                subsets.push(EncodedSubset::read(&self.raw.slice_ref(value.bytes()?))?);
            }
        }
        Ok(subsets)
    }
}

impl EncodedSubset {
    fn read(encoded: &Bytes) -> Result<Self, WireError> {
        let mut subset = Self::default();
        let mut fields = Reader::new(encoded);
        while let Some((number, value, raw)) = fields.next_raw()? {
            match number {
                READY => subset.ready.push(item(encoded, value.bytes()?)?),
                NOT_READY => subset.not_ready.push(item(encoded, value.bytes()?)?),
                PORTS => subset.ports.push(item(encoded, value.bytes()?)?),
                _ => subset.rest.extend_from_slice(raw),
            }
        }
        Ok(subset)
    }

    /// All addresses, and whether each takes traffic.
    pub fn addresses(&self) -> impl Iterator<Item = (&(EndpointAddress, Bytes), bool)> {
        let ready = self.ready.iter().map(|address| (address, true));
        ready.chain(self.not_ready.iter().map(|address| (address, false)))
    }
}

fn item<M: Message>(subset: &Bytes, item: &[u8]) -> Result<(M, Bytes), WireError> {
    let bytes = subset.slice_ref(item);
    Ok((M::decode(&bytes)?, bytes))
}

impl EndpointAddress {
    /// UID of the object behind it; empty if there is none.
    pub fn target_uid(&self) -> Str {
        self.target_ref.as_ref().map(|target| target.uid.clone()).unwrap_or_default()
    }
}
