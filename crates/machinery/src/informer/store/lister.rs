//! [`Lister`]: a store read as objects of a concrete type.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Store, UsedIndex};
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Index, Object};
use crate::model::Key;

/// A typed view of a store. Objects of another type than `T` are never in it: the kind's decoder makes them.
pub struct Lister<T> {
    store: Arc<Store>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), of: PhantomData }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.store).finish()
    }
}

impl<T: Object> Lister<T> {
    /// Reads `store` as objects of type `T`.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, of: PhantomData }
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.store.get(key).and_then(downcast)
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.store.list().into_iter().filter_map(downcast).collect()
    }

    /// All objects of a namespace, in no order.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.store.list_namespace(namespace).into_iter().filter_map(downcast).collect()
    }

    /// The objects of a namespace whose metadata `wanted` accepts, in no order; see [`Store::select`].
    pub fn select(&self, namespace: &str, wanted: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<T>> {
        self.store.select(namespace, |held| wanted(held.meta())).into_iter().filter_map(downcast).collect()
    }
}

/// The objects of a store as an index files them, by a concrete type. The store keeps the index up, and pays for it, as long as
/// somebody has this or a clone of it.
pub struct Indexed<T> {
    index: Arc<UsedIndex>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Indexed<T> {
    fn clone(&self) -> Self {
        Self { index: Arc::clone(&self.index), of: PhantomData }
    }
}

impl<T> fmt::Debug for Indexed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Indexed").field(&self.index.index.name).finish()
    }
}

impl<T: Object> Indexed<T> {
    /// Has `store` file its objects under `index`. Objects that it holds are filed now.
    pub fn new(store: &Arc<Store>, index: &'static Index) -> Self {
        Self { index: Arc::new(store.use_index(index)), of: PhantomData }
    }

    /// All objects that are filed under `value`, in no order.
    pub fn filed(&self, value: &str) -> Vec<Arc<T>> {
        self.index.filed(value).into_iter().filter_map(downcast).collect()
    }
}

/// The object as a concrete kind; `None` when it is another.
pub fn downcast<T: Object>(object: AnyObject) -> Option<Arc<T>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().ok()
}
