//! Indexes that more than one room asks for. A store keeps an index up only while somebody uses it, see
//! [`Indexed`](crate::informer::Indexed).

use std::hash::{BuildHasher as _, Hash};
use std::sync::LazyLock;

use super::kind::{Index, IndexKeys, Object};
use super::pod::Pod;
use crate::random::HashSeed;
use crate::wire::{Str, Uid};

/// Objects by their namespace and the controller that they name ([`controller_key`]). Only
/// [`Dependents`](crate::informer::Dependents) reads it: a user writes references, so a lookup compares the whole owner.
pub(crate) static BY_CONTROLLER: Index = Index { name: "controller", keys: controller_keys };

/// The value under which [`BY_CONTROLLER`] files the objects of a namespace that name this controller, or none. It is a digest,
/// which takes half the memory of the text of a UID.
pub(crate) fn controller_key(namespace: &str, controller: Option<&Uid>) -> Str {
    digest((namespace, controller))
}

fn controller_keys(object: &dyn Object) -> IndexKeys {
    let meta = object.meta();
    let controller = meta.controller().map(|owner| &owner.uid);
    IndexKeys::from_elem(controller_key(&meta.namespace, controller), 1)
}

/// A short text for a value that would be long as it is. Two values may have the same: each lookup compares what it finds.
fn digest(value: impl Hash) -> Str {
    static SEED: LazyLock<HashSeed> = LazyLock::new(HashSeed::of_process);
    let mut rest = SEED.hash_one(value);
    let digits = [(); 12].map(|()| {
        let digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
        digit
    });
    Str::from(String::from_utf8_lossy(&digits))
}

/// EndpointSlices by [`service_key`] of the service that their label names.
pub static BY_SERVICE: Index = Index { name: "service", keys: service_keys };

/// Label of an EndpointSlice: the service that it belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The value under which [`BY_SERVICE`] files the slices of a service.
pub fn service_key(namespace: &str, service: &str) -> Str {
    Str::from(format!("{namespace}/{service}"))
}

fn service_keys(object: &dyn Object) -> IndexKeys {
    let meta = object.meta();
    let service = meta.labels.get(SERVICE_NAME);
    service.map(|service| service_key(&meta.namespace, service)).into_iter().collect()
}

/// Labels by which people tell what belongs together: of those that Kubernetes' "Recommended Labels" names the two that selectors
/// have, and what was usual before them.
const GROUPING: [&str; 4] = ["app", "app.kubernetes.io/instance", "app.kubernetes.io/name", "k8s-app"];

/// Objects of a namespace by each of the labels that tell what belongs together ([`label_key`]).
pub static BY_LABEL: Index = Index { name: "label", keys: label_keys };

/// The value under which [`BY_LABEL`] files the objects of a namespace that have a label; `None` where it files by no such label. It
/// is a digest: so many objects have a label of their own that texts would take more than the tables. What else is filed under
/// the same value is told apart by whoever looks.
pub fn label_key(namespace: &str, label: &str, value: &str) -> Option<Str> {
    let grouping = GROUPING.iter().position(|grouping| *grouping == label)?;
    Some(digest((namespace, grouping, value)))
}

fn label_keys(object: &dyn Object) -> IndexKeys {
    let meta = object.meta();
    let key = |(label, value): (&Str, &Str)| label_key(&meta.namespace, label, value);
    meta.labels.iter().filter_map(key).collect()
}

/// Pods by the node that they are bound to; others nowhere.
pub static BY_NODE: Index = Index { name: "node", keys: node_keys };

fn node_keys(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let node = any.downcast_ref::<Pod>().map(|pod| &pod.spec.node_name);
    node.filter(|node| !node.is_empty()).cloned().into_iter().collect()
}
