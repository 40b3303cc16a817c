//! What a store holds: tables of shared objects, by namespace and under the indexes that somebody uses.
//!
//! A table entry is one pointer pair and one tag byte: keys are not copied but read from the object's metadata, and an
//! index value that files a single object (the usual case) costs no table at all. Tables that have become mostly empty
//! are shrunk, so that a passing peak is not paid for ever. Nothing here locks or tells anyone.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use indexmap::{Equivalent, IndexSet};

use crate::api::{AnyObject, Index, IndexKeys, missing};
use crate::random::{HashMap, HashSeed};
use crate::wire::Str;

/// Below this capacity a table is not worth shrinking.
const SHRINK_FLOOR: usize = 64;

/// Objects filed by namespace and name. The hash is the caller's: it is computed once for all tables.
#[derive(Default)]
struct Table(HashTable<AnyObject>);

impl Table {
    fn get(&self, hash: u64, namespace: &str, name: &str) -> Option<&AnyObject> {
        self.0.find(hash, |held| is_at(held, namespace, name))
    }

    fn put(&mut self, hasher: HashSeed, hash: u64, object: &AnyObject) -> Option<AnyObject> {
        let meta = object.meta();
        if let Some(held) = self.0.find_mut(hash, |held| is_at(held, &meta.namespace, &meta.name)) {
            return Some(std::mem::replace(held, Arc::clone(object)));
        }
        self.0.insert_unique(hash, Arc::clone(object), |held| hash_of(hasher, held));
        None
    }

    fn remove(&mut self, hasher: HashSeed, hash: u64, namespace: &str, name: &str) -> Option<AnyObject> {
        let entry = self.0.find_entry(hash, |held| is_at(held, namespace, name)).ok()?;
        let (removed, _) = entry.remove();
        if self.0.capacity() > SHRINK_FLOOR && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2, |held| hash_of(hasher, held));
        }
        Some(removed)
    }
}

fn is_at(object: &AnyObject, namespace: &str, name: &str) -> bool {
    let meta = object.meta();
    meta.name == *name && meta.namespace == *namespace
}

pub(super) fn hash_of(hasher: HashSeed, object: &AnyObject) -> u64 {
    hash_key(hasher, &object.meta().namespace, &object.meta().name)
}

fn hash_key(hasher: HashSeed, namespace: &str, name: &str) -> u64 {
    hasher.hash_one(Place(namespace, name))
}

/// The objects that an index files under one value.
enum Bucket {
    One(AnyObject),
    Many(Table),
}

impl Bucket {
    fn len(&self) -> usize {
        match self {
            Bucket::One(_) => 1,
            Bucket::Many(table) => table.0.len(),
        }
    }

    fn as_iter(&self) -> impl Iterator<Item = &AnyObject> {
        let (one, many) = match self {
            Bucket::One(object) => (Some(object), None),
            Bucket::Many(table) => (None, Some(table.0.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// An index, and what it files.
struct IndexTable {
    index: &'static Index,
    /// Those who have asked for it.
    users: usize,
    filed: HashMap<Str, Bucket>,
}

/// All objects of a store.
#[derive(Default)]
pub(super) struct Contents {
    hasher: HashSeed,
    namespaces: HashMap<Str, Table>,
    indexes: Vec<IndexTable>,
    count: usize,
}

impl Contents {
    /// Files all objects under an index from here on, unless somebody uses it already.
    pub(super) fn add_index(&mut self, index: &'static Index) {
        if let Some(used) = self.indexes.iter_mut().find(|used| used.index.name == index.name) {
            used.users += 1;
            return;
        }
        let (hasher, mut filed) = (self.hasher, HashMap::default());
        for object in self.iter() {
            for value in (index.keys)(object.as_ref()) {
                file(hasher, &mut filed, value, hash_of(hasher, object), object);
            }
        }
        self.indexes.push(IndexTable { index, users: 1, filed });
    }

    /// Number of indexes in use.
    #[cfg(test)]
    pub(super) fn index_count(&self) -> usize {
        self.indexes.len()
    }

    /// Ends one use of an index; with the last, its tables go.
    pub(super) fn remove_index(&mut self, index: &'static Index) {
        if let Some(at) = self.indexes.iter().position(|used| used.index.name == index.name) {
            self.indexes[at].users -= 1;
            if self.indexes[at].users == 0 {
                self.indexes.swap_remove(at);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// By which hashes of keys are made.
    pub(super) fn hasher(&self) -> HashSeed {
        self.hasher
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&AnyObject> {
        let table = self.namespaces.get(namespace)?;
        table.get(hash_key(self.hasher, namespace, name), namespace, name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AnyObject> {
        self.namespaces.values().flat_map(|table| table.0.iter())
    }

    pub(super) fn namespace(&self, namespace: &str) -> impl Iterator<Item = &AnyObject> {
        self.namespaces.get(namespace).into_iter().flat_map(|table| table.0.iter())
    }

    pub(super) fn filed(&self, index: &'static Index, value: &str) -> impl Iterator<Item = &AnyObject> {
        let used = self.indexes.iter().find(|used| used.index.name == index.name);
        used.and_then(|used| used.filed.get(value)).into_iter().flat_map(Bucket::as_iter)
    }

    /// How many objects are filed under a value.
    pub(super) fn count_filed(&self, index: &'static Index, value: &str) -> usize {
        let used = self.indexes.iter().find(|used| used.index.name == index.name);
        used.and_then(|used| used.filed.get(value)).map_or(0, Bucket::len)
    }

    /// Makes room for the objects of a list. A table that grows as it is filled hashes what it holds again and again, and
    /// looks at every object for that.
    pub(super) fn reserve(&mut self, list: &StoreSnapshot) {
        let hasher = self.hasher;
        for (namespace, count) in list.namespaces.iter().filter(|(_, count)| **count > 0) {
            let Table(table) = self.namespaces.entry(namespace.clone()).or_default();
            table.reserve(count.saturating_sub(table.len()), |held| hash_of(hasher, held));
        }
    }

    /// Files `object` and returns the one that it replaces.
    pub(super) fn insert(&mut self, object: &AnyObject) -> Option<AnyObject> {
        let meta = object.meta();
        let hash = hash_key(self.hasher, &meta.namespace, &meta.name);
        let table = match self.namespaces.get_mut(meta.namespace.as_str()) {
            Some(table) => table,
            None => self.namespaces.entry(meta.namespace.clone()).or_default(),
        };
        let old = table.put(self.hasher, hash, object);
        if old.is_none() {
            self.count += 1;
        }
        for IndexTable { index, filed, .. } in &mut self.indexes {
            let values = (index.keys)(object.as_ref());
            let stale: IndexKeys = old.as_ref().map_or_else(IndexKeys::new, |old| (index.keys)(old.as_ref()));
            for value in missing(&stale, &values) {
                unfile(self.hasher, filed, value, hash, object);
            }
            for value in values {
                file(self.hasher, filed, value, hash, object);
            }
        }
        old
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<AnyObject> {
        let hash = hash_key(self.hasher, namespace, name);
        let table = self.namespaces.get_mut(namespace)?;
        let old = table.remove(self.hasher, hash, namespace, name)?;
        if table.0.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.count -= 1;
        for IndexTable { index, filed, .. } in &mut self.indexes {
            for value in (index.keys)(old.as_ref()) {
                unfile(self.hasher, filed, &value, hash, &old);
            }
        }
        Some(old)
    }

    /// Gives spare capacity back.
    pub(super) fn shrink(&mut self) {
        let hasher = self.hasher;
        self.namespaces.shrink_to_fit();
        for table in self.namespaces.values_mut() {
            table.0.shrink_to_fit(|held| hash_of(hasher, held));
        }
        for used in &mut self.indexes {
            used.filed.shrink_to_fit();
        }
    }
}

fn file(hasher: HashSeed, filed: &mut HashMap<Str, Bucket>, value: Str, hash: u64, object: &AnyObject) {
    let meta = object.meta();
    match filed.get_mut(value.as_str()) {
        None => {
            filed.insert(value, Bucket::One(Arc::clone(object)));
        }
        Some(Bucket::One(held)) if is_at(held, &meta.namespace, &meta.name) => *held = Arc::clone(object),
        Some(bucket @ Bucket::One(_)) => {
            let first = std::mem::replace(bucket, Bucket::Many(Table::default()));
            if let (Bucket::One(first), Bucket::Many(table)) = (first, bucket) {
                table.put(hasher, hash_of(hasher, &first), &first);
                table.put(hasher, hash, object);
            }
        }
        Some(Bucket::Many(table)) => {
            table.put(hasher, hash, object);
        }
    }
}

fn unfile(hasher: HashSeed, filed: &mut HashMap<Str, Bucket>, value: &Str, hash: u64, object: &AnyObject) {
    let meta = object.meta();
    let Some(bucket) = filed.get_mut(value.as_str()) else { return };
    let last = match bucket {
        Bucket::One(held) => is_at(held, &meta.namespace, &meta.name),
        Bucket::Many(table) => {
            table.remove(hasher, hash, &meta.namespace, &meta.name);
            table.0.is_empty()
        }
    };
    if last {
        filed.remove(value.as_str());
        if filed.capacity() > SHRINK_FLOOR && filed.len() < filed.capacity() / 4 {
            filed.shrink_to(filed.len() * 2);
        }
    }
}

/// A set of objects that is being put together, at most one per namespace and name: a list in progress. It keeps the order
/// in which they came (but for the last, which takes the place of one that goes), which is that in which they lie in memory: whoever goes through it finds the next one at hand.
#[derive(Default)]
pub(crate) struct StoreSnapshot {
    objects: IndexSet<Named, HashSeed>,
    /// How many objects there are of each namespace.
    namespaces: HashMap<Str, usize>,
}

/// An object, compared by its namespace and name alone.
struct Named(AnyObject);

/// The namespace and name of an object.
struct Place<'a>(&'a str, &'a str);

impl Hash for Place<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
        self.1.hash(state);
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let meta = self.0.meta();
        Place(&meta.namespace, &meta.name).hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        let meta = other.0.meta();
        is_at(&self.0, &meta.namespace, &meta.name)
    }
}

impl Eq for Named {}

impl Equivalent<Named> for Place<'_> {
    fn equivalent(&self, named: &Named) -> bool {
        is_at(&named.0, self.0, self.1)
    }
}

impl StoreSnapshot {
    /// Adds an object; a later one replaces an earlier one of the same name.
    pub(crate) fn put(&mut self, object: AnyObject) {
        let namespace = object.meta().namespace.clone();
        if self.objects.replace(Named(object)).is_none() {
            *self.namespaces.entry(namespace).or_default() += 1;
        }
    }

    /// Takes an object out again.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) {
        if self.objects.swap_remove(&Place(namespace, name))
            && let Some(count) = self.namespaces.get_mut(namespace)
        {
            *count -= 1;
        }
    }

    /// Whether there is an object of this name.
    pub(super) fn contains(&self, namespace: &str, name: &str) -> bool {
        self.objects.contains(&Place(namespace, name))
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn into_objects(self) -> impl Iterator<Item = AnyObject> + Send + use<> {
        self.objects.into_iter().map(|Named(object)| object)
    }
}

impl FromIterator<AnyObject> for StoreSnapshot {
    fn from_iter<I: IntoIterator<Item = AnyObject>>(objects: I) -> Self {
        let mut snapshot = Self::default();
        for object in objects {
            snapshot.put(object);
        }
        snapshot
    }
}
