//! Which Services a change concerns. Decides nothing about them.

use std::sync::Arc;

use super::is_ours;
use super::topology::{self, Capacity};
use crate::api::core::{Node, Pod, Service};
use crate::api::discovery::EndpointSlice;
use crate::api::kinds::{BY_SELECTOR, BY_SERVICE, SERVICE_NAME, selector_key, service_key};
use crate::framework::KeyMap;
use crate::informer::{Delta, Lister};
use crate::model::Key;
use crate::wire::Labels;

pub(super) fn of_services() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if let Some(service) = delta.latest() {
            emit(Key::of(service.meta()));
        }
    })
}

pub(super) fn of_pods(services: Lister<Service>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        // What is there at the start, and at a resync, is told of Services too, and each of those looks at its pods.
        if delta.initial || delta.resync {
            return;
        }
        let (old, new) = delta.typed::<Pod>();
        let mut selecting = |pod: &Pod| {
            for service in selecting(&services, pod) {
                emit(Key::of(&service.metadata));
            }
        };
        match (old, new) {
            (Some(old), Some(new)) => {
                let relabelled = old.metadata.labels != new.metadata.labels;
                if relabelled {
                    selecting(old);
                }
                if relabelled || looks_different(old, new) {
                    selecting(new);
                }
            }
            (old, new) => old.into_iter().chain(new).for_each(selecting),
        }
    })
}

/// The Services that select the pod.
fn selecting(services: &Lister<Service>, pod: &Pod) -> Vec<Arc<Service>> {
    let (namespace, labels) = (&pod.metadata.namespace, &pod.metadata.labels);
    let filed = labels
        .iter()
        .flat_map(|(label, value)| services.by_index(BY_SELECTOR, &selector_key(namespace, label, value)));
    filed.filter(|service| selects(&service.spec.selector, labels)).collect()
}

/// Whether `labels` have all pairs of a selector that is not empty.
pub(super) fn selects(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(label, value)| labels.get(label) == Some(value))
}

/// Whether an endpoint would show the change of a pod.
fn looks_different(old: &Pod, new: &Pod) -> bool {
    let shown = |pod: &Pod| {
        let since = pod.condition("Ready").and_then(|ready| ready.last_transition_time);
        (pod.is_ready(), since, pod.is_finished(), pod.metadata.is_deleting())
    };
    shown(old) != shown(new)
        || old.status.pod_ips != new.status.pod_ips
        || old.spec.node_name != new.spec.node_name
        || (&old.spec.hostname, &old.spec.subdomain) != (&new.spec.hostname, &new.spec.subdomain)
}

pub(super) fn of_slices() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if delta.initial || delta.resync {
            return;
        }
        let (old, new) = delta.typed::<EndpointSlice>();
        let service = |slice: &EndpointSlice| {
            let name = slice.metadata.labels.get(SERVICE_NAME).filter(|_| is_ours(slice))?;
            Some(Key::new(slice.metadata.namespace.clone(), name.clone()))
        };
        let (before, now) = (old.and_then(service), new.and_then(service));
        if before != now {
            before.into_iter().for_each(&mut *emit);
        }
        now.into_iter().for_each(emit);
    })
}

pub(super) fn of_nodes(
    services: Lister<Service>,
    slices: Lister<EndpointSlice>,
    nodes: Lister<Node>,
) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if delta.initial || delta.resync {
            return;
        }
        let (old, new) = delta.typed::<Node>();
        if old.map(topology::contribution) == new.map(topology::contribution) {
            return;
        }
        let capacity = Capacity::of(nodes.list().iter().map(AsRef::as_ref));
        for service in services.list().into_iter().filter(|service| topology::is_auto(service)) {
            let key = service_key(&service.metadata.namespace, &service.metadata.name);
            let held = slices.by_index(BY_SERVICE, &key);
            if topology::is_overloaded(
                held.iter().map(AsRef::as_ref).filter(|slice| is_ours(slice)),
                &capacity,
            ) {
                emit(Key::of(&service.metadata));
            }
        }
    })
}
