//! How a mirroring slice is written: a new one from nothing, one that is there by splicing, so that nothing in it is lost.

use super::super::MANAGER;
use super::super::services::{SLICE_MANAGED_BY, TRIGGER_TIME};
use super::demand::Group;
use coxswain_machinery::api::discovery::{ENDPOINTS, Endpoint, EndpointSlice};
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::indexes::SERVICE_NAME;
use coxswain_machinery::api::kinds;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::metadata::{annotation_edits, label_edits};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::pods::generate_name;
use coxswain_machinery::model::slices::{HeldSlice, encode, identity, is_same, key_of};
use coxswain_machinery::wire::splice::{Edit, put_bytes};
use coxswain_machinery::wire::{Labels, Message, Str, WireError, path};

/// Annotation in which `kubectl apply` remembers what it applied; it is about the Endpoints alone.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Writes the slices that mirror some Endpoints.
pub(super) struct Author<'a> {
    pub(super) endpoints: &'a Endpoints,
}

impl Author<'_> {
    /// A new slice.
    pub(super) fn create(&self, group: &Group) -> Vec<u8> {
        let owner = &self.endpoints.metadata;
        let metadata = ObjectMeta {
            generate_name: generate_name(&owner.name).into(),
            namespace: owner.namespace.clone(),
            labels: self.labels(),
            annotations: self.annotations(),
            owner_references: vec![controller_reference(owner, &kinds::ENDPOINTS)],
            ..ObjectMeta::default()
        };
        let slice = EndpointSlice {
            metadata,
            ports: group.ports.clone(),
            address_type: group.family.clone(),
            ..EndpointSlice::default()
        };
        let mut body = slice.to_bytes();
        for endpoint in group.endpoints.values() {
            put_bytes(&mut body, ENDPOINTS, &endpoint.to_bytes());
        }
        body
    }

    /// Whether the slice is as it should be.
    pub(super) fn is(&self, held: &HeldSlice, group: &Group) -> Result<bool, WireError> {
        let slice = &held.slice;
        Ok(!is_free(held)
            && slice.metadata.labels == self.labels()
            && slice.metadata.annotations == self.annotations()
            && key_of(&slice.ports) == key_of(&group.ports)
            && held.len == group.endpoints.len()
            && held.endpoints()?.iter().all(|(endpoint, _)| {
                group.endpoints.get(&identity(endpoint)).is_some_and(|wanted| is_mirrored(endpoint, wanted))
            }))
    }

    /// The slice as it should be.
    pub(super) fn update(&self, held: &HeldSlice, group: &Group) -> Result<Vec<u8>, WireError> {
        let meta = &held.slice.metadata;
        let mut edits = label_edits(&meta.labels, &self.labels());
        edits.extend(annotation_edits(&meta.annotations, &self.annotations()));
        if is_free(held) {
            let owner = controller_reference(&self.endpoints.metadata, &kinds::ENDPOINTS);
            edits.push(Edit::Push(path!(EndpointSlice, metadata.ownerReferences), owner.to_bytes()));
        }
        let mut wanted = group.endpoints.clone();
        // Those that stay keep their places.
        let mut endpoints = Vec::with_capacity(wanted.len());
        for placed in held.endpoints()? {
            if let Some(endpoint) = wanted.remove(&identity(&placed.0)) {
                endpoints.push(encode(&kept(&placed.0, endpoint), Some(placed)));
            }
        }
        endpoints.extend(wanted.values().map(|endpoint| encode(endpoint, None)));
        held.rewrite(&edits, &group.ports, endpoints)
    }

    /// The labels of the Endpoints, and what a slice is.
    fn labels(&self) -> Labels {
        let copied = self.endpoints.metadata.labels.iter();
        let copied = copied.map(|(label, value)| (label.as_str(), value.as_str()));
        let name: &Str = &self.endpoints.metadata.name;
        copied.chain([(SERVICE_NAME, name.as_str()), (SLICE_MANAGED_BY, MANAGER)]).collect()
    }

    /// The annotations of the Endpoints, but for those that are about the object itself.
    fn annotations(&self) -> Labels {
        let all = self.endpoints.metadata.annotations.iter();
        let all = all.map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(name, _)| ![TRIGGER_TIME, LAST_APPLIED].contains(name)).collect()
    }
}

/// Whether a slice has no owner reference.
pub(super) fn is_free(held: &HeldSlice) -> bool {
    held.slice.metadata.owner_references.is_empty()
}

/// Whether an endpoint mirrors its address: in all that an address says.
pub(super) fn is_mirrored(held: &Endpoint, wanted: &Endpoint) -> bool {
    is_same(held, &kept(held, wanted.clone()))
}

/// An address says nothing of zones, hints and what else a slice can say; that stays as it is.
fn kept(held: &Endpoint, wanted: Endpoint) -> Endpoint {
    Endpoint { zone: held.zone.clone(), hints: held.hints.clone(), ..wanted }
}
