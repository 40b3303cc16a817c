//! Mirrors into EndpointSlices the Endpoints that people and other programs make for Services without a selector, so that
//! what follows EndpointSlices alone follows these too.
//!
//! The room observes Endpoints, whether they are to be mirrored, and the slices that mirror them ([`view`]), and decides
//! which slices to make, rewrite and delete ([`plan`]). See "EndpointSlice mirroring" in the Kubernetes documentation and
//! KEP-752. Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | Endpoints | their own |
//! | a Service | that of the Endpoints of its name |
//! | a slice that this controller manages | that of the Endpoints of the Service that it names, or named |
//!
//! Keys of slices rest for `--mirroring-endpointslice-updates-batch-period` first, a second at least.
//!
//! It never touches slices of others, and never mirrors Endpoints of Services with selectors, Endpoints that ask not to be
//! mirrored, and those in which leader election keeps its record.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::services;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::indexes::BY_SERVICE;
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, QueueConfig, Reads, Room, RoomAdapter, Tries, wake,
};
use coxswain_machinery::informer::{Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use metrics::Metrics;
use plan::Count;
use view::View;

/// Our name in [`services::SLICE_MANAGED_BY`], and the original's.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// The longest backoff of Endpoints that could not be mirrored, as in the original.
const LONGEST_BACKOFF: Duration = Duration::from_secs(100);

/// The EndpointSlice mirroring controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-mirroring-controller",
    aliases: &["endpointslicemirroring"],
    description: "Mirrors user-created Endpoints to EndpointSlices.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("endpointslicemirroring-controller"),
    event_source: Some("endpoint-slice-mirroring-controller"),
    writes: &[
        Grant { group: "", resource: "endpoints", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "services", verbs: &["get", "list", "watch"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): slices block their owner's deletion.
        Grant { group: "", resource: "endpoints/finalizers", verbs: &["update"] },
        Grant {
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let endpoints = build.watch::<Endpoints>(&ENDPOINTS);
    let services = build.watch::<Service>(&SERVICES);
    let slices = build.watch::<EndpointSlice>(&ENDPOINT_SLICES);
    let slices_debounce = flags.mirroring_endpointslice_updates_batch_period.max(services::SLICES_DEBOUNCE);
    let wake_ups = vec![
        endpoints.wakes(keys::of_endpoints()),
        services.wakes(wake::own()),
        // Those whose Endpoints went while nobody looked are found at the start.
        slices.wakes(services::of_slices(is_ours, true)).debounced(slices_debounce),
    ];
    let room = Controller {
        endpoints: endpoints.lister(),
        services: services.lister(),
        slices: slices.index(&BY_SERVICE),
        max_per_subset: usize::try_from(flags.mirroring_max_endpoints_per_subset).unwrap_or(1).max(1),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "endpoint_slice_mirroring",
            kind: Some(&ENDPOINTS),
            settings: LoopSettings {
                tries: Some(Tries::USUAL),
                backoff: QueueConfig {
                    base_delay: services::SLICES_BACKOFF,
                    max_delay: LONGEST_BACKOFF,
                    ..QueueConfig::default()
                },
                ..LoopSettings::with_workers(flags.mirroring_concurrent_service_endpoint_syncs)
            },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// The room: what it reads, and what is set.
struct Controller {
    endpoints: Lister<Endpoints>,
    services: Lister<Service>,
    /// By the Service that they name.
    slices: Indexed<EndpointSlice>,
    /// Addresses that are mirrored from one subset at most.
    max_per_subset: usize,
}

impl Room<Count> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key)?.into())
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Count> {
        let (plan, count) = plan::plan(view);
        plan.with_note(count)
    }
}

/// Whether this controller manages the slice.
fn is_ours(slice: &EndpointSlice) -> bool {
    services::is_managed_by(slice, MANAGER)
}
