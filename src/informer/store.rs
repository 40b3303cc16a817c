//! The store: what an informer holds, with its indexes and its handlers.
//!
//! Objects are filed by namespace and name, and under the kind's own indexes. A change is made and told to the
//! handlers under one lock, so that a handler registered at any moment sees every object exactly once, then every
//! change. Reads share the lock and clone reference counts only.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};

use crate::api::{AnyObject, Index, Kind, Object};
use crate::model::Key;
use crate::wire::Str;

/// A change of one object: `old` is absent when it appeared, `new` when it is gone. Both are there for an update and
/// for a resync, where they are the same.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The object before.
    pub old: Option<&'a AnyObject>,
    /// The object now.
    pub new: Option<&'a AnyObject>,
    /// Whether it belongs to a replay of what was there already: at a handler's registration or the first list.
    pub initial: bool,
    /// Whether it is a periodic resync: nothing changed.
    pub resync: bool,
}

impl<'a> Delta<'a> {
    /// The object as it is now, or as it was last.
    pub fn latest(&self) -> Option<&'a AnyObject> {
        self.new.or(self.old)
    }

    /// `old` and `new` as a concrete kind.
    pub fn typed<T: Object>(&self) -> (Option<&'a T>, Option<&'a T>) {
        (self.old.and_then(cast), self.new.and_then(cast))
    }
}

fn cast<T: Object>(object: &AnyObject) -> Option<&T> {
    let any: &dyn std::any::Any = object.as_ref();
    any.downcast_ref()
}

/// Hears of changes. Runs in the informer's task with the store locked: it must not block and must not read the
/// same store; it adds keys to queues.
pub type Handler = Arc<dyn Fn(Delta<'_>) + Send + Sync>;

/// Names a registered handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId(u64);

/// The cached objects of one kind.
pub struct Store {
    kind: &'static Kind,
    contents: RwLock<Contents>,
    handlers: Mutex<Handlers>,
}

#[derive(Default)]
struct Contents {
    namespaces: HashMap<Str, HashMap<Str, AnyObject>>,
    indexes: Vec<HashMap<Str, HashMap<Key, AnyObject>>>,
    count: usize,
    resource_version: Str,
}

#[derive(Default)]
struct Handlers {
    list: Vec<(HandlerId, Handler)>,
    next: u64,
}

impl Store {
    /// An empty store for objects of `kind`.
    pub fn new(kind: &'static Kind) -> Self {
        let contents = Contents {
            indexes: kind.indexes.iter().map(|_| HashMap::new()).collect(),
            ..Contents::default()
        };
        Self { kind, contents: RwLock::new(contents), handlers: Mutex::default() }
    }

    /// The kind of its objects.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.contents.read().count
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest resource version that the watch has delivered, be it by an object or a bookmark; empty before
    /// the first list.
    pub fn resource_version(&self) -> Str {
        self.contents.read().resource_version.clone()
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<AnyObject> {
        self.contents.read().namespaces.get(&key.namespace)?.get(&key.name).cloned()
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<AnyObject> {
        let contents = self.contents.read();
        contents.namespaces.values().flat_map(HashMap::values).cloned().collect()
    }

    /// All objects of a namespace, in no order.
    pub fn list_namespace(&self, namespace: &str) -> Vec<AnyObject> {
        let contents = self.contents.read();
        contents.namespaces.get(namespace).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// All objects that the index `name` files under `value`, in no order; none if the kind has no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<AnyObject> {
        let Some(at) = self.kind.indexes.iter().position(|index| index.name == name) else {
            return Vec::new();
        };
        let contents = self.contents.read();
        contents.indexes[at].get(value).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// Adds or replaces one object and moves the store's resource version on.
    pub fn upsert(&self, object: &AnyObject) {
        let handlers = self.handlers.lock();
        let version = object.meta().resource_version.clone();
        let old = {
            let mut contents = self.contents.write();
            contents.resource_version = version;
            contents.insert(self.kind.indexes, object)
        };
        handlers.tell(Delta { old: old.as_ref(), new: Some(object), initial: false, resync: false });
    }

    /// Removes one object; `last` is its final state, as the watch delivered it. The handlers hear of the final
    /// state, so that owners are found even if the last change was missed.
    pub fn remove(&self, last: &AnyObject) {
        let handlers = self.handlers.lock();
        let held = {
            let mut contents = self.contents.write();
            contents.resource_version = last.meta().resource_version.clone();
            contents.remove(self.kind.indexes, &Key::of(last.meta()))
        };
        if held.is_some() {
            handlers.tell(Delta { old: Some(last), new: None, initial: false, resync: false });
        }
    }

    /// Makes the store hold exactly `objects`, the state at `resource_version`: tells of what appeared and changed,
    /// and, for what is no longer there, a deletion with the last state known. An object whose UID changed is told as
    /// a deletion and an addition.
    pub fn replace(&self, objects: Vec<AnyObject>, resource_version: &str) {
        let handlers = self.handlers.lock();
        let mut changes: Vec<(Option<AnyObject>, Option<AnyObject>)> = Vec::new();
        let initial;
        {
            let mut contents = self.contents.write();
            initial = contents.resource_version.is_empty();
            contents.resource_version = resource_version.into();
            let kept: HashSet<Key> = objects.iter().map(|object| Key::of(object.meta())).collect();
            let gone: Vec<Key> = contents.keys().filter(|key| !kept.contains(key)).collect();
            for key in gone {
                changes.push((contents.remove(self.kind.indexes, &key), None));
            }
            for object in objects {
                contents.replace_one(self.kind.indexes, object, &mut changes);
            }
            contents.shrink();
        }
        for (old, new) in &changes {
            handlers.tell(Delta { old: old.as_ref(), new: new.as_ref(), initial, resync: false });
        }
    }

    /// A bookmark: everything up to `resource_version` has been delivered.
    pub fn bookmark(&self, resource_version: &str) {
        self.contents.write().resource_version = resource_version.into();
    }

    /// Tells every handler of every object as unchanged.
    pub fn resync(&self) {
        let handlers = self.handlers.lock();
        if handlers.list.is_empty() {
            return;
        }
        for object in self.list() {
            handlers.tell(Delta { old: Some(&object), new: Some(&object), initial: false, resync: true });
        }
    }

    /// Registers a handler and replays to it what is there.
    pub fn add_handler(&self, handler: Handler) -> HandlerId {
        let mut handlers = self.handlers.lock();
        for object in self.list() {
            handler(Delta { old: None, new: Some(&object), initial: true, resync: false });
        }
        let id = HandlerId(handlers.next);
        handlers.next += 1;
        handlers.list.push((id, handler));
        id
    }

    /// Takes a handler off; it is not called again once this returns.
    pub fn remove_handler(&self, id: HandlerId) {
        self.handlers.lock().list.retain(|(held, _)| *held != id);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("kind", self.kind).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Handlers {
    fn tell(&self, delta: Delta<'_>) {
        for (_, handler) in &self.list {
            handler(delta);
        }
    }
}

impl Contents {
    fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.namespaces.iter().flat_map(|(namespace, objects)| {
            objects.keys().map(|name| Key::new(namespace.clone(), name.clone()))
        })
    }

    fn insert(&mut self, indexes: &[Index], object: &AnyObject) -> Option<AnyObject> {
        let meta = object.meta();
        let key = Key::of(meta);
        let objects = self.namespaces.entry(meta.namespace.clone()).or_default();
        let old = objects.insert(meta.name.clone(), Arc::clone(object));
        match &old {
            Some(old) => self.unindex(indexes, &key, old),
            None => self.count += 1,
        }
        for (index, filed) in indexes.iter().zip(&mut self.indexes) {
            for value in (index.keys)(object.as_ref()) {
                filed.entry(value).or_default().insert(key.clone(), Arc::clone(object));
            }
        }
        old
    }

    fn remove(&mut self, indexes: &[Index], key: &Key) -> Option<AnyObject> {
        let objects = self.namespaces.get_mut(&key.namespace)?;
        let old = objects.remove(&key.name)?;
        if objects.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        self.count -= 1;
        self.unindex(indexes, key, &old);
        Some(old)
    }

    fn unindex(&mut self, indexes: &[Index], key: &Key, object: &AnyObject) {
        for (index, filed) in indexes.iter().zip(&mut self.indexes) {
            for value in (index.keys)(object.as_ref()) {
                if let Some(objects) = filed.get_mut(&value) {
                    objects.remove(key);
                    if objects.is_empty() {
                        filed.remove(&value);
                    }
                }
            }
        }
    }

    fn replace_one(
        &mut self,
        indexes: &[Index],
        object: AnyObject,
        changes: &mut Vec<(Option<AnyObject>, Option<AnyObject>)>,
    ) {
        let key = Key::of(object.meta());
        let held = self.namespaces.get(&key.namespace).and_then(|objects| objects.get(&key.name));
        if let Some(held) = held {
            let same_object = held.meta().uid == object.meta().uid;
            if same_object && held.meta().resource_version == object.meta().resource_version {
                return;
            }
            if !same_object {
                changes.push((self.remove(indexes, &key), None));
            }
        }
        let old = self.insert(indexes, &object);
        changes.push((old, Some(object)));
    }

    fn shrink(&mut self) {
        self.namespaces.shrink_to_fit();
        for objects in self.namespaces.values_mut() {
            objects.shrink_to_fit();
        }
        for filed in &mut self.indexes {
            filed.shrink_to_fit();
        }
    }
}

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

    /// All objects that the index `name` files under `value`, in no order.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<T>> {
        self.store.by_index(name, value).into_iter().filter_map(downcast).collect()
    }
}

/// The object as a concrete kind; `None` when it is another.
pub fn downcast<T: Object>(object: AnyObject) -> Option<Arc<T>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().ok()
}
