//! resourcequota-controller: keeps count of what each ResourceQuota limits, and writes it into its status. See "Resource
//! Quotas" in the Kubernetes documentation, KEP-4840 (device classes), KEP-5004 (devices as extended resources) and
//! KEP-3751 (scope `VolumeAttributesClass`).
//!
//! | part | what |
//! |---|---|
//! | [`measure`] | what a name in `spec.hard` counts |
//! | [`keys`] | which changes make a quota worth counting anew |
//! | [`memory`] | which quotas are to be counted once more |
//! | [`view`] | reading what is to be counted |
//! | [`plan`] | counting, and the status that comes of it |
//!
//! Creations are charged by the API server's admission; here is counted anew what admission does not see: what went, what
//! ended, what became less, and a quota that is new or was changed. Counts are never built upon: each is made of all
//! objects, and written only over the very quota that it was made for.
//!
//! Pods, services and claims are read from typed caches. What else can be counted is whatever discovery finds, custom
//! resources included, of which metadata is watched ([`coxswain_machinery::framework::DynamicRoom`]).
//!
//! # Where it differs from the original, on purpose
//! - After a status was written, the quota is counted once more a little later. What admission had charged and not stored
//!   yet when it was counted would be missing until the next full resync. Differs: second-count.
//! - So it is when a quota says something new after it was counted: what admission had charged and the cache of quotas did
//!   not tell of yet would be too much until the next full resync. Differs: second-count.
//! - A service that loses ports and a pod that comes into another scope are noticed at once, not at the next full resync.
//!   Differs: second-count.
//! - A quota that counts a resource which is not served is counted again when the watch of the resource has synced. Its count
//!   stays until then: an aggregated API that is removed and added again keeps its objects. Differs: unserved-resources.
//! - A status that would not change is not written, though nothing in it can be counted. Differs: equal-amounts.
//!
//! It never charges for what is about to be made, and never refuses anything: that is admission's.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::charge::ChargeRules;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, DynamicWatches, EVENTS_GRANT, Grant, Loop,
    LoopSettings, Observation, ObserveError, Reads, Room, RoomAdapter, WakeUp,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod measure;
mod memory;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use keys::{Others, Priority};
use memory::{Recount, Recounts};
use view::View;

/// The queue of what is counted anew, and that of quotas whose status says nothing yet about something that they limit.
const PRIMARY: &str = "resourcequota_primary";
const PRIORITY: &str = "resourcequota_priority";

/// The quota controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcequota-controller",
    aliases: &["resourcequota"],
    description: "Updates the usage of each ResourceQuota.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("resourcequota-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "resourcequotas/status", verbs: &["update"] },
        Grant { group: "*", resource: "*", verbs: &["list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

#[expect(clippy::unnecessary_wraps, reason = "the shape of every room's build")]
fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    let quotas = build.watch::<ResourceQuota>(&RESOURCE_QUOTAS);
    let pods = build.watch::<Pod>(&PODS);
    let services = build.watch::<Service>(&SERVICES);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let recounts = Recounts::default();
    let others = Others::new(quotas.lister(), recounts.clone());
    let gates = Gates::read(build.gate);
    let counter = Arc::new(Counter {
        quotas: quotas.lister(),
        pods: pods.lister(),
        services: services.lister(),
        claims: claims.lister(),
        watches: (build.dynamic)(Arc::new(others)),
        recounts: recounts.clone(),
        gates,
    });
    let each = |queue, priority, resync, mut wake_ups: Vec<WakeUp>| {
        wake_ups.push(quotas.wakes(keys::of_quotas(priority, quotas.lister(), recounts.clone())));
        let room = RoomAdapter::new(Quotas(Arc::clone(&counter)));
        Loop {
            queue,
            kind: Some(&RESOURCE_QUOTAS),
            settings: LoopSettings {
                resync,
                ..LoopSettings::with_workers(flags.concurrent_resource_quota_syncs)
            },
            wake_ups,
            reconcile: Arc::new(room.remembered_by(Arc::new(recounts.clone()))),
        }
    };
    let counted = vec![
        pods.wakes(recounts.noting(keys::of_pods(quotas.lister(), gates))),
        services.wakes(recounts.noting(keys::of_services(quotas.lister()))),
        claims.wakes(recounts.noting(keys::of_volume_claims(quotas.lister(), gates))),
    ];
    let period = flags.resource_quota_sync_period;
    let resync = (!period.is_zero()).then_some(period);
    Ok(Built {
        loops: vec![
            each(PRIMARY, Priority::InTurn, resync, counted),
            each(PRIORITY, Priority::First, None, Vec::new()),
        ],
    })
}

/// What both loops read.
struct Counter {
    quotas: Lister<ResourceQuota>,
    pods: Lister<Pod>,
    services: Lister<Service>,
    claims: Lister<PersistentVolumeClaim>,
    watches: Arc<DynamicWatches>,
    recounts: Recounts,
    gates: Gates,
}

/// What counts only where a feature is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "features that have nothing to do with each other")]
struct Gates {
    /// `DynamicResourceAllocation`: devices.
    devices: bool,
    /// `DRAExtendedResource`: devices as extended resources.
    extended: bool,
    /// `VolumeAttributesClass`: the scope of that name.
    attributes_classes: bool,
    /// `RecoverVolumeExpansionFailure`: what was set aside for a claim that is being resized.
    set_aside: bool,
    /// What pods are charged.
    charge: ChargeRules,
}

impl Gates {
    /// By the names of the gates.
    fn read(gate: &dyn Fn(&str) -> bool) -> Self {
        Self {
            devices: gate("DynamicResourceAllocation"),
            extended: gate("DRAExtendedResource"),
            attributes_classes: gate("VolumeAttributesClass"),
            set_aside: gate("RecoverVolumeExpansionFailure"),
            charge: ChargeRules {
                pod_level: gate("PodLevelResources"),
                in_place: gate("InPlacePodVerticalScaling"),
            },
        }
    }
}

impl Default for Gates {
    /// All features are on.
    fn default() -> Self {
        let charge = ChargeRules::ALL;
        Self { devices: true, extended: true, attributes_classes: true, set_aside: true, charge }
    }
}

/// The room of one loop.
struct Quotas(Arc<Counter>);

impl Room<Option<Recount>> for Quotas {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(&self.0, key).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Option<Recount>> {
        plan::plan(view, now).with_note(view.recount)
    }
}
