//! Which Services a change of a node concerns. Decides nothing about them.

use std::sync::Arc;

use super::is_ours;
use super::topology::{self, KnownCapacity, Mode};
use coxswain_machinery::api::core::{Node, Service};
use coxswain_machinery::api::discovery::EndpointSlice;
use coxswain_machinery::api::indexes::service_key;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::Key;

pub(super) fn of_nodes(
    services: Lister<Service>,
    slices: Indexed<EndpointSlice>,
    known: Arc<KnownCapacity>,
) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Node>();
        if old.map(topology::contribution) == new.map(topology::contribution) {
            return;
        }
        known.forget();
        if !delta.is_news() {
            return;
        }
        let capacity = known.get();
        for service in services.list().into_iter().filter(|service| Mode::of(service) == Mode::Auto) {
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
