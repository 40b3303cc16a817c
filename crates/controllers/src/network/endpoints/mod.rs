//! Endpoints: where each Service is served, all in one object, for clients that do not know EndpointSlices.
//!
//! The room observes a Service with the pods that it selects and its Endpoints ([`view`]), and decides whether these are
//! made, rewritten or deleted ([`plan`]). See "Service" and "Endpoints (deprecated)" in the Kubernetes documentation and
//! KEP-4974. Which keys a change concerns ([`keys`]):
//!
//! | change of | keys |
//! |---|---|
//! | a Service, its deletion included | its own |
//! | a pod, in what an endpoint shows of it | every Service's that selects it |
//! | a pod's labels | every Service's that selects or selected it |
//! | Endpoints that are gone | the Service's of their name |
//! | Endpoints that were there at the start | the Service's of their name, which may be gone |
//!
//! Keys of pods rest for `--endpoint-updates-batch-period` first. As in the original, a hand that edits Endpoints is undone
//! when the Service is looked at for another reason.
//!
//! It never touches Endpoints of a Service that has no selector, and of Endpoints without a Service deletes only those
//! whose Service it saw go, and at the start those that are not somebody's lock (leader election once kept its record in
//! Endpoints).

use std::sync::Arc;

use jiff::Timestamp;

use super::services;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::kinds::{ENDPOINTS, PODS, SERVICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, Tries, wake,
};
use coxswain_machinery::informer::{Labeled, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::View;

/// The Endpoints controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpoints-controller",
    aliases: &["endpoint"],
    description: "Creates and updates the Endpoints of each Service.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("endpoint-controller"),
    event_source: Some("endpoint-controller"),
    writes: &[
        Grant { group: "", resource: "services", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
        Grant {
            group: "",
            resource: "endpoints",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        // Asked for by the server where pods have addresses that are not of the cluster's network.
        Grant { group: "", resource: "endpoints/restricted", verbs: &["create"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    let services = build.watch::<Service>(&SERVICES);
    let pods = build.watch::<Pod>(&PODS);
    let endpoints = build.watch::<Endpoints>(&ENDPOINTS);
    let of_pods = services::of_pods(services.selecting());
    let wake_ups = vec![
        services.wakes(wake::own()),
        pods.wakes(of_pods).debounced(flags.endpoint_updates_batch_period),
        endpoints.wakes(keys::of_endpoints()),
    ];
    let room =
        Controller { services: services.lister(), pods: pods.labeled(), endpoints: endpoints.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "endpoint",
            kind: Some(&SERVICES),
            settings: LoopSettings {
                tries: Some(Tries::USUAL),
                ..LoopSettings::with_workers(flags.concurrent_endpoint_syncs)
            },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Controller {
    services: Lister<Service>,
    pods: Labeled<Pod>,
    endpoints: Lister<Endpoints>,
}

impl Room for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures)?.into())
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        plan::plan(view)
    }
}
