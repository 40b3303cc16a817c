//! Which keys a change concerns. Pods without claims cost nothing, and a slice wakes the users of those of its devices of which
//! something changed.

use std::any::Any;
use std::sync::Arc;

use super::memory::Timers;
use super::told::Told;
use super::verdict::{NO_EXECUTE, is_selected, selects};
use super::world::{Caches, pool};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{
    AllocatedDevice, Device, DeviceTaint, DeviceTaintRule, ResourceClaim, ResourceSlice,
};
use coxswain_machinery::api::{Index, IndexKeys, Object, distinct};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Allocated claims by the pools that they have devices of.
pub(super) static CLAIMS_BY_POOL: Index = Index { name: "allocated-pool", keys: pools_of_claim };
/// Slices by their pool.
pub(super) static SLICES_BY_POOL: Index = Index { name: "pool", keys: pool_of_slice };
/// Pods with claims, by their PodGroup.
pub(super) static PODS_BY_GROUP: Index = Index { name: "pod-group-with-devices", keys: group_of_pod };

fn typed<T: Object>(object: &dyn Object) -> Option<&T> {
    let any: &dyn Any = object;
    any.downcast_ref()
}

fn pools_of_claim(object: &dyn Object) -> IndexKeys {
    distinct(typed(object).into_iter().flat_map(devices).map(|device| pool(&device.driver, &device.pool)))
}

fn pool_of_slice(object: &dyn Object) -> IndexKeys {
    let value = |slice: &ResourceSlice| pool(&slice.spec.driver, &slice.spec.pool.name);
    typed(object).map(value).into_iter().collect()
}

fn group_of_pod(object: &dyn Object) -> IndexKeys {
    let has_group = |pod: &&Pod| !pod.shape.resource_claims.is_empty() && !pod.shape.pod_group.is_empty();
    let value = |pod: &Pod| group(&pod.metadata.namespace, &pod.shape.pod_group);
    typed(object).filter(has_group).map(value).into_iter().collect()
}

fn group(namespace: &Str, name: &Str) -> Str {
    Str::from(format!("{namespace}/{name}"))
}

/// The devices that a claim was given.
pub(super) fn devices(claim: &ResourceClaim) -> impl Iterator<Item = &AllocatedDevice> {
    claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results)
}

/// Who uses claims and devices.
#[derive(Clone)]
pub(super) struct Users {
    pub(super) caches: Arc<Caches>,
    /// Pods with claims, by their PodGroup.
    pub(super) by_group: Indexed<Pod>,
}

impl Users {
    /// The pods that a claim is reserved for, as far as their names tell.
    pub(super) fn of_claim(&self, claim: &ResourceClaim, add: &mut dyn FnMut(Key)) {
        let namespace = &claim.metadata.namespace;
        for consumer in &claim.status.reserved_for {
            match (consumer.api_group.as_str(), consumer.resource.as_str()) {
                ("", "pods") => add(Key::new(namespace.clone(), consumer.name.clone())),
                ("scheduling.k8s.io", "podgroups") if self.caches.by_groups => {
                    for pod in self.by_group.filed(&group(namespace, &consumer.name)) {
                        add(Key::of(&pod.metadata));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether nothing of a pod has changed that its time hangs on.
fn is_same_pod(old: &Pod, new: &Pod) -> bool {
    old.metadata.uid == new.metadata.uid
        && old.spec.node_name == new.spec.node_name
        && old.status.resource_claim_statuses == new.status.resource_claim_statuses
        && old.status.extended_resource_claim_status == new.status.extended_resource_claim_status
}

/// Whether a pod has claims, by its spec or for extended resources.
fn has_claims(pod: &Pod) -> bool {
    !pod.shape.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some()
}

/// A pod with claims concerns its own key when it is new, is bound or has other claims; and when it goes, if it was waited for.
pub(super) fn own(timers: Arc<Timers>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        if delta.resync || old.zip(new).is_some_and(|(old, new)| is_same_pod(old, new)) {
            return;
        }
        let Some(pod) = new.or(old) else { return };
        let key = Key::of(&pod.metadata);
        let may_wait = new.is_some_and(has_claims);
        if may_wait || timers.entry(&key).is_some() {
            add(key);
        }
    })
}

/// A claim with another allocation or other consumers concerns the pods that it is or was reserved for.
pub(super) fn of_claims(users: Users) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ResourceClaim>();
        if delta.is_news() && !old.zip(new).is_some_and(|(old, new)| is_same_claim(old, new)) {
            for claim in old.into_iter().chain(new) {
                users.of_claim(claim, add);
            }
        }
    })
}

fn is_same_claim(old: &ResourceClaim, new: &ResourceClaim) -> bool {
    old.metadata.uid == new.metadata.uid
        && old.status.allocation == new.status.allocation
        && old.status.reserved_for == new.status.reserved_for
}

/// A slice concerns the users of those of its devices of which taints changed; of all in the pool if another generation may
/// count now.
pub(super) fn of_slices(users: Users) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if !delta.is_news() {
            return;
        }
        let (old, new) = delta.typed::<ResourceSlice>();
        let is_same_place = old.zip(new).is_some_and(|(old, new)| {
            let (old, new) = (&old.spec, &new.spec);
            old.driver == new.driver
                && old.pool.name == new.pool.name
                && old.pool.generation == new.pool.generation
        });
        let concerns = |device: &AllocatedDevice| {
            !is_same_place || !old.zip(new).is_some_and(|(old, new)| is_same_device(old, new, &device.device))
        };
        for slice in old.into_iter().chain(new) {
            let (driver, name) = (&slice.spec.driver, &slice.spec.pool.name);
            for claim in users.caches.claims_by_pool.filed(&pool(driver, name)) {
                let mut of_pool =
                    devices(&claim).filter(|device| device.driver == *driver && device.pool == *name);
                if of_pool.any(concerns) {
                    users.of_claim(&claim, add);
                }
            }
            if is_same_place {
                break;
            }
        }
    })
}

fn is_same_device(old: &ResourceSlice, new: &ResourceSlice, name: &Str) -> bool {
    no_execute(old, name).eq(no_execute(new, name))
}

/// The taints of a device that drive pods away.
fn no_execute<'s>(slice: &'s ResourceSlice, name: &Str) -> impl Iterator<Item = &'s DeviceTaint> {
    let devices: Vec<&Device> = slice.spec.devices.iter().filter(|device| device.name == *name).collect();
    devices.into_iter().flat_map(|device| &device.taints).filter(|taint| taint.effect == NO_EXECUTE)
}

/// A rule that is new, has another spec or is gone concerns the users of the devices that it selects or selected.
pub(super) fn of_rules(users: Users, timers: Arc<Timers>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if !delta.is_news() {
            return;
        }
        let (old, new) = delta.typed::<DeviceTaintRule>();
        if old.zip(new).is_some_and(|(old, new)| is_same_rule(old, new)) {
            return;
        }
        if let (Some(old), None) = (old, new) {
            timers.forget_rule(&old.metadata.uid);
        }
        let is_selected =
            |device: &AllocatedDevice| old.into_iter().chain(new).any(|rule| selects(rule, device));
        for claim in users.caches.claims.list() {
            if devices(&claim).any(is_selected) {
                users.of_claim(&claim, add);
            }
        }
    })
}

fn is_same_rule(old: &DeviceTaintRule, new: &DeviceTaintRule) -> bool {
    old.metadata.uid == new.metadata.uid && old.spec == new.spec
}

/// A rule that is new or has another spec concerns its own key. A rule that is deleted is forgotten.
pub(super) fn own_rule(told: Arc<Told>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<DeviceTaintRule>();
        if let (Some(old), None) = (old, new) {
            told.forget(&Key::of(&old.metadata));
        }
        let is_same = old.zip(new).is_some_and(|(old, new)| is_same_rule(old, new));
        if let Some(rule) = new.filter(|_| !delta.resync && !is_same) {
            add(Key::of(&rule.metadata));
        }
    })
}

/// A claim with another allocation or other consumers concerns the rules that select its devices.
pub(super) fn rules_of_claims(caches: Arc<Caches>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ResourceClaim>();
        if delta.is_news() && !old.zip(new).is_some_and(|(old, new)| is_same_claim(old, new)) {
            for claim in old.into_iter().chain(new) {
                rules_of_claim(&caches, claim, add);
            }
        }
    })
}

/// A pod that is bound, has other claims, is being deleted or gone concerns the rules that select devices of its claims.
pub(super) fn rules_of_pods(caches: Arc<Caches>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let Some(pod) = new.or(old).filter(|pod| delta.is_news() && has_claims(pod)) else {
            return;
        };
        let is_same = |(old, new): (&Pod, &Pod)| {
            is_same_pod(old, new) && old.metadata.is_deleting() == new.metadata.is_deleting()
        };
        if old.zip(new).is_some_and(is_same) {
            return;
        }
        let named = pod.shape.resource_claims.iter().filter_map(|entry| entry.claim.as_ref());
        let made = pod.status.resource_claim_statuses.iter();
        let made = made.filter_map(|made| made.resource_claim_name.as_ref());
        let extended = pod.status.extended_resource_claim_status.as_deref();
        let extended = extended.map(|extended| &extended.resource_claim_name);
        for name in named.chain(made).chain(extended) {
            let key = Key::new(pod.metadata.namespace.clone(), name.clone());
            if let Some(claim) = caches.claims.get(&key) {
                rules_of_claim(&caches, &claim, add);
            }
        }
    })
}

fn rules_of_claim(caches: &Caches, claim: &ResourceClaim, add: &mut dyn FnMut(Key)) {
    for rule in caches.rules.iter().flat_map(Lister::list) {
        let selector = rule.spec.device_selector.as_deref();
        let mut devices = devices(claim);
        if devices.any(|device| is_selected(selector, &device.driver, &device.pool, &device.device)) {
            add(Key::of(&rule.metadata));
        }
    }
}
