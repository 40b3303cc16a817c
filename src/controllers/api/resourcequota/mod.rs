//! resourcequota-controller: keeps count of what each ResourceQuota limits, and writes it into its status. See "Resource
//! Quotas" in the Kubernetes documentation, KEP-4840 (device classes), KEP-5004 (devices as extended resources) and
//! KEP-3751 (scope `VolumeAttributesClass`).
//!
//! | part | what |
//! |---|---|
//! | [`measure`] | what a name in `spec.hard` counts |
//! | [`keys`] | which changes make a quota worth counting anew |
//! | [`view`] | reading what is to be counted |
//! | [`plan`] | counting, and the status that comes of it |
//!
//! Creations are charged by the API server's admission; here is counted anew what admission does not see: what went, what
//! ended, what became less, and a quota that is new or was changed. Counts are never built upon: each is made of all
//! objects, and written only over the very quota that it was made for.
//!
//! Pods, services and claims are read from typed caches. What else can be counted is whatever discovery finds, custom
//! resources included, of which metadata is watched ([`crate::framework::DynamicRoom`]).
//!
//! # Where it differs from the original, on purpose
//! - After a status was written, the quota is counted once more a little later. What admission had charged and not stored
//!   yet when it was counted would be missing until the next full resync.
//! - So it is when a quota says something new after it was counted: what admission had charged and the cache of quotas did
//!   not tell of yet would be too much until the next full resync.
//! - A service that loses ports and a pod that comes into another scope are noticed at once, not at the next full resync.
//! - A quota that counts a resource nobody serves yet is looked at until it is served.
//! - A status that would not change is not written, though nothing in it can be counted.
//!
//! It never charges for what is about to be made, and never refuses anything: that is admission's.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::Kind;
use crate::api::core::{Pod, Service};
use crate::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES};
use crate::api::quota::{PersistentVolumeClaim, ResourceQuota};
use crate::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, DynamicWatches, EVENTS_GRANT, Grant, Loop,
    ObserveError, Room, RoomAdapter, Watch, workers,
};
use crate::informer::Lister;
use crate::model::{Failure, Key, Plan};

mod keys;
mod measure;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use keys::{Others, Priority, Recounts};
use view::View;

/// The queue of what is counted anew, and that of quotas whose status says nothing yet about something that they limit.
const PRIMARY: &str = "resourcequota_primary";
const PRIORITY: &str = "resourcequota_priority";

/// The quota controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcequota-controller",
    aliases: &["resourcequota"],
    description: "Counts what each ResourceQuota limits.",
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
    let quotas = Lister::new((build.store)(&RESOURCE_QUOTAS, None));
    let recounts = Recounts::default();
    let others = Arc::new(Others::new(quotas.clone(), recounts.clone()));
    let counter = Arc::new(Counter {
        quotas: quotas.clone(),
        pods: Lister::new((build.store)(&PODS, None)),
        services: Lister::new((build.store)(&SERVICES, None)),
        claims: Lister::new((build.store)(&PERSISTENT_VOLUME_CLAIMS, None)),
        watches: (build.dynamic)(Arc::clone(&others) as _),
        others,
        recounts: recounts.clone(),
        extended: (build.gate)("DRAExtendedResource"),
    });
    let period = flags.resource_quota_sync_period;
    let each = |queue, priority, resync, mut watches: Vec<Watch>| {
        watches.push(Watch {
            kind: &RESOURCE_QUOTAS,
            field_selector: None,
            keys: keys::of_quotas(priority, quotas.clone(), recounts.clone()),
        });
        Loop {
            queue,
            kind: Some(&RESOURCE_QUOTAS),
            workers: workers(flags.concurrent_resource_quota_syncs),
            watches,
            reconcile: Arc::new(RoomAdapter(Quotas { counter: Arc::clone(&counter), resync })),
        }
    };
    let watch = |kind: &'static Kind, keys| Watch { kind, field_selector: None, keys: recounts.noting(keys) };
    let counted = vec![
        watch(&PODS, keys::of_pods(quotas.clone())),
        watch(&SERVICES, keys::of_services(quotas.clone())),
        watch(&PERSISTENT_VOLUME_CLAIMS, keys::of_volume_claims(quotas.clone())),
    ];
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
    others: Arc<Others>,
    recounts: Recounts,
    /// `DRAExtendedResource`: whether devices count as extended resources.
    extended: bool,
}

/// The room of one loop.
struct Quotas {
    counter: Arc<Counter>,
    /// `--resource-quota-sync-period`.
    resync: Option<Duration>,
}

impl Room for Quotas {
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure]) -> Result<Option<View>, ObserveError> {
        // Whatever was refused is counted again when the key comes back.
        Ok(if failures.is_empty() { view::observe(&self.counter, key) } else { None })
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }

    fn resync(&self) -> Option<Duration> {
        self.resync
    }
}
