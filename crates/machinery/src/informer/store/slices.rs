//! Work on many objects, in slices: between two of them the handlers' lock is free, and tasks yield to others.
//!
//! - [`Replacement`]: the store gets other contents. Readers see all of them at once, but for the first list; handlers are told slice by slice.
//! - [`Store::resync_slices`]: handlers hear of everything again.
//! - [`Replay`]: a handler that is new hears of what was there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::yield_now;

use super::contents::{Contents, StoreSnapshot};
use super::{Delta, HandlerId, Handlers, Store};
use crate::api::AnyObject;
use crate::model::Key;
use crate::random::{HashSeed, HashSet};
use crate::wire::Str;

/// Objects of which handlers are told in one go, at most.
pub(super) const SLICE: usize = 512;

/// Something that the contents show and the handlers were not told of yet.
pub(super) enum Untold {
    /// A change of one object: what was held before, and what is held now.
    Change(Option<AnyObject>, Option<AnyObject>),
    /// All changes up to this resource version come before.
    Reached(Str),
}

/// What a handler has yet to hear of the objects that were there when it was registered.
///
/// Objects are dealt out to slices by a hash of their keys, so the key of any object says whether its slice has been told.
pub(super) struct Replay {
    hasher: HashSeed,
    slices: VecDeque<Vec<AnyObject>>,
    count: u64,
    /// Objects of slices to come that have changed meanwhile: the handler knows them already.
    early: HashSet<Key>,
}

impl Replay {
    /// A replay of everything that is held; `None` if that is nothing.
    pub(super) fn of(contents: &Contents, slice: usize) -> Option<Self> {
        let total = contents.len();
        if total == 0 {
            return None;
        }
        // Hashes do not fill all slices alike.
        let count = if total <= slice { 1 } else { total.div_ceil(slice.div_ceil(2)) };
        let mut slices = VecDeque::from(vec![Vec::new(); count]);
        let (hasher, count) = (contents.hasher(), count as u64);
        for object in contents.iter() {
            slices[slice_of(hasher, count, object)].push(Arc::clone(object));
        }
        Some(Self { hasher, slices, count, early: HashSet::default() })
    }

    /// Whether this object, which is about to change or to be told of, is still to be replayed. From here on it is not.
    pub(super) fn overtakes(&mut self, object: &AnyObject) -> bool {
        let next = self.count as usize - self.slices.len();
        slice_of(self.hasher, self.count, object) >= next && self.early.insert(Key::of(object.meta()))
    }

    /// The objects to tell of next; `None` if all were told.
    pub(super) fn next_slice(&mut self) -> Option<Vec<AnyObject>> {
        let mut slice = self.slices.pop_front()?;
        if !self.early.is_empty() {
            slice.retain(|object| !self.early.remove(&Key::of(object.meta())));
        }
        Some(slice)
    }

    pub(super) fn is_over(&self) -> bool {
        self.slices.is_empty()
    }
}

fn slice_of(hasher: HashSeed, count: u64, object: &AnyObject) -> usize {
    (super::contents::hash_of(hasher, object) % count) as usize
}

/// Other contents of a store on their way.
pub(super) struct Replacement<'a> {
    store: &'a Store,
    version: Str,
    phase: Phase,
}

type Objects = Box<dyn Iterator<Item = AnyObject> + Send>;

enum Phase {
    /// What an earlier replacement has left untold, if it was cancelled.
    Begin(StoreSnapshot),
    /// The first list: the store is filled and its handlers are told, slice by slice. Nobody relies on a store before it has a
    /// resource version.
    Fill(Objects),
    /// Objects that are no longer there are searched for.
    Compare {
        held: std::vec::IntoIter<AnyObject>,
        objects: StoreSnapshot,
        gone: Vec<AnyObject>,
    },
    /// Objects that are new or have changed are searched for.
    Sift {
        objects: Objects,
        gone: Vec<AnyObject>,
        changed: Vec<AnyObject>,
    },
    /// The handlers are told of what readers see already.
    Tell,
    Over,
}

impl<'a> Replacement<'a> {
    pub(super) fn new(store: &'a Store, objects: StoreSnapshot, version: &str) -> Self {
        Self { store, version: version.into(), phase: Phase::Begin(objects) }
    }

    /// Goes on by one slice; whether there is more to do. Nobody else must change the store before there is not.
    pub(super) fn step(&mut self) -> bool {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Begin(objects) => self.begin(objects),
            Phase::Fill(objects) => self.fill(objects),
            Phase::Compare { mut held, objects, mut gone } => {
                let slice = held.by_ref().take(self.store.slice);
                gone.extend(slice.filter(|held| {
                    let meta = held.meta();
                    !objects.contains(&meta.namespace, &meta.name)
                }));
                if held.len() > 0 {
                    Phase::Compare { held, objects, gone }
                } else {
                    Phase::Sift { objects: Box::new(objects.into_objects()), gone, changed: Vec::new() }
                }
            }
            Phase::Sift { objects, gone, changed } => self.sift(objects, gone, changed),
            Phase::Tell => {
                let has_more = self.store.tell_untold(&mut self.store.handlers.lock());
                if has_more { Phase::Tell } else { Phase::Over }
            }
            Phase::Over => Phase::Over,
        };
        !matches!(self.phase, Phase::Over)
    }

    fn begin(&self, objects: StoreSnapshot) -> Phase {
        let mut handlers = self.store.handlers.lock();
        if self.store.tell_untold(&mut handlers) {
            return Phase::Begin(objects);
        }
        drop(handlers);
        let mut contents = self.store.contents.write();
        contents.reserve(&objects);
        if contents.len() == 0 && self.store.resource_version.read().is_empty() {
            return Phase::Fill(Box::new(objects.into_objects()));
        }
        drop(contents);
        Phase::Compare { held: self.store.list().into_iter(), objects, gone: Vec::new() }
    }

    fn fill(&self, mut objects: Objects) -> Phase {
        let slice: Vec<AnyObject> = objects.by_ref().take(self.store.slice).collect();
        let mut handlers = self.store.handlers.lock();
        {
            let mut contents = self.store.contents.write();
            for object in &slice {
                let held = contents.insert(object);
                debug_assert!(held.is_none(), "the names in a list are unique");
            }
        }
        let initial = self.store.resource_version.read().is_empty();
        for object in &slice {
            let delta = Delta { old: None, new: Some(object), initial, resync: false };
            handlers.tell(self.store.kind, None, delta);
        }
        if slice.len() == self.store.slice {
            return Phase::Fill(objects);
        }
        self.store.contents.write().shrink();
        handlers.untold.push_back(Untold::Reached(self.version.clone()));
        self.store.tell_untold(&mut handlers);
        Phase::Over
    }

    fn sift(&self, mut objects: Objects, gone: Vec<AnyObject>, mut changed: Vec<AnyObject>) -> Phase {
        let mut seen = 0;
        {
            let contents = self.store.contents.read();
            for object in objects.by_ref().take(self.store.slice) {
                seen += 1;
                let meta = object.meta();
                let held = contents.get(&meta.namespace, &meta.name).map(|held| held.meta());
                let is_known = held.is_some_and(|held| {
                    held.uid == meta.uid && held.resource_version == meta.resource_version
                });
                if !is_known {
                    changed.push(object);
                }
            }
        }
        if seen == self.store.slice {
            return Phase::Sift { objects, gone, changed };
        }
        self.apply(gone, changed);
        Phase::Tell
    }

    /// Makes the changes visible, all at once: a reader that saw the end of one object and not the beginning of its successor would
    /// draw wrong conclusions.
    fn apply(&self, gone: Vec<AnyObject>, changed: Vec<AnyObject>) {
        let mut handlers = self.store.handlers.lock();
        handlers.untold.reserve(gone.len() + changed.len() + 1);
        let mut contents = self.store.contents.write();
        for held in gone {
            contents.remove(&held.meta().namespace, &held.meta().name);
            handlers.untold.push_back(Untold::Change(Some(held), None));
        }
        for object in changed {
            match contents.insert(&object) {
                Some(held) if held.meta().uid != object.meta().uid => {
                    handlers.untold.push_back(Untold::Change(Some(held), None));
                    handlers.untold.push_back(Untold::Change(None, Some(object)));
                }
                held => handlers.untold.push_back(Untold::Change(held, Some(object))),
            }
        }
        contents.shrink();
        handlers.untold.push_back(Untold::Reached(self.version.clone()));
    }
}

impl Store {
    /// Tells the handlers of one slice of what the contents show already; whether there is more.
    pub(super) fn tell_untold(&self, handlers: &mut Handlers) -> bool {
        for _ in 0..self.slice {
            let Some(next) = handlers.untold.pop_front() else { return false };
            match next {
                Untold::Change(old, new) => {
                    let initial = self.resource_version.read().is_empty();
                    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial, resync: false };
                    handlers.tell(self.kind, old.as_ref(), delta);
                }
                Untold::Reached(version) => {
                    self.advance(handlers, &version);
                    self.has_list.store(true, Ordering::Release);
                    handlers.waiters.replaced(|key| self.get(key));
                }
            }
            handlers.told += 1;
        }
        !handlers.untold.is_empty()
    }

    /// [`Store::replace`] in slices.
    pub(crate) async fn replace_with(&self, objects: StoreSnapshot, resource_version: &str) {
        let mut replacement = Replacement::new(self, objects, resource_version);
        while replacement.step() {
            yield_now().await;
        }
    }

    /// Tells every handler of every object as unchanged, in slices. What goes or changes meanwhile is told as it is then.
    pub async fn resync(&self) {
        let mut objects = self.list().into_iter();
        while self.resync_slice(&mut objects) {
            yield_now().await;
        }
    }

    /// Tells of the next objects; whether there are more.
    fn resync_slice(&self, objects: &mut std::vec::IntoIter<AnyObject>) -> bool {
        let mut handlers = self.handlers.lock();
        if handlers.list.is_empty() {
            return false;
        }
        if self.tell_untold(&mut handlers) {
            return true;
        }
        for listed in objects.by_ref().take(self.slice) {
            let meta = listed.meta();
            let Some(held) = self.find(&meta.namespace, &meta.name) else { continue };
            let delta = Delta { old: Some(&held), new: Some(&held), initial: false, resync: true };
            handlers.tell(self.kind, Some(&held), delta);
        }
        objects.len() > 0
    }

    /// Tells a new handler of the next objects that were there before; whether there are more.
    pub(in crate::informer) fn replay_slice(&self, id: HandlerId) -> bool {
        let mut handlers = self.handlers.lock();
        let Some(registered) = handlers.list.iter_mut().find(|registered| registered.id == id) else {
            return false;
        };
        registered.replay_slice(self.kind)
    }
}
