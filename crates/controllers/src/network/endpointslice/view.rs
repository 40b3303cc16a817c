//! What a decision about one Service's slices rests on, read from the stores. Decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::topology::{self, Capacity, Mode};
use super::{Controller, Settings, is_ours, services};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::indexes::service_key;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::wire::Str;

/// A Service with a selector, and all that its slices should show.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) service: Arc<Service>,
    /// The pods that it selects, by name.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Zones of the pods' nodes, as far as these are known; empty for a node without one.
    pub(super) zones: BTreeMap<Str, Str>,
    /// What the zones can bear, if the Service asks for topology aware routing.
    pub(super) capacity: Option<Capacity>,
    /// The slices that we manage for it and whose deletion has not begun, by name.
    pub(super) slices: Vec<HeldSlice>,
    pub(super) settings: Settings,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
) -> Result<Option<View>, ObserveError> {
    let Some(service) = room.services.get(key) else {
        return Ok(None);
    };
    if !services::is_served_by_pods(&service) {
        return Ok(None);
    }
    let selector = &service.spec.selector;
    let mut pods = room.pods.having(&key.namespace, selector);
    pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut zones = BTreeMap::new();
    for name in pods.iter().map(|pod| &pod.spec.node_name) {
        if !zones.contains_key(name)
            && let Some(node) = room.nodes.get(&Key::new("", name.clone()))
        {
            zones.insert(name.clone(), topology::zone(&node));
        }
    }
    let is_auto = Mode::of(&service) == Mode::Auto;
    let capacity = is_auto.then(|| Capacity::clone(&room.capacity.get()));
    let mut slices = Vec::new();
    for slice in room.slices.filed(&service_key(&key.namespace, &key.name)) {
        if is_ours(&slice) && !slice.metadata.is_deleting() {
            slices.push(services::read_slice(slice)?);
        }
    }
    slices.sort_unstable_by(|a, b| a.slice.metadata.name.cmp(&b.slice.metadata.name));
    let (settings, failures) = (room.settings, failures.to_vec());
    Ok(Some(View { service, pods, zones, capacity, slices, settings, failures }))
}
