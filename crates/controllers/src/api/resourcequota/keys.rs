//! Which changes make a quota worth counting anew: what went, what ended, what became less. What is new has been charged by
//! admission.

use std::sync::Arc;

use super::measure::{Measured, Resource, measures};
use super::memory::Recounts;
use super::plan::{same_amounts, storage, takes, volume_attributes_classes};
use super::{Gates, PRIMARY};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::charge::{Amounts, ChargeRules};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::{DEVICE_CLASSES, RESOURCE_CLAIMS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{ApiResource, DynamicRoom, Enqueue, KeyMap};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::Key;

/// Of which queue a quota is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Admission refuses whatever it limits until it is counted.
    First,
    /// It has been counted before.
    InTurn,
}

impl Priority {
    fn of(quota: &ResourceQuota) -> Self {
        let status = &quota.status;
        let is_missing =
            |resource: &str| status.used.get(resource).is_none() && !measures(resource).is_empty();
        if !same_amounts(&quota.spec.hard, &status.hard)
            || status.hard.iter().any(|(name, _)| is_missing(name))
        {
            Self::First
        } else {
            Self::InTurn
        }
    }
}

/// New quotas and changed ones, by whose priority it is; and those that count a quota which is gone.
pub(super) fn of_quotas(priority: Priority, quotas: Lister<ResourceQuota>, recounts: Recounts) -> KeyMap {
    Arc::new(move |delta, add| match delta.typed::<ResourceQuota>() {
        (Some(old), Some(new)) if same_amounts(&old.spec.hard, &new.spec.hard) => {
            // The status is written here and by admission, and says nothing new but to who may have counted too early.
            let key = Key::of(&new.metadata);
            let is_other = priority == Priority::InTurn && !same_amounts(&old.status.used, &new.status.used);
            if is_other && recounts.hears(&key) {
                add(key);
            }
        }
        (_, Some(new)) if Priority::of(new) == priority => add(recounts.due(Key::of(&new.metadata))),
        (Some(gone), None) if priority == Priority::InTurn => {
            recounts.forget(&Key::of(&gone.metadata));
            let add = &mut |key| add(recounts.due(key));
            let resource = Resource { group: "", name: "resourcequotas" };
            counting(&quotas, &gone.metadata.namespace, Measured::Objects(resource), add);
        }
        _ => {}
    })
}

/// Hands over the quotas of a namespace that count something of `source`.
fn counting(quotas: &Lister<ResourceQuota>, namespace: &str, source: Measured<'_>, add: &mut dyn FnMut(Key)) {
    for quota in quotas.list_namespace(namespace) {
        if counts(&quota, source) {
            add(Key::of(&quota.metadata));
        }
    }
}

fn counts(quota: &ResourceQuota, source: Measured<'_>) -> bool {
    let mut names = quota.spec.hard.iter();
    names.any(|(name, _)| measures(name).iter().any(|measure| measure.source() == source))
}

/// A map for a kind of which some changes set something free.
fn freed<T: coxswain_machinery::api::Object>(
    quotas: Lister<ResourceQuota>,
    source: Measured<'static>,
    is_freed: impl Fn(&T, &T) -> bool + Send + Sync + 'static,
) -> KeyMap {
    Arc::new(move |delta, add| {
        let gone = match delta.typed::<T>() {
            (Some(old), Some(new)) if is_freed(old, new) => new,
            (Some(gone), None) => gone,
            _ => return,
        };
        counting(&quotas, &gone.meta().namespace, source, add);
    })
}

/// Pods that are gone or have ended, ask for less, or come into other scopes.
pub(super) fn of_pods(quotas: Lister<ResourceQuota>, gates: Gates) -> KeyMap {
    freed::<Pod>(quotas, Measured::Pods, move |old, new| {
        let is_end = !old.is_finished() && new.is_finished();
        is_end || !old.charge.is_same(&new.charge) && charges_less(old, new, gates.charge)
    })
}

fn charges_less(old: &Pod, new: &Pod, rules: ChargeRules) -> bool {
    let scopes = |pod: &Pod| (pod.charge.terminating, pod.charge.asks, pod.charge.crosses_namespaces);
    let less =
        |old: &Amounts, new: &Amounts| old.iter().any(|(resource, amount)| amount.exceeds(new.of(resource)));
    scopes(old) != scopes(new)
        || old.charge.priority_class != new.charge.priority_class
        || less(old.charge.requests(rules), new.charge.requests(rules))
        || less(old.charge.limits(rules), new.charge.limits(rules))
}

/// Services that are gone or take less.
pub(super) fn of_services(quotas: Lister<ResourceQuota>) -> KeyMap {
    freed::<Service>(quotas, Measured::Services, |old, new| {
        let (before, after) = (takes(old), takes(new));
        before.load_balancers > after.load_balancers || before.node_ports > after.node_ports
    })
}

/// Claims on volumes that are gone, ask for less, or come into other classes.
pub(super) fn of_volume_claims(quotas: Lister<ResourceQuota>, gates: Gates) -> KeyMap {
    freed::<PersistentVolumeClaim>(quotas, Measured::VolumeClaims, move |old, new| {
        storage(old, gates).exceeds(storage(new, gates))
            || super::plan::storage_class(old) != super::plan::storage_class(new)
            || volume_attributes_classes(old) != volume_attributes_classes(new)
    })
}

/// What is found by discovery: everything else that can be counted.
pub(super) struct Others {
    quotas: Lister<ResourceQuota>,
    recounts: Recounts,
}

/// Objects that nobody counts, as in the original.
const NOT_COUNTED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
/// Objects that are watched in any case, in full.
const WATCHED: [&str; 4] = ["pods", "services", "persistentvolumeclaims", "resourcequotas"];

impl Others {
    pub(super) fn new(quotas: Lister<ResourceQuota>, recounts: Recounts) -> Self {
        Self { quotas, recounts }
    }

    /// Counts the quotas that limit objects of a kind.
    fn recount(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        let source = source(kind);
        for quota in self.quotas.list() {
            if counts(&quota, source) {
                enqueue(PRIMARY, self.recounts.due(Key::of(&quota.metadata)));
            }
        }
    }
}

fn source(kind: &'static Kind) -> Measured<'static> {
    if (kind.group, kind.resource) == (RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.resource) {
        Measured::DeviceClaims
    } else {
        Measured::Objects(Resource { group: kind.group, name: kind.resource })
    }
}

impl DynamicRoom for Others {
    fn wants(&self, resource: &ApiResource) -> bool {
        let name = (resource.group.as_str(), resource.resource.as_str());
        if name == (DEVICE_CLASSES.group, DEVICE_CLASSES.resource) {
            return true;
        }
        resource.namespaced
            && resource.supports(&["create", "list", "watch", "delete"])
            && !NOT_COUNTED.contains(&name)
            && !(name.0.is_empty() && WATCHED.contains(&name.1))
    }

    fn in_full(&self, kind: &'static Kind) -> Option<&'static Kind> {
        [&RESOURCE_CLAIMS, &DEVICE_CLASSES].into_iter().find(|row| row.gvr() == kind.gvr())
    }

    fn changed(&self, kind: &'static Kind, delta: Delta<'_>, enqueue: Enqueue<'_>) {
        if let (Some(gone), None) = (delta.old, delta.new) {
            let namespace = &gone.meta().namespace;
            let add = &mut |key| enqueue(PRIMARY, self.recounts.due(key));
            counting(&self.quotas, namespace, source(kind), add);
        }
    }

    /// What it had was told before, if it went with the definition of a custom resource; behind an aggregated API it may be
    /// there yet.
    fn forgotten(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        self.recount(kind, enqueue);
    }

    /// Quotas keep their counts of a resource while it is not served. The first sync after the start queues quotas that are due anyway. The
    /// queue joins most of these keys, and a second count writes nothing, because an equal status is not written.
    fn synced(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        self.recount(kind, enqueue);
    }
}
