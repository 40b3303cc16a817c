//! How a slice is written: a new one from nothing, one that is there by splicing, so that nothing in it is lost.

use super::super::MANAGER;
use super::super::services::{HEADLESS, SLICE_MANAGED_BY, TRIGGER_TIME, is_headless};
use bytes::Bytes;

use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::discovery::{ENDPOINTS, Endpoint, EndpointPort, EndpointSlice};
use coxswain_machinery::api::indexes::SERVICE_NAME;
use coxswain_machinery::api::kinds::SERVICES;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::metadata::{annotation_edit, label_edits};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::pods::generate_name;
use coxswain_machinery::model::slices::{HeldSlice, encode};
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Labels, Message, Str, Time, WireError};

/// Labels that say what a slice is, and are never taken from its Service.
const RESERVED: [&str; 3] = [SERVICE_NAME, SLICE_MANAGED_BY, HEADLESS];

/// The labels of a Service's slices: its own, and what they are.
pub(super) fn labels(service: &Service) -> Labels {
    let own = unreserved(&service.metadata.labels);
    let headless = is_headless(service).then_some((HEADLESS, ""));
    let name = service.metadata.name.as_str();
    own.chain(headless).chain([(SERVICE_NAME, name), (SLICE_MANAGED_BY, MANAGER)]).collect()
}

fn unreserved(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let all = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    all.filter(|(label, _)| !RESERVED.contains(label))
}

/// Whether the Service's own labels are no longer the slice's.
pub(super) fn is_relabeled(held: &Labels, wanted: &Labels) -> bool {
    !unreserved(held).eq(unreserved(wanted))
}

/// The content of a slice to be written.
#[derive(Clone, Debug)]
pub(super) struct Draft<'a> {
    pub(super) family: Str,
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Placed<'a>>,
}

/// An endpoint in its place.
#[derive(Clone, Debug)]
pub(super) struct Placed<'a> {
    /// As it should be.
    pub(super) endpoint: Endpoint,
    /// As it is, with its encoding; `None` if it is new.
    pub(super) held: Option<&'a (Endpoint, Bytes)>,
}

impl<'a> Draft<'a> {
    /// A slice like it, without endpoints.
    pub(super) fn empty_of(held: &'a HeldSlice) -> Self {
        let slice = &held.slice;
        Self { family: slice.address_type.clone(), ports: slice.ports.clone(), endpoints: Vec::new() }
    }

    /// The addresses of its endpoints.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Str> {
        self.endpoints.iter().flat_map(|placed| placed.endpoint.addresses.iter().cloned())
    }

    /// The slice as it is.
    pub(super) fn of(held: &'a HeldSlice) -> Result<Self, WireError> {
        let placed = |held: &'a (Endpoint, Bytes)| {
            // Hints are given anew wherever something is written.
            Placed { endpoint: Endpoint { hints: None, ..held.0.clone() }, held: Some(held) }
        };
        Ok(Self { endpoints: held.endpoints()?.iter().map(placed).collect(), ..Self::empty_of(held) })
    }
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
    pub(super) fn update(&self, held: &HeldSlice, draft: &Draft<'_>) -> Result<Vec<u8>, WireError> {
        let mut edits = label_edits(&held.slice.metadata.labels, &labels(self.service));
        edits.push(annotation_edit(TRIGGER_TIME, self.since.map(|since| since.to_string())));
        let endpoints = draft.endpoints.iter().map(|placed| encode(&placed.endpoint, placed.held));
        held.rewrite(&edits, &draft.ports, endpoints)
    }
}
