//! Indexes that more than one room asks for. A store keeps an index up only while somebody uses it, see
//! [`Indexed`](crate::informer::Indexed).

use super::kind::{Index, IndexKeys, Object};
use super::pod::Pod;
use crate::wire::Str;

/// Objects by the UID of their managing controller; those without one are filed by [`orphan_key`].
pub static BY_CONTROLLER: Index = Index { name: "controller", keys: controller_keys };

/// The value under which [`BY_CONTROLLER`] files the objects of a namespace that nobody manages.
pub fn orphan_key(namespace: &str) -> Str {
    Str::from(format!("orphan/{namespace}"))
}

fn controller_keys(object: &dyn Object) -> IndexKeys {
    let meta = object.meta();
    let key = meta.controller().map_or_else(|| orphan_key(&meta.namespace), |owner| owner.uid.to_str());
    IndexKeys::from_elem(key, 1)
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

/// Pods by the node that they are bound to; others nowhere.
pub static BY_NODE: Index = Index { name: "node", keys: node_keys };

fn node_keys(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let node = any.downcast_ref::<Pod>().map(|pod| &pod.spec.node_name);
    node.filter(|node| !node.is_empty()).cloned().into_iter().collect()
}
