//! EndpointSlices: where each Service is served, for proxies and DNS to follow.
//!
//! The room observes a Service with the pods that it selects, their nodes and the slices that it has ([`view`]), and
//! decides which slices to make, rewrite and delete ([`plan`]) so that they hold exactly the pods' endpoints with as few
//! writes as possible. See "Service", "EndpointSlices" and "Topology Aware Routing" in the Kubernetes documentation,
//! KEP-752 (slices), KEP-1669 (terminating endpoints), KEP-2433 (topology hints), KEP-3015 and KEP-4444 (traffic
//! distribution). Which keys a change concerns ([`keys`]):
//!
//! | change of | keys |
//! |---|---|
//! | a Service | its own |
//! | a pod, in what an endpoint shows of it | every Service's that selects it |
//! | a pod's labels | every Service's that selects or selected it |
//! | a slice that this controller manages, its deletion included | that of the Service that it names, or named |
//! | a node's zone, readiness or CPU | every Service's whose topology hints overload a zone now |
//!
//! Changes of pods are debounced by `--endpointslice-updates-batch-period`, those of slices by a second at least. As in the
//! original, a node that moves to another zone is seen when its Service is looked at for another reason.
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote, so an endpoint is
//! never put into two slices because of a slice not yet seen.
//!
//! It never touches slices of others (mirrored or made by hand), those of a Service without a selector, which are their
//! maker's, and those of a Service that is gone, which are the garbage collector's.

use std::sync::Arc;

use jiff::Timestamp;

use super::services;
use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::indexes::BY_SERVICE;
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, QueueConfig, Reads, Room, RoomAdapter, Tries, wake,
};
use coxswain_machinery::informer::{Indexed, Labeled, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod topology;
mod view;

use keys::AUTO;
use metrics::{Counted, Metrics};
use view::View;

/// Our name in [`services::SLICE_MANAGED_BY`], and the original's.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The EndpointSlice controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-controller",
    aliases: &["endpointslice"],
    description: "Creates and updates the EndpointSlices of each Service.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("endpointslice-controller"),
    event_source: Some("endpoint-slice-controller"),
    writes: &[
        Grant { group: "", resource: "services", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "watch"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): slices block their owner's deletion.
        Grant { group: "", resource: "services/finalizers", verbs: &["update"] },
        Grant {
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// What is set by flags and gates.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// Endpoints in one slice at most.
    max_per_slice: usize,
    /// `PreferSameTrafficDistribution`: whether `PreferSameZone` and `PreferSameNode` mean something.
    prefer_same: bool,
}

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let services = build.watch::<Service>(&SERVICES);
    let pods = build.watch::<Pod>(&PODS);
    let slices = build.watch::<EndpointSlice>(&ENDPOINT_SLICES);
    let nodes = build.watch::<Node>(&NODES);
    let room = Controller {
        services: services.lister(),
        pods: pods.labeled(),
        slices: slices.index(&BY_SERVICE),
        nodes: nodes.lister(),
        settings: Settings {
            max_per_slice: usize::try_from(flags.max_endpoints_per_slice).unwrap_or(1).max(1),
            prefer_same: (build.gate)("PreferSameTrafficDistribution"),
        },
    };
    let batch_period = flags.endpointslice_updates_batch_period;
    let wake_ups = vec![
        services.wakes(wake::own()),
        pods.wakes(services::of_pods(services.selecting())).debounced(batch_period),
        slices
            .wakes(services::of_slices(is_ours, false))
            .debounced(batch_period.max(services::SLICES_DEBOUNCE)),
        nodes.wakes(keys::of_nodes(services.index(&AUTO), slices.index(&BY_SERVICE))),
    ];
    Ok(Built {
        loops: vec![Loop {
            queue: "endpoint_slice",
            kind: Some(&SERVICES),
            settings: LoopSettings {
                tries: Some(Tries::USUAL),
                backoff: QueueConfig { base_delay: services::SLICES_BACKOFF, ..QueueConfig::default() },
                ..LoopSettings::with_workers(flags.concurrent_service_endpoint_syncs)
            },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// The room: what it reads, and what is set.
struct Controller {
    services: Lister<Service>,
    pods: Labeled<Pod>,
    /// By the Service that they name.
    slices: Indexed<EndpointSlice>,
    nodes: Lister<Node>,
    settings: Settings,
}

impl Room<Option<Counted>> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures)?.into())
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Option<Counted>> {
        let (plan, counts) = plan::plan(view);
        plan.with_note(view.failures.is_empty().then(|| Counted::of(view, counts)))
    }
}

/// Whether this controller manages the slice.
fn is_ours(slice: &EndpointSlice) -> bool {
    services::is_managed_by(slice, MANAGER)
}
