//! The store: what an informer holds, with its indexes and its handlers.
//!
//! Objects are filed by namespace and name, and under the indexes that somebody uses ([`Indexed`]). Reads share a lock that is never held
//! while anything else happens, and clone reference counts only.
//!
//! # Order
//! Changes are made one at a time, by one task: a change is first visible to readers, then told to every handler, and only
//! then does [`Store::resource_version`] move on. So whoever sees a resource version there knows that every change up to it
//! has been told. A handler registered at any moment sees every object exactly once, then every change of it; while it has yet
//! to hear of some objects, it hears of others' changes. Those who wait for something ([`Awaited`]) are woken last.
//!
//! Handlers are told of many objects in slices ([`slices`]).
//!
//! # Locks
//! The handlers' lock is held for one change or one slice, never longer. A handler runs with it held and no other. It may read any store, its own too
//! (which shows the change that it is told of, or, within a list that is being replaced, later ones). It must not
//! block, and must not change a store, or register or drop a handler, its own or another's: that would wait for itself.
//! Index functions run with the contents locked; they look at their argument only.

mod awaited;
mod contents;
mod dependents;
mod lister;
mod slices;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::deliveries::Deliveries;
use crate::api::{AnyObject, Index, Kind, Object};
use crate::model::Key;
use crate::wire::Str;
use contents::Contents;
pub(crate) use contents::StoreSnapshot;
pub use dependents::Dependents;
pub use lister::{Indexed, Labeled, Lister, downcast};

use awaited::Waiters;
pub use awaited::{Awaited, Wake};
use slices::{Replacement, Replay, SLICE, Untold};

/// A change of one object: `old` is absent when it appeared, `new` when it is gone. Both are there for an update and
/// for a resync, where they are the same.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The object before; for one that is gone, its final state.
    pub old: Option<&'a AnyObject>,
    /// The object now.
    pub new: Option<&'a AnyObject>,
    /// Whether it belongs to a replay of what was there already: at a handler's registration or the first list.
    pub initial: bool,
    /// Whether it is a periodic resync: nothing changed.
    pub resync: bool,
}

impl<'a> Delta<'a> {
    /// Whether something has changed: it is neither of a replay nor of a resync.
    pub fn is_news(&self) -> bool {
        !self.initial && !self.resync
    }

    /// Says in the log of `-v=6` what was seen.
    fn log(&self, kind: &Kind) {
        let Some(meta) = self.latest().map(|object| object.meta()) else { return };
        let (object, version, change) = (Key::of(meta), &meta.resource_version, self.change());
        tracing::trace!(%kind, %object, %version, change, "seen");
    }

    /// What has become of the object.
    pub(crate) fn change(&self) -> &'static str {
        match (self.old, self.new) {
            (None, _) => "added",
            (Some(_), Some(_)) => "updated",
            (Some(_), None) => "deleted",
        }
    }

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

/// Hears of changes, in the informer's task: it must not block; it adds keys to queues. See "Locks" of this module for
/// what it may touch. One that panics is reported and stays registered; the others go on.
pub type EventHandler = Arc<dyn Fn(Delta<'_>) + Send + Sync>;

/// Names a registered handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId(u64);

/// A handler's panics so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerPanics {
    /// Whose handler it is, as it was registered.
    pub handler: Arc<str>,
    /// How many.
    pub count: u64,
    /// What the last one said.
    pub last: String,
}

/// Objects that [`Store::estimated_bytes`] looks at.
const SAMPLE: usize = 32;

/// The cached objects of one kind.
pub struct Store {
    kind: &'static Kind,
    contents: RwLock<Contents>,
    handlers: Mutex<Handlers>,
    /// Apart from the contents, because it moves after the handlers were told.
    resource_version: RwLock<Str>,
    /// Whether the handlers have received a complete list. `resource_version` does not show this: a list need not have a version.
    has_list: AtomicBool,
    /// Objects of which handlers are told in one go, at most.
    slice: usize,
}

#[derive(Default)]
struct Handlers {
    list: Vec<Registered>,
    next: u64,
    waiters: Waiters,
    deliveries: Vec<Weak<Deliveries>>,
    /// What comes before any other change.
    untold: VecDeque<Untold>,
    /// How many of these have been told since the store began.
    told: u64,
}

struct Registered {
    id: HandlerId,
    name: Arc<str>,
    handler: EventHandler,
    panics: Option<Box<HandlerPanics>>,
    replay: Option<Box<Replay>>,
    /// The first of [`Handlers::untold`] that it is told of, by their number: its replay shows what the earlier ones have changed.
    from: u64,
}

impl Store {
    /// An empty store for objects of `kind`.
    pub fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            contents: RwLock::default(),
            handlers: Mutex::default(),
            resource_version: RwLock::default(),
            has_list: AtomicBool::new(false),
            slice: SLICE,
        }
    }

    /// The kind of its objects.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.contents.read().len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest resource version up to which every change has been told to every handler; empty before the first
    /// list. Readers may see objects that are newer, never ones that are older.
    pub fn resource_version(&self) -> Str {
        self.resource_version.read().clone()
    }

    /// Returns whether the store has received a complete list. The API server of an aggregated API may send a list without a resource version.
    pub fn is_filled(&self) -> bool {
        self.has_list.load(Ordering::Acquire) || !self.resource_version.read().is_empty()
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<AnyObject> {
        self.find(&key.namespace, &key.name)
    }

    /// The object of this namespace and name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<AnyObject> {
        self.contents.read().get(namespace, name).cloned()
    }

    /// Bytes that the encodings of all objects have together, from a sample of them: hash tables hold them in an order
    /// that has nothing to do with their size.
    pub fn estimated_bytes(&self) -> usize {
        let (sample, count) = {
            let contents = self.contents.read();
            (contents.iter().take(SAMPLE).cloned().collect::<Vec<_>>(), contents.len())
        };
        let bytes: usize = sample.iter().map(|object| object.size()).sum();
        bytes * count / sample.len().max(1)
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<AnyObject> {
        let contents = self.contents.read();
        let mut objects = Vec::with_capacity(contents.len());
        objects.extend(contents.iter().cloned());
        objects
    }

    /// Number of objects in a namespace.
    pub fn count_namespace(&self, namespace: &str) -> usize {
        self.contents.read().namespace(namespace).count()
    }

    /// All objects of a namespace, in no order.
    pub fn list_namespace(&self, namespace: &str) -> Vec<AnyObject> {
        self.contents.read().namespace(namespace).cloned().collect()
    }

    /// The objects of a namespace that `wanted` accepts, in no order. It runs with the contents locked and must look at
    /// its argument only.
    pub fn select(&self, namespace: &str, wanted: impl Fn(&dyn Object) -> bool) -> Vec<AnyObject> {
        self.contents.read().namespace(namespace).filter(|held| wanted(held.as_ref())).cloned().collect()
    }

    /// Files all objects under an index for as long as what is returned lives. Several users share one table.
    fn use_index(self: &Arc<Self>, index: &'static Index) -> UsedIndex {
        self.contents.write().add_index(index);
        UsedIndex { store: Arc::clone(self), index }
    }

    /// Adds or replaces one object, tells of it, and moves the resource version on. An object whose UID changed is told
    /// as a deletion and an addition.
    pub fn upsert(&self, object: &AnyObject) {
        let mut handlers = self.lock_told();
        let old = self.contents.write().insert(object);
        match &old {
            Some(old) if old.meta().uid != object.meta().uid => {
                handlers.tell(self.kind, Some(old), change(Some(old), None));
                handlers.tell(self.kind, None, change(None, Some(object)));
            }
            old => handlers.tell(self.kind, old.as_ref(), change(old.as_ref(), Some(object))),
        }
        self.advance(&mut handlers, &object.meta().resource_version);
        handlers.wake(object, Some(object));
    }

    /// Removes one object, tells of it, and moves the resource version on. `last` is its final state, as the watch
    /// delivered it, and it is what the handlers hear of, so that owners are found even if the last change was missed.
    pub fn remove(&self, last: &AnyObject) {
        let meta = last.meta();
        let mut handlers = self.lock_told();
        let held = self.contents.write().remove(&meta.namespace, &meta.name);
        if held.is_some() {
            handlers.tell(self.kind, held.as_ref(), change(Some(last), None));
        }
        self.advance(&mut handlers, &meta.resource_version);
        handlers.wake(last, None);
    }

    /// Removes the object at `key`, of which no final state can be had; the handlers hear of the last state known.
    pub fn remove_key(&self, key: &Key, resource_version: &str) {
        let mut handlers = self.lock_told();
        let held = self.contents.write().remove(&key.namespace, &key.name);
        if held.is_some() {
            handlers.tell(self.kind, held.as_ref(), change(held.as_ref(), None));
        }
        // The version of an object that cannot be decoded may be unknown.
        if !resource_version.is_empty() {
            self.advance(&mut handlers, &resource_version.into());
        }
        if let Some(held) = &held {
            handlers.wake(held, None);
        }
    }

    /// Makes the store hold exactly `objects`, the state at `resource_version`: tells of what appeared and changed,
    /// and, for what is no longer there, a deletion with the last state known. An object whose UID changed is told as
    /// a deletion and an addition; one whose UID and resource version are those of the object held is left as it is
    /// and not told. Does not yield: for stores of some objects.
    pub fn replace(&self, objects: Vec<AnyObject>, resource_version: &str) {
        let mut replacement = Replacement::new(self, objects.into_iter().collect(), resource_version);
        while replacement.step() {}
    }

    /// Tells of everything that is delivered from here on, bookmarks included.
    pub fn tell(&self, deliveries: &Arc<Deliveries>) {
        self.handlers.lock().deliveries.push(Arc::downgrade(deliveries));
    }

    /// An object of the kind was written at this resource version: a watch that does not show that in time is late.
    pub(super) fn wrote(&self, version: u64) {
        self.handlers
            .lock()
            .deliveries
            .retain(|each| each.upgrade().inspect(|each| each.wrote(version)).is_some());
    }

    /// A bookmark: everything up to `resource_version` has been delivered.
    pub fn bookmark(&self, resource_version: &str) {
        self.advance(&mut self.lock_told(), &resource_version.into());
    }

    /// Registers a handler and replays to it what is there. `name` says in reports whose it is. Does not yield: for stores of some
    /// objects.
    pub fn add_handler(&self, name: impl Into<Arc<str>>, handler: EventHandler) -> HandlerId {
        let id = self.begin_handler(name, handler);
        while self.replay_slice(id) {}
        id
    }

    /// Registers a handler, which hears of all changes from here on. What is there is replayed by [`Store::replay_slice`].
    pub(super) fn begin_handler(&self, name: impl Into<Arc<str>>, handler: EventHandler) -> HandlerId {
        let mut handlers = self.handlers.lock();
        let id = HandlerId(handlers.next);
        handlers.next += 1;
        let from = handlers.told + handlers.untold.len() as u64;
        let replay = Replay::of(&self.contents.read(), self.slice).map(Box::new);
        handlers.list.push(Registered { id, name: name.into(), handler, panics: None, replay, from });
        id
    }

    /// Takes a handler off; it is not called again once this returns.
    pub fn remove_handler(&self, id: HandlerId) {
        let removed = {
            let mut handlers = self.handlers.lock();
            let at = handlers.list.iter().position(|registered| registered.id == id);
            at.map(|at| handlers.list.remove(at))
        };
        // What the handler captured is dropped without the lock: it may well be a handle on a store.
        drop(removed);
    }

    /// Takes all handlers off: the store is not kept up to date any more.
    pub(crate) fn remove_all_handlers(&self) {
        let removed = {
            let mut handlers = self.handlers.lock();
            (std::mem::take(&mut handlers.list), std::mem::take(&mut handlers.untold))
        };
        drop(removed);
    }

    /// Number of handlers.
    pub fn handler_count(&self) -> usize {
        self.handlers.lock().list.len()
    }

    /// The handlers that have panicked since they were registered: each may have missed a change.
    pub fn handler_panics(&self) -> Vec<HandlerPanics> {
        self.handlers.lock().list.iter().filter_map(|held| held.panics.as_deref().cloned()).collect()
    }

    /// The handlers, once they have been told of all that the contents show. Something is left to tell only if a replacement was
    /// cancelled.
    fn lock_told(&self) -> MutexGuard<'_, Handlers> {
        let mut handlers = self.handlers.lock();
        while self.tell_untold(&mut handlers) {}
        handlers
    }

    /// Called when the handlers have been told.
    fn advance(&self, handlers: &mut Handlers, resource_version: &Str) {
        *self.resource_version.write() = resource_version.clone();
        handlers.waiters.reached(resource_version);
        handlers
            .deliveries
            .retain(|each| each.upgrade().inspect(|each| each.delivered(resource_version)).is_some());
    }
}

/// An index of a store in use.
struct UsedIndex {
    store: Arc<Store>,
    index: &'static Index,
}

impl UsedIndex {
    /// All objects that the index files under `value`, in no order.
    fn filed(&self, value: &str) -> Vec<AnyObject> {
        self.store.contents.read().filed(self.index, value).cloned().collect()
    }

    /// Of the objects that the index files under all of `values` those that `wanted` accepts, and perhaps others that it accepts,
    /// in no order. It runs with the contents locked and must look at its argument only.
    fn select(&self, values: &[Str], wanted: impl Fn(&dyn Object) -> bool) -> Vec<AnyObject> {
        let contents = self.store.contents.read();
        let fewest = values.iter().min_by_key(|value| contents.count_filed(self.index, value));
        let filed = fewest.into_iter().flat_map(|value| contents.filed(self.index, value));
        filed.filter(|held| wanted(held.as_ref())).cloned().collect()
    }
}

impl Drop for UsedIndex {
    fn drop(&mut self) {
        self.store.contents.write().remove_index(self.index);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("kind", self.kind).field("len", &self.len()).finish_non_exhaustive()
    }
}

fn change<'a>(old: Option<&'a AnyObject>, new: Option<&'a AnyObject>) -> Delta<'a> {
    Delta { old, new, initial: false, resync: false }
}

impl Handlers {
    /// Tells every handler of a change of an object that was `held` before.
    fn tell(&mut self, kind: &Kind, held: Option<&AnyObject>, delta: Delta<'_>) {
        if tracing::enabled!(tracing::Level::TRACE) && delta.is_news() {
            delta.log(kind);
        }
        for registered in self.list.iter_mut().filter(|registered| registered.from <= self.told) {
            registered.overtake(kind, held, &delta);
            registered.tell(kind, delta);
        }
    }

    /// Wakes those who wait for this object, which is `held` now.
    fn wake(&mut self, object: &AnyObject, held: Option<&AnyObject>) {
        if self.waiters.know_objects() {
            self.waiters.changed(&Key::of(object.meta()), held);
        }
    }
}

impl Registered {
    /// A change that comes while its object has yet to be replayed: that goes first.
    fn overtake(&mut self, kind: &Kind, held: Option<&AnyObject>, delta: &Delta<'_>) {
        let Some(object) = delta.latest() else { return };
        if self.replay.as_mut().is_some_and(|replay| replay.overtakes(object))
            && let Some(held) = held
        {
            self.tell(kind, Delta { old: None, new: Some(held), initial: true, resync: false });
        }
    }

    /// Tells of the next objects that were there before; whether there are more.
    fn replay_slice(&mut self, kind: &Kind) -> bool {
        let slice = self.replay.as_mut().and_then(|replay| replay.next_slice());
        for object in slice.iter().flatten() {
            self.tell(kind, Delta { old: None, new: Some(object), initial: true, resync: false });
        }
        if self.replay.as_ref().is_some_and(|replay| replay.is_over()) {
            self.replay = None;
        }
        self.replay.is_some()
    }

    fn tell(&mut self, kind: &Kind, delta: Delta<'_>) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.handler)(delta))) else { return };
        let last = super::panic_text(panic.as_ref());
        let object = delta.latest().map(|object| Key::of(object.meta()).to_string());
        tracing::error!(handler = %self.name, %kind, object, panic = %last, "An event handler panicked");
        let panics = self.panics.get_or_insert_with(|| {
            Box::new(HandlerPanics { handler: Arc::clone(&self.name), count: 0, last: String::new() })
        });
        panics.count += 1;
        panics.last = last;
    }
}
