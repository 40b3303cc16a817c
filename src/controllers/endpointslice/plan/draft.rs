//! How a slice is written: a new one from nothing, one that is there by splicing, so that nothing in it is lost.

use bytes::Bytes;

use super::super::view::Held;
use super::super::{MANAGED_BY, MANAGER};
use super::demand::is_headless;
use super::packing::{Draft, Placed};
use crate::api::core::Service;
use crate::api::discovery::{ENDPOINTS, Endpoint, EndpointSlice};
use crate::api::kinds::{SERVICE_NAME, SERVICES};
use crate::api::meta::ObjectMeta;
use crate::model::owners::controller_reference;
use crate::model::pods::generate_name;
use crate::wire::splice::{Edit, edit, put_bytes, retain_items};
use crate::wire::{Labels, Message, Str, Time, WireError};

/// Label of the slices of a headless Service.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation: when what this write tells of has happened, for measuring how long it took to be known.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Fields of a slice and of its metadata.
const PORTS: u32 = 3;
const LABELS: [u32; 2] = [1, 11];
const ANNOTATIONS: [u32; 2] = [1, 12];

/// Fields of an endpoint.
const READY: [u32; 2] = [2, 1];
const SERVING: [u32; 2] = [2, 2];
const TERMINATING: [u32; 2] = [2, 3];
const TARGET_REF: u32 = 4;
const NODE_NAME: u32 = 6;
const ZONE: u32 = 7;
const HINTS: u32 = 8;

/// Labels that say what a slice is, and are never taken from its Service.
const RESERVED: [&str; 3] = [SERVICE_NAME, MANAGED_BY, HEADLESS];

/// The labels of a Service's slices: its own, and what they are.
pub(super) fn labels(service: &Service) -> Labels {
    let own = unreserved(&service.metadata.labels);
    let headless = is_headless(service).then_some((HEADLESS, ""));
    let name = service.metadata.name.as_str();
    own.chain(headless).chain([(SERVICE_NAME, name), (MANAGED_BY, MANAGER)]).collect()
}

fn unreserved(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let all = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    all.filter(|(label, _)| !RESERVED.contains(label))
}

/// Whether the Service's own labels are no longer the slice's.
pub(super) fn is_relabelled(held: &Labels, wanted: &Labels) -> bool {
    !unreserved(held).eq(unreserved(wanted))
}

/// Whether an endpoint is as it should be, apart from its hints.
pub(super) fn is_same(held: &Endpoint, wanted: &Endpoint) -> bool {
    let target = |endpoint: &Endpoint| {
        endpoint.target_ref.as_ref().map(|target| (target.kind.clone(), target.uid.clone()))
    };
    held.conditions == wanted.conditions
        && held.node_name == wanted.node_name
        && held.zone == wanted.zone
        && target(held) == target(wanted)
}

/// Writes the slices of one Service.
pub(super) struct Author<'a> {
    pub(super) service: &'a Service,
    /// When what is written has happened; `None` when it is not told.
    pub(super) since: Option<Time>,
}

impl Author<'_> {
    /// A new slice.
    pub(super) fn create(&self, draft: &Draft<'_>) -> Vec<u8> {
        let owner = &self.service.metadata;
        let since = self.since.map(|since| (TRIGGER_TIME.into(), Str::from(since.to_string())));
        let metadata = ObjectMeta {
            generate_name: generate_name(&owner.name).into(),
            namespace: owner.namespace.clone(),
            labels: labels(self.service),
            annotations: since.into_iter().collect(),
            owner_references: vec![controller_reference(owner, &SERVICES)],
            ..ObjectMeta::default()
        };
        let slice = EndpointSlice {
            metadata,
            ports: draft.ports.clone(),
            address_type: draft.family.clone(),
            ..EndpointSlice::default()
        };
        let mut body = slice.to_bytes();
        for placed in &draft.endpoints {
            put_bytes(&mut body, ENDPOINTS, &placed.endpoint.to_bytes());
        }
        body
    }

    /// The slice with other endpoints, and with other ports where those are other.
    pub(super) fn update(&self, held: &Held, draft: &Draft<'_>) -> Result<Vec<u8>, WireError> {
        let slice = &held.slice;
        let mut body = retain_items(&slice.raw, ENDPOINTS, |_| false)?;
        body = edit(&body, &self.metadata_edits(&slice.metadata.labels))?;
        if slice.ports != draft.ports {
            body = retain_items(&body, PORTS, |_| false)?;
            for port in &draft.ports {
                put_bytes(&mut body, PORTS, &port.to_bytes());
            }
        }
        for placed in &draft.endpoints {
            put_bytes(&mut body, ENDPOINTS, &encode(placed)?);
        }
        Ok(body)
    }

    fn metadata_edits(&self, held: &Labels) -> Vec<Edit> {
        let wanted = labels(self.service);
        let dropped = held.iter().filter(|(label, _)| !wanted.contains_key(label));
        let mut edits: Vec<Edit> =
            dropped.map(|(label, _)| Edit::MapRemove(LABELS.to_vec(), label.to_string())).collect();
        let set = wanted.iter().filter(|(label, value)| held.get(label) != Some(value));
        edits.extend(
            set.map(|(label, value)| Edit::MapSet(LABELS.to_vec(), label.to_string(), value.to_string())),
        );
        let (at, name) = (ANNOTATIONS.to_vec(), TRIGGER_TIME.to_owned());
        edits.push(match self.since {
            Some(since) => Edit::MapSet(at, name, since.to_string()),
            None => Edit::MapRemove(at, name),
        });
        edits
    }
}

/// An endpoint's encoding: what we know of it as it should be, all else as it is.
fn encode(placed: &Placed<'_>) -> Result<Bytes, WireError> {
    let wanted = &placed.endpoint;
    let Some((held, bytes)) = placed.held else {
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
