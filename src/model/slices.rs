//! EndpointSlices as the controllers that make them see them: what tells their ports and endpoints apart, and how one
//! that is there is written anew without losing what a newer server knows of it.
//!
//! Bytes and comparisons only: nothing here reads a store or decides what a slice should hold.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::discovery::{ENDPOINTS, Endpoint, EndpointPort, EndpointSlice};
use crate::api::meta::ObjectMeta;
use crate::wire::splice::{Edit, edit, put_bytes, retain_items};
use crate::wire::{Message, Str, WireError};

/// `EndpointSlice.ports`.
const PORTS: u32 = 3;

/// Fields of an endpoint.
const READY: [u32; 2] = [2, 1];
const SERVING: [u32; 2] = [2, 2];
const TERMINATING: [u32; 2] = [2, 3];
const TARGET_REF: u32 = 4;
const NODE_NAME: u32 = 6;
const ZONE: u32 = 7;
const HINTS: u32 = 8;

/// A slice that is there.
#[derive(Clone, Debug)]
pub struct Held {
    /// The slice.
    pub slice: Arc<EndpointSlice>,
    /// Its endpoints, each with its own encoding.
    pub endpoints: Vec<(Endpoint, Bytes)>,
}

impl Held {
    /// Reads the slice's endpoints.
    ///
    /// # Errors
    /// Its kept bytes are malformed.
    pub fn read(slice: Arc<EndpointSlice>) -> Result<Self, WireError> {
        let endpoints = slice.endpoints()?;
        Ok(Self { slice, endpoints })
    }

    /// Whether the slice belongs to this object, and not to an earlier one of its name.
    pub fn is_owned_by(&self, kind: &str, owner: &ObjectMeta) -> bool {
        let mut owners = self.slice.metadata.owner_references.iter();
        owners.any(|held| held.uid == owner.uid && held.kind == kind)
    }

    /// The slice with these ports and endpoints, after these edits of its metadata; all else in it is untouched.
    ///
    /// # Errors
    /// Its kept bytes are malformed.
    pub fn rewrite(
        &self,
        metadata: &[Edit],
        ports: &[EndpointPort],
        endpoints: impl IntoIterator<Item = Result<Bytes, WireError>>,
    ) -> Result<Vec<u8>, WireError> {
        let mut body = retain_items(&self.slice.raw, ENDPOINTS, |_| false)?;
        body = edit(&body, metadata)?;
        if self.slice.ports != ports {
            body = retain_items(&body, PORTS, |_| false)?;
            for port in ports {
                put_bytes(&mut body, PORTS, &port.to_bytes());
            }
        }
        for endpoint in endpoints {
            put_bytes(&mut body, ENDPOINTS, &endpoint?);
        }
        Ok(body)
    }
}

/// What tells one set of ports from another, whatever their order: name, protocol, number, application protocol.
pub type Ports = Vec<(Str, Str, i32, Str)>;

/// What tells these ports from others.
pub fn key_of(ports: &[EndpointPort]) -> Ports {
    let plain = |text: &Option<Str>| text.clone().unwrap_or_default();
    let port = |port: &EndpointPort| {
        (plain(&port.name), plain(&port.protocol), port.port.unwrap_or(0), plain(&port.app_protocol))
    };
    let mut key: Ports = ports.iter().map(port).collect();
    key.sort_unstable();
    key
}

/// By what an endpoint is known: namespace and name of its pod, addresses, hostname. All else may change in its place.
pub type Identity = (Str, Str, Vec<Str>, Str);

/// By what this endpoint is known.
pub fn identity(endpoint: &Endpoint) -> Identity {
    let (namespace, name) =
        endpoint.target_ref.as_ref().map(|pod| (pod.namespace.clone(), pod.name.clone())).unwrap_or_default();
    (namespace, name, endpoint.addresses.clone(), endpoint.hostname.clone().unwrap_or_default())
}

/// Whether an endpoint is as it should be, apart from its hints.
pub fn is_same(held: &Endpoint, wanted: &Endpoint) -> bool {
    let target = |endpoint: &Endpoint| {
        endpoint.target_ref.as_ref().map(|target| (target.kind.clone(), target.uid.clone()))
    };
    held.conditions == wanted.conditions
        && held.node_name == wanted.node_name
        && held.zone == wanted.zone
        && target(held) == target(wanted)
}

/// An endpoint's encoding: what we know of it as it should be, all else as it is held.
///
/// # Errors
/// What is held is malformed.
pub fn encode(wanted: &Endpoint, held: Option<&(Endpoint, Bytes)>) -> Result<Bytes, WireError> {
    let Some((held, bytes)) = held else {
        return Ok(wanted.to_bytes().into());
    };
    let mut edits = Vec::new();
    let conditions = [
        (READY, held.conditions.ready, wanted.conditions.ready),
        (SERVING, held.conditions.serving, wanted.conditions.serving),
        (TERMINATING, held.conditions.terminating, wanted.conditions.terminating),
    ];
    for (path, held, wanted) in conditions {
        if held != wanted {
            edits.push(match wanted {
                Some(value) => Edit::SetVarint(path.to_vec(), value.into()),
                None => Edit::Clear(path.to_vec()),
            });
        }
    }
    let texts = [(NODE_NAME, &held.node_name, &wanted.node_name), (ZONE, &held.zone, &wanted.zone)];
    for (field, held, wanted) in texts {
        if held != wanted {
            edits.push(set(field, wanted.as_ref().map(|text| text.as_bytes().to_vec())));
        }
    }
    if !is_same(held, wanted) && held.target_ref != wanted.target_ref {
        edits.push(set(TARGET_REF, wanted.target_ref.as_ref().map(|target| target.to_bytes())));
    }
    if held.hints != wanted.hints {
        edits.push(set(HINTS, wanted.hints.as_ref().map(|hints| hints.to_bytes())));
    }
    if edits.is_empty() { Ok(bytes.clone()) } else { edit(bytes, &edits).map(Into::into) }
}

fn set(field: u32, value: Option<Vec<u8>>) -> Edit {
    value.map_or_else(|| Edit::Clear(vec![field]), |value| Edit::SetBytes(vec![field], value))
}
