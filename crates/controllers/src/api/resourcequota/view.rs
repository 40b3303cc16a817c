//! What a quota's status rests on, read from the stores: the quota, and of its namespace what it counts. Decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::measure::{Measure, Resource, measures};
use super::memory::Recount;
use super::{Counter, Gates};
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::{DEVICE_CLASSES, RESOURCE_CLAIMS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::api::resource::{DeviceClass, ResourceClaim};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::informer::{Lister, Store};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// A quota, and what it counts. What it does not count is left empty.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) quota: Arc<ResourceQuota>,
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) services: Vec<Arc<Service>>,
    pub(super) volume_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub(super) devices: Known<Devices>,
    /// Numbers of objects, by the names in `spec.hard` that count them.
    pub(super) objects: BTreeMap<Str, Known<usize>>,
    /// Which features are on.
    pub(super) gates: Gates,
    /// Whether it is to be counted for a change. If it is late, it is looked at because it said something new after it was
    /// counted: what admission has charged may not be stored yet.
    pub(super) recount: Option<Recount>,
}

/// Something that may not be there to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// It is there.
    Yes(T),
    /// The API does not have it.
    #[default]
    NotServed,
    /// It is watched, and not all of it has been seen.
    NotYet,
}

/// Claims on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Devices {
    pub(super) claims: Vec<Arc<ResourceClaim>>,
    /// Extended resources by the device classes that stand for them.
    pub(super) extended: BTreeMap<Str, Str>,
}

pub(super) fn observe(counter: &Counter, key: &Key) -> Option<View> {
    let recount = counter.recounts.of(key);
    let quota = counter.quotas.get(key)?;
    let mut view = View { quota: Arc::clone(&quota), gates: counter.gates, recount, ..View::default() };
    let namespace = &key.namespace;
    let all = |name| measures(name).into_iter();
    let counted: Vec<(&Str, Measure<'_>)> =
        quota.spec.hard.iter().flat_map(|(name, _)| all(name).map(move |measure| (name, measure))).collect();
    let counts = |wanted: fn(&Measure<'_>) -> bool| counted.iter().any(|(_, measure)| wanted(measure));
    let counts_devices = counts(|measure| measure.source() == super::measure::Measured::DeviceClaims);
    if counts(|measure| measure.source() == super::measure::Measured::Pods) {
        view.pods = counter.pods.list_namespace(namespace);
    }
    if counts(|measure| measure.source() == super::measure::Measured::Services) {
        view.services = counter.services.list_namespace(namespace);
    }
    if counts(|measure| measure.source() == super::measure::Measured::VolumeClaims) {
        view.volume_claims = counter.claims.list_namespace(namespace);
    }
    if counts_devices {
        view.devices = devices(counter, namespace);
    }
    for (name, measure) in &counted {
        if let Measure::Objects(resource) = measure {
            view.objects.insert((*name).clone(), objects(counter, namespace, *resource));
        }
    }
    Some(view)
}

fn objects(counter: &Counter, namespace: &str, resource: Resource<'_>) -> Known<usize> {
    if (resource.group, resource.name) == ("", "resourcequotas") {
        return Known::Yes(counter.quotas.store().count_namespace(namespace));
    }
    match counter.watches.store(resource.group, resource.name) {
        Some(store) => filled(&store, |store| store.count_namespace(namespace)),
        None => Known::NotServed,
    }
}

fn devices(counter: &Counter, namespace: &str) -> Known<Devices> {
    let store = |kind: &coxswain_machinery::api::Kind| counter.watches.store(kind.group, kind.resource);
    let classes = store(&DEVICE_CLASSES).map_or(Known::Yes(Vec::new()), |store| {
        filled(&store, |store| Lister::<DeviceClass>::new(Arc::clone(store)).list())
    });
    let claims = store(&RESOURCE_CLAIMS).map_or(Known::NotServed, |store| {
        filled(&store, |store| Lister::<ResourceClaim>::new(Arc::clone(store)).list_namespace(namespace))
    });
    match (claims, classes) {
        (Known::NotServed, _) => Known::NotServed,
        (Known::Yes(claims), Known::Yes(classes)) => {
            let stands_for = |class: &Arc<DeviceClass>| {
                let resource = &class.spec.extended_resource_name;
                (!resource.is_empty()).then(|| (class.metadata.name.clone(), resource.clone()))
            };
            Known::Yes(Devices { claims, extended: classes.iter().filter_map(stands_for).collect() })
        }
        _ => Known::NotYet,
    }
}

fn filled<T>(store: &Arc<Store>, read: impl Fn(&Arc<Store>) -> T) -> Known<T> {
    if store.is_filled() { Known::Yes(read(store)) } else { Known::NotYet }
}
