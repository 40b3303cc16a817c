//! EndpointSlices as the controllers that make them see them: what tells their ports and endpoints apart, and how one
//! that is there is written anew without losing what a newer server knows of it.
//!
//! Bytes and comparisons only: nothing here reads a store or decides what a slice should hold.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::api::Kind;
use crate::api::discovery::{ENDPOINTS, Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use crate::api::meta::ObjectMeta;
use crate::wire::splice::{Edit, edit, put_bytes, retain_items};
use crate::wire::text::raw_bytes;
use crate::wire::{Message, Path, Reader, Str, WireError, field, path};

const PORTS: u32 = field!(EndpointSlice, ports);

/// Fields of an endpoint.
const ADDRESSES: u32 = field!(Endpoint, addresses);
const CONDITIONS: u32 = field!(Endpoint, conditions);
const HOSTNAME: u32 = field!(Endpoint, hostname);
const TARGET_REF: u32 = field!(Endpoint, targetRef);
const NODE_NAME: u32 = field!(Endpoint, nodeName);
const ZONE: u32 = field!(Endpoint, zone);
const HINTS: u32 = field!(Endpoint, hints);

/// A slice that is there. Most look at it without wanting to change it, so its endpoints are seen as they are encoded, and
/// decoded only when someone asks for them.
#[derive(Clone, Debug)]
pub struct HeldSlice {
    /// The slice.
    pub slice: Arc<EndpointSlice>,
    /// How many endpoints it has.
    pub len: usize,
    /// Whether any of them says who should use it.
    pub is_hinted: bool,
    endpoints: OnceLock<Vec<(Endpoint, Bytes)>>,
}

impl HeldSlice {
    /// Counts the slice's endpoints, and looks for hints.
    ///
    /// # Errors
    /// Its kept bytes are malformed.
    pub fn read(slice: Arc<EndpointSlice>) -> Result<Self, WireError> {
        let (mut len, mut is_hinted) = (0, false);
        let mut fields = Reader::new(&slice.raw);
        while let Some((number, value)) = fields.next_field()? {
            if number == ENDPOINTS {
                len += 1;
                let mut endpoint = Reader::new(value.bytes()?);
                while let Some((number, _)) = endpoint.next_field()? {
                    is_hinted |= number == HINTS;
                }
            }
        }
        Ok(Self { slice, len, is_hinted, endpoints: OnceLock::new() })
    }

    /// Whether it has no endpoints.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its endpoints as they are encoded, in their order.
    pub fn seen(&self) -> impl Iterator<Item = Result<EncodedEndpoint<'_>, WireError>> {
        let mut fields = Reader::new(&self.slice.raw);
        std::iter::from_fn(move || {
            loop {
                match fields.next_field() {
                    Ok(Some((ENDPOINTS, value))) => {
                        return Some(value.bytes().and_then(EncodedEndpoint::read));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }

    /// Its endpoints, each with its own encoding.
    ///
    /// # Errors
    /// Its kept bytes are malformed.
    pub fn endpoints(&self) -> Result<&[(Endpoint, Bytes)], WireError> {
        if let Some(endpoints) = self.endpoints.get() {
            return Ok(endpoints);
        }
        let endpoints = self.slice.endpoints()?;
        Ok(self.endpoints.get_or_init(|| endpoints))
    }

    /// Whether the slice belongs to this object, and not to an earlier one of its name.
    pub fn is_owned_by(&self, kind: &Kind, owner: &ObjectMeta) -> bool {
        let api_version = kind.api_version();
        let mut owners = self.slice.metadata.owner_references.iter();
        owners.any(|held| held.uid == owner.uid && held.kind == kind.kind && held.api_version == *api_version)
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

/// An endpoint as it is encoded: read in place, with nothing allocated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedEndpoint<'a> {
    /// Its addresses, mostly one.
    pub addresses: SmallVec<[Cow<'a, str>; 1]>,
    /// What it is fit for.
    pub conditions: EndpointConditions,
    /// Hostname under which DNS knows it.
    pub hostname: Option<Cow<'a, str>>,
    /// The object behind it.
    pub target: Option<Target<'a>>,
    /// Node that it is on.
    pub node_name: Option<Cow<'a, str>>,
    /// Zone that it is in.
    pub zone: Option<Cow<'a, str>>,
}

/// The object behind an endpoint, as it is encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its kind.
    pub kind: Cow<'a, str>,
    /// Its namespace.
    pub namespace: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its UID.
    pub uid: Cow<'a, str>,
}

impl<'a> EncodedEndpoint<'a> {
    fn read(endpoint: &'a [u8]) -> Result<Self, WireError> {
        let mut seen = Self::default();
        let mut fields = Reader::new(endpoint);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                ADDRESSES => seen.addresses.push(value.text()?),
                CONDITIONS => seen.conditions = conditions(value.bytes()?)?,
                HOSTNAME => seen.hostname = Some(value.text()?),
                TARGET_REF => seen.target = Some(Target::read(value.bytes()?)?),
                NODE_NAME => seen.node_name = Some(value.text()?),
                ZONE => seen.zone = Some(value.text()?),
                _ => {}
            }
        }
        Ok(seen)
    }
}

fn conditions(encoded: &[u8]) -> Result<EndpointConditions, WireError> {
    let mut conditions = EndpointConditions::default();
    let mut fields = Reader::new(encoded);
    while let Some((number, value)) = fields.next_field()? {
        let condition = match number {
            1 => &mut conditions.ready,
            2 => &mut conditions.serving,
            3 => &mut conditions.terminating,
            _ => continue,
        };
        *condition = Some(value.varint()? != 0);
    }
    Ok(conditions)
}

impl<'a> Target<'a> {
    fn read(reference: &'a [u8]) -> Result<Self, WireError> {
        let mut target = Self::default();
        let mut fields = Reader::new(reference);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => target.kind = value.text()?,
                2 => target.namespace = value.text()?,
                3 => target.name = value.text()?,
                4 => target.uid = value.text()?,
                _ => {}
            }
        }
        Ok(target)
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
pub type EndpointIdentity = (Str, Str, Vec<Str>, Str);

/// By what this endpoint is known.
pub fn identity(endpoint: &Endpoint) -> EndpointIdentity {
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
        (path!(Endpoint, conditions.ready), held.conditions.ready, wanted.conditions.ready),
        (path!(Endpoint, conditions.serving), held.conditions.serving, wanted.conditions.serving),
        (path!(Endpoint, conditions.terminating), held.conditions.terminating, wanted.conditions.terminating),
    ];
    for (path, held, wanted) in conditions {
        if held != wanted {
            edits.push(match wanted {
                Some(value) => Edit::SetVarint(path, value.into()),
                None => Edit::Clear(path),
            });
        }
    }
    let texts = [
        (path!(Endpoint, nodeName), &held.node_name, &wanted.node_name),
        (path!(Endpoint, zone), &held.zone, &wanted.zone),
    ];
    for (path, held, wanted) in texts {
        if held != wanted {
            edits.push(set(path, wanted.as_ref().map(|text| raw_bytes(text).into_owned())));
        }
    }
    if !is_same(held, wanted) && held.target_ref != wanted.target_ref {
        edits.push(set(
            path!(Endpoint, targetRef),
            wanted.target_ref.as_ref().map(|target| target.to_bytes()),
        ));
    }
    if held.hints != wanted.hints {
        edits.push(set(path!(Endpoint, hints), wanted.hints.as_ref().map(|hints| hints.to_bytes())));
    }
    if edits.is_empty() { Ok(bytes.clone()) } else { edit(bytes, &edits).map(Into::into) }
}

fn set(path: Path, value: Option<Vec<u8>>) -> Edit {
    value.map_or_else(|| Edit::Clear(path), |value| Edit::SetBytes(path, value))
}
