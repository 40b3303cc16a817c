//! Which Services a change of a node concerns. Decides nothing about them.

use std::sync::Arc;

use parking_lot::Mutex;

use super::is_ours;
use super::topology::{self, Contributions, Mode};
use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::indexes::service_key;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Files the Services that ask for topology aware hints, and no others.
pub(super) static AUTO: Index = Index { name: "topology mode", keys: modes };

const BY_CAPACITY: &str = "auto";

fn modes(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let service = any.downcast_ref::<Service>().filter(|service| Mode::of(service) == Mode::Auto);
    service.map(|_| Str::interned(BY_CAPACITY)).into_iter().collect()
}

/// Queues the Services whose hints overload a zone after a change of a Node. The cost depends on the number of zones and of Services
/// that ask for hints.
pub(super) fn of_nodes(services: Indexed<Service>, slices: Indexed<EndpointSlice>) -> KeyMap {
    let nodes = Mutex::new(Contributions::default());
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if delta.resync {
            return;
        }
        let (old, new) = delta.typed::<Node>();
        let Some(name) = new.or(old).map(|node| &node.metadata.name) else { return };
        let capacity = {
            let mut nodes = nodes.lock();
            if !nodes.change(name, new.and_then(topology::contribution)) {
                return;
            }
            nodes.capacity()
        };
        if !delta.is_news() {
            return;
        }
        for service in services.filed(BY_CAPACITY) {
            let key = service_key(&service.metadata.namespace, &service.metadata.name);
            let held = slices.filed(&key);
            if topology::is_overloaded(
                held.iter().map(AsRef::as_ref).filter(|slice| is_ours(slice)),
                &capacity,
            ) {
                emit(Key::of(&service.metadata));
            }
        }
    })
}
