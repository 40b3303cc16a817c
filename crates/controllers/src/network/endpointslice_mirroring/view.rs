//! What a decision about the mirror of some Endpoints rests on, read from the stores. Decides nothing.

use std::sync::Arc;

use super::services::{LEADER, read_endpoints, read_slice};
use super::{Controller, is_ours};
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::indexes::service_key;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::model::subsets::{MOST_MEMBERS, Subset, repack};

/// Label of Endpoints that are not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Endpoints that are to be mirrored.
#[derive(Clone, Debug)]
pub(super) struct MirroredEndpoints {
    pub(super) endpoints: Arc<Endpoints>,
    /// Their subsets in the canonical form.
    pub(super) subsets: Vec<Subset>,
}

/// Endpoints with their mirror, or what is left of one.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// What is to be mirrored; `None` if nothing is.
    pub(super) mirrored: Option<MirroredEndpoints>,
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
    let mirrored = endpoints.map(read_mirrored).transpose()?;
    Ok(Some(View { mirrored, slices, max_per_subset: room.max_per_subset }))
}

/// Reads Endpoints with the canonical form of their subsets. If that is too large, the slices stay as they are. Differs: entangled-subsets
fn read_mirrored(endpoints: Arc<Endpoints>) -> Result<MirroredEndpoints, ObserveError> {
    let held = read_endpoints(endpoints)?;
    let Some(subsets) = repack(&held.subsets) else {
        return Err(ObserveError::Terminal(format!(
            "mirror Endpoints {}: more than {MOST_MEMBERS} addresses in the canonical form of the subsets; \
             use fewer ports with different addresses",
            Key::of(&held.endpoints.metadata)
        )));
    };
    Ok(MirroredEndpoints { endpoints: held.endpoints, subsets })
}

fn wants_a_mirror(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    let skipped = meta.labels.get(SKIP).is_some_and(|skip| *skip == "true");
    !skipped && !meta.annotations.contains_key(LEADER)
}
