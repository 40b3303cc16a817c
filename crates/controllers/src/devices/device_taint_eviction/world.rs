//! What there is of devices, taints and claims: as the caches have it, and as it was read live where that was done. Decides
//! nothing.

use std::sync::Arc;

use super::verdict::{Evicting, NO_EXECUTE, Source, Verdict, add, selects, until};
use coxswain_machinery::api::kinds::{DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{AllocatedDevice, DeviceTaintRule, ResourceClaim, ResourceSlice};
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::framework::Reads;
use coxswain_machinery::informer::{Indexed, Lister, downcast};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

/// What the caches know.
pub(super) struct Caches {
    pub(super) pods: Lister<Pod>,
    pub(super) claims: Lister<ResourceClaim>,
    /// Allocated claims by the pools that they have devices of.
    pub(super) claims_by_pool: Indexed<ResourceClaim>,
    pub(super) slices: Lister<ResourceSlice>,
    /// Slices by their pool.
    pub(super) slices_by_pool: Indexed<ResourceSlice>,
    /// `None` where there are no rules.
    pub(super) rules: Option<Lister<DeviceTaintRule>>,
    /// Whether pods share claims of their PodGroups.
    pub(super) by_groups: bool,
}

/// The caches, and what was read live.
pub(super) struct World<'a> {
    pub(super) caches: &'a Caches,
    pub(super) read: &'a Reads,
    /// A rule that is taken to drive pods away, whatever its effect is.
    pub(super) supposing: Option<&'a Uid>,
}

/// A claim that a pod uses.
struct Used<'a> {
    claim: &'a Str,
    /// It was made for the pod.
    is_made: bool,
}

impl World<'_> {
    /// When a pod that is bound has to go; `None` if it may stay.
    pub(super) fn verdict(&self, pod: &Pod) -> Option<Verdict> {
        let mut verdict = None;
        for used in used(pod) {
            let key = Key::new(pod.metadata.namespace.clone(), used.claim.clone());
            let cached = self.caches.claims.get(&key);
            let Some(claim) = self.latest(&RESOURCE_CLAIMS, &key, cached) else { continue };
            let Some(allocation) = &claim.status.allocation else { continue };
            if !self.caches.is_users(&claim, pod, used.is_made) {
                continue;
            }
            for device in &allocation.devices.results {
                for taint in self.evicting(device) {
                    if let Some(until) = until(&taint, &device.tolerations) {
                        add(&mut verdict, &key, &taint, until);
                    }
                }
            }
        }
        verdict
    }

    /// The taints that drive pods away from a device: those in slices of the newest generation of its pool, and those of rules,
    /// which need no slice.
    fn evicting(&self, device: &AllocatedDevice) -> Vec<Evicting> {
        let mut taints = Vec::new();
        for rule in self.rules().iter().filter(|rule| selects(rule, device)) {
            let (meta, taint) = (&rule.metadata, &rule.spec.taint);
            taints.push(Evicting {
                source: Source::Rule { name: meta.name.clone(), uid: meta.uid.clone() },
                key: taint.key.clone(),
                value: taint.value.clone(),
                since: taint.time_added,
            });
        }
        for slice in self.newest(&device.driver, &device.pool) {
            for found in slice.spec.devices.iter().filter(|found| found.name == device.device) {
                let no_execute =
                    found.taints.iter().enumerate().filter(|(_, taint)| taint.effect == NO_EXECUTE);
                taints.extend(no_execute.map(|(at, taint)| Evicting {
                    source: Source::Slice {
                        driver: device.driver.clone(),
                        pool: device.pool.clone(),
                        device: device.device.clone(),
                        at,
                        slice: slice.metadata.name.clone(),
                    },
                    key: taint.key.clone(),
                    value: taint.value.clone(),
                    since: taint.time_added,
                }));
            }
        }
        taints
    }

    /// The rules that drive pods away.
    fn rules(&self) -> Vec<Arc<DeviceTaintRule>> {
        let cached = self.caches.rules.as_ref().map(Lister::list).unwrap_or_default().into_iter();
        let latest = cached.filter_map(|rule| {
            let key = Key::of(&rule.metadata);
            self.latest(&DEVICE_TAINT_RULES, &key, Some(rule))
        });
        let drives_away = |rule: &Arc<DeviceTaintRule>| {
            rule.spec.taint.effect == NO_EXECUTE || self.supposing == Some(&rule.metadata.uid)
        };
        latest.filter(drives_away).collect()
    }

    /// The slices of a pool that count: those of its highest generation.
    fn newest(&self, driver: &Str, name: &Str) -> Vec<Arc<ResourceSlice>> {
        let filed = self.caches.slices_by_pool.filed(&pool(driver, name)).into_iter();
        let latest = filed.filter_map(|slice| {
            let key = Key::of(&slice.metadata);
            self.latest(&RESOURCE_SLICES, &key, Some(slice))
        });
        let is_of_pool =
            |slice: &Arc<ResourceSlice>| slice.spec.driver == *driver && slice.spec.pool.name == *name;
        newest(latest.filter(is_of_pool).collect())
    }

    /// An object as it was read live, if it was; as the cache has it otherwise.
    fn latest<T: Object>(&self, kind: &'static Kind, key: &Key, cached: Option<Arc<T>>) -> Option<Arc<T>> {
        match self.read.object(kind, key) {
            Some(Ok(found)) => found.cloned().and_then(downcast),
            // An error is told of before anything rests on this.
            Some(Err(_)) | None => cached,
        }
    }
}

impl Caches {
    /// Whether a claim is this pod's, if it was made for one, and reserved for it.
    fn is_users(&self, claim: &ResourceClaim, pod: &Pod, is_made: bool) -> bool {
        let group = Some(&pod.shape.pod_group).filter(|group| self.by_groups && !group.is_empty());
        let controller = claim.metadata.controller();
        let is_its = controller.is_some_and(|owner| {
            owner.uid == pod.metadata.uid
                || owner.kind == "PodGroup" && group.is_some_and(|group| owner.name == *group)
        });
        let is_reserved = claim.status.reserved_for.iter().any(|consumer| {
            match (consumer.api_group.as_str(), consumer.resource.as_str()) {
                ("", "pods") => pod.metadata.uid == consumer.uid.as_str(),
                ("scheduling.k8s.io", "podgroups") => group.is_some_and(|group| consumer.name == *group),
                _ => false,
            }
        });
        (is_its || !is_made) && is_reserved
    }
}

/// The claims that a pod uses, as far as their names are known: those of its spec, and the one for its extended resources. The
/// original of 1.37 leaves the latter out, that of 1.38 does not.
/// Differs: extended-resources-of-broken-devices.
fn used(pod: &Pod) -> impl Iterator<Item = Used<'_>> {
    let statuses = pod.status.resource_claim_statuses.iter();
    let recorded: HashMap<&Str, _> = statuses.rev().map(|recorded| (&recorded.name, recorded)).collect();
    let extended = pod.status.extended_resource_claim_status.as_deref();
    let extended = extended.map(|extended| Used { claim: &extended.resource_claim_name, is_made: true });
    let of_spec = pod.shape.resource_claims.iter().filter_map(move |entry| {
        if let Some(claim) = &entry.claim {
            return Some(Used { claim, is_made: false });
        }
        recorded.get(&entry.name)?.resource_claim_name.as_ref().map(|claim| Used { claim, is_made: true })
    });
    of_spec.chain(extended)
}

/// The value under which things of a pool are filed.
pub(super) fn pool(driver: &Str, pool: &Str) -> Str {
    Str::from(format!("{driver}/{pool}"))
}

/// Those of the highest generation.
pub(super) fn newest(slices: Vec<Arc<ResourceSlice>>) -> Vec<Arc<ResourceSlice>> {
    let generation = slices.iter().map(|slice| slice.spec.pool.generation).max();
    slices.into_iter().filter(|slice| Some(slice.spec.pool.generation) == generation).collect()
}
