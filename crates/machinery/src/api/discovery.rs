//! `discovery/v1`, trimmed. EndpointSlices are rewritten, so their bytes are kept in `raw`; their endpoints, of which a
//! large service has thousands, are in these bytes only, see [`EndpointSlice::endpoints`].

use bytes::Bytes;

use super::core::ObjectReference;
use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Message, Reader, Str, WireError, field, message};

const DISCOVERY: ApiVersion = ApiVersion { group: "discovery.k8s.io", version: "v1" };

kinds! {
    /// EndpointSlices.
    ENDPOINT_SLICES = DISCOVERY
        .namespaced::<EndpointSlice>("EndpointSlice", "endpointslices");
}

objects! {
    EndpointSlice + raw;
}

message! {
    schema SCHEMA;

    /// Endpoints of one service and address type that have the same ports.
    pub struct EndpointSlice + raw = "k8s.io.api.discovery.v1.EndpointSlice" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Ports that every endpoint has.
        3 => ports: Vec<EndpointPort>,
        /// `IPv4`, `IPv6` or `FQDN`.
        4 => address_type: Str [interned],
    } + named {
        2 => endpoints as Endpoint,
    }

    /// One endpoint: where a service is served.
    pub struct Endpoint = "k8s.io.api.discovery.v1.Endpoint" {
        /// Its addresses, mostly one.
        1 => addresses: Vec<Str>,
        /// What it is fit for.
        2 => conditions: EndpointConditions,
        /// Hostname under which DNS knows it.
        3 => hostname: Option<Str>,
        /// The object behind it.
        4 => target_ref: Option<Box<ObjectReference>>,
        /// Node that it is on.
        6 => node_name: Option<Str> [interned],
        /// Zone that it is in.
        7 => zone: Option<Str> [interned],
        /// Who should use it.
        8 => hints: Option<Box<EndpointHints>>,
    }

    /// What an endpoint is fit for.
    pub struct EndpointConditions = "k8s.io.api.discovery.v1.EndpointConditions" {
        /// Whether new traffic may go there.
        1 => ready: Option<bool>,
        /// Whether it answers, terminating or not.
        2 => serving: Option<bool>,
        /// Whether it is going away.
        3 => terminating: Option<bool>,
    }

    /// Who should use an endpoint.
    pub struct EndpointHints = "k8s.io.api.discovery.v1.EndpointHints" {
        /// Clients in these zones.
        1 => for_zones: Vec<ForZone>,
        /// Clients on these nodes.
        2 => for_nodes: Vec<ForNode>,
    }

    /// A zone for which an endpoint is meant.
    pub struct ForZone = "k8s.io.api.discovery.v1.ForZone" {
        /// Name of the zone.
        1 => name: Str [interned],
    }

    /// A node for which an endpoint is meant.
    pub struct ForNode = "k8s.io.api.discovery.v1.ForNode" {
        /// Name of the node.
        1 => name: Str [interned],
    }

    /// A port of all endpoints of a slice.
    pub struct EndpointPort = "k8s.io.api.discovery.v1.EndpointPort" {
        /// Name of the service's port.
        1 => name: Option<Str> [interned],
        /// `TCP`, `UDP` or `SCTP`.
        2 => protocol: Option<Str> [interned],
        /// Number.
        3 => port: Option<i32>,
        /// What is spoken there.
        4 => app_protocol: Option<Str> [interned],
    }
}

/// `EndpointSlice.endpoints`.
pub const ENDPOINTS: u32 = field!(EndpointSlice, endpoints);

impl EndpointSlice {
    /// Its endpoints, each with its own encoding, which may hold more than we know.
    ///
    /// # Errors
    /// The kept bytes are malformed.
    pub fn endpoints(&self) -> Result<Vec<(Endpoint, Bytes)>, WireError> {
        let mut endpoints = Vec::new();
        let mut fields = Reader::new(&self.raw);
        while let Some((number, value)) = fields.next_field()? {
            if number == ENDPOINTS {
                let bytes = self.raw.slice_ref(value.bytes()?);
                endpoints.push((Endpoint::decode(&bytes)?, bytes));
            }
        }
        Ok(endpoints)
    }
}
