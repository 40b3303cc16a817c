//! The caches that one loop of a running controller reads, as its expectations see them. Decides and keeps nothing.

use std::sync::Arc;

use super::expectations::LiveObjects;
use super::room::ObserveError;
use crate::api::{AnyObject, Kind};
use crate::informer::{Awaited, Epoch, Store, Wake};
use crate::model::Key;
use crate::wire::Uid;

/// The stores that a loop reads, in the order in which it watches them.
#[derive(Debug)]
pub struct Caches {
    /// The kind of object that the loop's keys name.
    own: Option<&'static Kind>,
    stores: Vec<Arc<Store>>,
    epoch: Epoch,
}

impl Caches {
    /// These stores, of a loop whose keys name objects of `own`, if they name any.
    pub fn new(own: Option<&'static Kind>, stores: Vec<Arc<Store>>) -> Self {
        Self { own, stores, epoch: Epoch::default() }
    }

    /// Sets the epoch in which the stores were begun to be filled.
    #[must_use]
    pub fn in_epoch(self, epoch: Epoch) -> Self {
        Self { epoch, ..self }
    }

    /// Returns the epoch in which the stores were begun to be filled.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Requires that the epoch of the stores is not over: a plan that rests on them, and on what the controller remembers, would be of
    /// before a restore.
    ///
    /// # Errors
    /// The epoch is over. The controller is about to be stopped.
    pub fn require_present_epoch(&self) -> Result<(), ObserveError> {
        if self.epoch.is_over() {
            Err(ObserveError::Canceled("etcd was restored".to_owned()))
        } else {
            Ok(())
        }
    }

    /// The stores of a kind: more than one where the loop watches by several selectors.
    fn of(&self, kind: &'static Kind) -> impl Iterator<Item = &Arc<Store>> {
        self.stores.iter().filter(move |store| store.kind().is_of_resource(kind))
    }

    /// The first store of the kind that keys name.
    pub fn own(&self) -> Option<&Store> {
        self.of(self.own?).next().map(|store| &**store)
    }

    /// Returns the kind that keys name, if they name one.
    pub fn own_kind(&self) -> Option<&'static Kind> {
        self.own
    }

    /// Whether objects of a kind are read at all.
    pub fn cover(&self, kind: &'static Kind) -> bool {
        self.of(kind).next().is_some()
    }

    /// Whether all stores of a kind show what is awaited.
    pub fn show(&self, kind: &'static Kind, awaited: &Awaited) -> bool {
        self.of(kind).all(|store| store.shows(awaited))
    }

    /// Calls `wake` when the first store of a kind that does not yet show what is awaited does; now, if all do.
    pub fn when_shown(&self, kind: &'static Kind, awaited: Awaited, wake: Wake) {
        match self.of(kind).find(|store| !store.shows(&awaited)) {
            Some(store) => store.when_shown(awaited, wake),
            None => wake(),
        }
    }

    /// The object of a kind at `key`, from the first store of that kind that holds it.
    pub fn get(&self, kind: &'static Kind, key: &Key) -> Option<AnyObject> {
        self.of(kind).find_map(|store| store.get(key))
    }

    /// The version of the object that a key names, as it is held.
    pub fn own_version(&self, key: &Key) -> Option<u64> {
        self.own()?.get(key)?.meta().resource_version.parse().ok()
    }

    /// Whether the object that a key names, which was seen at `version`, has gone. An older cache cannot tell.
    pub fn is_own_gone(&self, key: &Key, version: u64) -> bool {
        let is_gone = |store: &Store| store.shows(&Awaited::Version(version)) && store.get(key).is_none();
        self.own().is_some_and(is_gone)
    }

    /// Returns the cached objects at `place` (without a name, all in the namespace; without either, all) that a later live read did
    /// not find.
    pub fn missing(
        &self,
        kind: &'static Kind,
        place: &Key,
        live: &LiveObjects,
    ) -> impl Iterator<Item = (Key, Uid)> {
        let held = self.of(kind).flat_map(|store| {
            if place.name.is_empty() && place.namespace.is_empty() {
                store.list()
            } else if place.name.is_empty() {
                store.list_namespace(&place.namespace)
            } else {
                store.get(place).into_iter().collect()
            }
        });
        held.filter(|object| {
            let meta = object.meta();
            let is_older = meta.resource_version.parse().is_ok_and(|at: u64| at <= live.version);
            is_older && !live.uids.contains(&meta.uid)
        })
        .map(|object| (Key::of(object.meta()), object.meta().uid.clone()))
    }
}
