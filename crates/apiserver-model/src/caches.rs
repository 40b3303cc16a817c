//! Stores that follow the model as far as they are told, for tests of a single room: its caches, as late as a test wants them.

use std::sync::Arc;

use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::informer::Store;

use super::{Model, Stored};

/// Stores that are told of the same changes in one order.
pub struct Caches {
    stores: Vec<Arc<Store>>,
    /// The version up to which they have been told.
    seen: u64,
}

impl Stored {
    /// The object as this row of its kind decodes it.
    ///
    /// # Panics
    /// If the kind cannot decode it.
    pub fn object(&self, kind: &Kind) -> AnyObject {
        (kind.decode)(&self.encoded(kind.metadata_only)).expect("the model stores objects of the kind")
    }
}

impl Caches {
    /// Stores that have been told of nothing.
    pub fn new(stores: impl IntoIterator<Item = Arc<Store>>) -> Self {
        Self { stores: stores.into_iter().collect(), seen: 0 }
    }

    fn store(&self, stored: &Stored) -> Option<&Arc<Store>> {
        self.stores.iter().find(|store| store.kind().resource == stored.place.resource)
    }

    /// Tells of the next changes, so many of those that concern these stores. How many there were.
    pub fn deliver(&mut self, model: &Model, count: usize) -> usize {
        let mut told = 0;
        for event in model.after(self.seen) {
            if told == count {
                break;
            }
            if let Some(store) = self.store(&event.after) {
                let object = event.after.object(store.kind());
                if event.gone {
                    store.remove(&object);
                } else {
                    store.upsert(&object);
                }
                told += 1;
            }
            self.seen = event.version;
        }
        told
    }

    /// Tells of all changes up to a version.
    pub fn catch_up(&mut self, model: &Model, version: u64) {
        while self.seen < version && self.deliver(model, 1) > 0 {}
    }

    /// Shows what there is now, as a list does: nothing is told of what came and went.
    pub fn list(&mut self, model: &Model) {
        for store in &self.stores {
            let held = model.all(store.kind().resource, "").map(|stored| stored.object(store.kind()));
            store.replace(held.collect(), &model.version().to_string());
        }
        self.seen = model.version();
    }
}
