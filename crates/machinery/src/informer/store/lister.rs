//! [`Lister`], [`Indexed`], [`Labeled`]: a store read as objects of a concrete type.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Store, UsedIndex};
use crate::api::indexes::{BY_LABEL, label_key};
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Index, IndexKeys, Object};
use crate::model::Key;
use crate::model::selector::Selector;
use crate::model::selects::has_all;
use crate::wire::{Labels, Str};

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
    pub(super) index: Arc<UsedIndex>,
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

    /// The objects that are filed under `value` and whose metadata `wanted` accepts, in no order; see [`Store::select`].
    pub(super) fn filed_if(&self, value: &Str, wanted: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<T>> {
        let found = self.index.select(std::slice::from_ref(value), |held| wanted(held.meta()));
        found.into_iter().filter_map(downcast).collect()
    }
}

/// The objects of a store by their labels. What is labeled by the custom that [`BY_LABEL`] knows is found without a look at all
/// that is in the namespace.
pub struct Labeled<T>(Indexed<T>);

impl<T> Clone for Labeled<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Labeled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Labeled").field(&self.0.index.store).finish()
    }
}

impl<T: Object> Labeled<T> {
    /// Has `store` file its objects by their labels. Objects that it holds are filed now.
    pub fn new(store: &Arc<Store>) -> Self {
        Self(Indexed::new(store, &BY_LABEL))
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<Store> {
        &self.0.index.store
    }

    /// The objects of a namespace that a selector selects, in no order. The match runs with the contents locked, and takes time by the
    /// objects' labels, not by the selector's length, except for comparisons of numbers.
    pub fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<T>> {
        self.find(namespace, selector.common(), |labels| selector.matches(labels))
    }

    /// The objects of a namespace that have all of these labels, in no order; none if there are no labels.
    pub fn having(&self, namespace: &str, labels: &Labels) -> Vec<Arc<T>> {
        self.find(namespace, labels.iter(), |held| has_all(labels, held))
    }

    /// Of the objects that have all labels in `common` those whose labels `wanted` accepts.
    fn find<'a>(
        &self,
        namespace: &str,
        common: impl Iterator<Item = (&'a Str, &'a Str)>,
        wanted: impl Fn(&Labels) -> bool,
    ) -> Vec<Arc<T>> {
        let index = &self.0.index;
        let wanted = |held: &dyn Object| wanted(&held.meta().labels);
        let values: IndexKeys =
            common.filter_map(|(label, value)| label_key(namespace, label, value)).collect();
        let found = if values.is_empty() {
            index.store.select(namespace, wanted)
        } else {
            // Objects of another namespace may be filed under the same digest.
            index.select(&values, |held| held.meta().namespace == *namespace && wanted(held))
        };
        found.into_iter().filter_map(downcast).collect()
    }
}

/// The object as a concrete kind; `None` when it is another.
pub fn downcast<T: Object>(object: AnyObject) -> Option<Arc<T>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().ok()
}
