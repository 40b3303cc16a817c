//! What a decision about one Service's Endpoints rests on, read from the stores. Decides nothing.

use std::sync::Arc;

use super::Controller;
use super::services::{self, HeldEndpoints, read_endpoints};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::{Failure, Key};

/// A Service that pods serve, or Endpoints whose Service is gone.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) served: Served,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
}

#[derive(Clone, Debug)]
pub(super) enum Served {
    /// A Service, and the pods that it selects, by name.
    By {
        service: Arc<Service>,
        pods: Vec<Arc<Pod>>,
        /// Its Endpoints, as far as there are any.
        held: Option<HeldEndpoints>,
    },
    /// There is no Service for these Endpoints.
    Nobody(Arc<Endpoints>),
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
) -> Result<Option<View>, ObserveError> {
    let endpoints = room.endpoints.get(key);
    let served = match (room.services.get(key), endpoints) {
        (None, None) => return Ok(None),
        (None, Some(endpoints)) => Served::Nobody(endpoints),
        (Some(service), _) if !services::is_served_by_pods(&service) => return Ok(None),
        (Some(service), endpoints) => {
            let selector = &service.spec.selector;
            let mut pods = room.pods.having(&key.namespace, selector);
            pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            let held = endpoints.map(read_endpoints).transpose()?;
            Served::By { service, pods, held }
        }
    };
    Ok(Some(View { served, failures: failures.to_vec() }))
}
