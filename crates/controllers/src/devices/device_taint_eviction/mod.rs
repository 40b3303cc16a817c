//! Deletes pods that use devices with `NoExecute` taints that their claims do not tolerate, and says in the status of
//! DeviceTaintRules how far that has come. See KEP-5055.
//!
//! | loop | key | a change of | concerns |
//! |---|---|---|---|
//! | `device-taint-eviction-controller` | a pod | a pod with claims that is new, or bound, or has other claims; one that goes while it waits | its own key |
//! | | | a claim: its allocation, its consumers | the pods that it is or was reserved for |
//! | | | a slice: taints of its devices, or which generation of the pool counts | those of claims on these devices |
//! | | | a rule | those of claims on devices that it selects |
//! | | | none: the time is over | the pod's |
//! | `device_taint_rules` | a rule | a rule that is new, or has another spec | its own key |
//! | | | a claim, or a pod with claims | rules that select devices of it |
//!
//! The second loop runs while `DRADeviceTaintRules` is on. It looks at a rule every ten seconds at most.
//!
//! What a pod's time is, is a function of what there is ([`verdict`]), so it survives a restart: it counts from when the taint
//! came. What is remembered beside that is whom to tell that it may stay after all, who was deleted, and for which rules.
//!
//! What it rests on: before a pod goes, the pod is read live, and so are the claims, slices and rules for which it goes; what is
//! found decides. The delete carries the UID. So a cache that lags evicts nobody, nor does an API server that cannot be asked.
//!
//! It uses deletes and not the Eviction API, as the original does. It leaves pods alone that are not bound. Devices that pods
//! have as extended resources count, as in 1.38.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, Watch,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};

mod keys;
mod memory;
mod metrics;
mod plan;
mod reasons;
mod rules;
#[cfg(test)]
mod tests;
mod told;
mod verdict;
mod view;
mod world;

use memory::{Note, Timers};
use metrics::Metrics;
use view::View;
use world::Caches;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "device-taint-eviction-controller",
    aliases: &[],
    description: "Evicts Pods that use a device whose taint they do not tolerate.",
    gates: &["DynamicResourceAllocation", "DRADeviceTaints"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("device-taint-eviction-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "pods", verbs: &["delete", "get", "list", "watch"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        Grant { group: "resource.k8s.io", resource: "resourceclaims", verbs: &["get", "list", "watch"] },
        Grant { group: "resource.k8s.io", resource: "resourceslices", verbs: &["get", "list", "watch"] },
        Grant { group: "resource.k8s.io", resource: "devicetaintrules", verbs: &["get", "list", "watch"] },
        Grant { group: "resource.k8s.io", resource: "devicetaintrules/status", verbs: &["patch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<Pod>(&PODS);
    let claims = build.watch::<ResourceClaim>(&RESOURCE_CLAIMS);
    let slices = build.watch::<ResourceSlice>(&RESOURCE_SLICES);
    let rules =
        (build.gate)("DRADeviceTaintRules").then(|| build.watch::<DeviceTaintRule>(&DEVICE_TAINT_RULES));
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let timers = Arc::new(Timers::default());
    let caches = Arc::new(Caches {
        pods: pods.lister(),
        claims: claims.lister(),
        claims_by_pool: claims.index(&keys::CLAIMS_BY_POOL),
        slices: slices.lister(),
        slices_by_pool: slices.index(&keys::SLICES_BY_POOL),
        rules: rules.as_ref().map(Watch::lister),
        by_groups: (build.gate)("DRAWorkloadResourceClaims"),
    });
    let settings = LoopSettings::with_workers(build.config.flags.concurrent_device_taint_eviction_syncs);
    let users = keys::Users { caches: Arc::clone(&caches), by_group: pods.index(&keys::PODS_BY_GROUP) };
    let mut wake_ups = vec![
        pods.wakes(keys::own(Arc::clone(&timers))),
        claims.wakes(keys::of_claims(users.clone())),
        slices.wakes(keys::of_slices(users.clone())),
    ];
    if let Some(rules) = &rules {
        wake_ups.push(rules.wakes(keys::of_rules(users.clone(), Arc::clone(&timers))));
    }
    let room = Controller { pods: pods.lister(), caches: Arc::clone(&caches), timers: Arc::clone(&timers) };
    let mut loops = vec![Loop {
        queue: DESCRIPTOR.name,
        kind: Some(&PODS),
        settings: settings.clone(),
        wake_ups,
        reconcile: Arc::new(
            RoomAdapter::new(room).counted_by(metrics).remembered_by(Arc::clone(&timers) as Arc<_>),
        ),
    }];
    if let Some(rules) = rules {
        let told = Arc::new(told::Told::default());
        let wake_ups = vec![
            rules.wakes(keys::own_rule(Arc::clone(&told))),
            claims.wakes(keys::rules_of_claims(Arc::clone(&caches))),
            pods.wakes(keys::rules_of_pods(Arc::clone(&caches))),
        ];
        let room = rules::Rules { caches, users, timers, told: Arc::clone(&told) };
        loops.push(Loop {
            queue: "device_taint_rules",
            kind: Some(&DEVICE_TAINT_RULES),
            settings,
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(told as Arc<_>)),
        });
    }
    Ok(Built { loops })
}

/// The room: what it reads, and what it remembers.
struct Controller {
    pods: Lister<Pod>,
    caches: Arc<Caches>,
    timers: Arc<Timers>,
}

impl Room<Note> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        reasons::reasons(view, now)
    }
}
