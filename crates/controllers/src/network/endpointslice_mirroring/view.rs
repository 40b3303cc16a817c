//! What a decision about the mirror of some Endpoints rests on, read from the stores. Decides nothing.

use super::services::{HeldEndpoints, LEADER, read_endpoints, read_slice};
use super::{Controller, is_ours};
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::indexes::service_key;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::slices::HeldSlice;

/// Label of Endpoints that are not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Endpoints with their mirror, or what is left of one.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// What is to be mirrored; `None` if nothing is.
    pub(super) mirrored: Option<HeldEndpoints>,
    /// The slices that we manage for it and whose deletion has not begun, by name.
    pub(super) slices: Vec<HeldSlice>,
    /// Addresses that are mirrored from one subset at most.
    pub(super) max_per_subset: usize,
}

pub(super) fn observe(room: &Controller, key: &Key) -> Result<Option<View>, ObserveError> {
    let is_manual = room.services.get(key).is_some_and(|service| service.spec.selector.is_empty());
    let endpoints = room.endpoints.get(key).filter(|endpoints| is_manual && wants_a_mirror(endpoints));
    let mut slices = Vec::new();
    for slice in room.slices.filed(&service_key(&key.namespace, &key.name)) {
        if is_ours(&slice) && !slice.metadata.is_deleting() {
            slices.push(read_slice(slice)?);
        }
    }
    if endpoints.is_none() && slices.is_empty() {
        return Ok(None);
    }
    slices.sort_unstable_by(|a, b| a.slice.metadata.name.cmp(&b.slice.metadata.name));
    let mirrored = endpoints.map(read_endpoints).transpose()?;
    Ok(Some(View { mirrored, slices, max_per_subset: room.max_per_subset }))
}

fn wants_a_mirror(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    let skipped = meta.labels.get(SKIP).is_some_and(|skip| *skip == "true");
    !skipped && !meta.annotations.contains_key(LEADER)
}
