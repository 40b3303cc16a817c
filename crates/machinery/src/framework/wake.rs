//! The usual wake-ups: which keys a change concerns, ready-made. Those that look something up know what the caches know: an
//! object that is not there yet brings its own key when it comes.

use std::sync::Arc;

use super::watch::{KeyMap, Selecting};
use crate::api::distinct;
use crate::api::meta::ObjectMeta;
use crate::api::{IndexKeys, Object};
use crate::informer::{Delta, Indexed, Lister};
use crate::model::Key;
use crate::model::finalizers::due;
use crate::model::selects::Selects;

/// A change of an object concerns its own key, be it new, changed or gone.
pub fn own() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let Some(object) = delta.latest() {
            add(Key::of(object.meta()));
        }
    })
}

/// A change of an object concerns its own key, as long as it is there.
pub fn existing() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let Some(object) = delta.new {
            add(Key::of(object.meta()));
        }
    })
}

/// A change of an object concerns its own key, if there is something to decide about this finalizer of it.
pub fn protected(finalizer: &'static str) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let Some(object) = delta.new.filter(|object| due(object.meta(), finalizer).is_some()) {
            add(Key::of(object.meta()));
        }
    })
}

/// Every change concerns one key: that of a loop whose decisions are about all objects at once.
pub fn constant(key: Key) -> KeyMap {
    Arc::new(move |_: Delta<'_>, add: &mut dyn FnMut(Key)| add(key.clone()))
}

/// A change of an object concerns those that an index files under any of the values that it had or has. What is there at the
/// start, and at a resync, is told of those too.
pub fn by_index<T: Object, O: Object>(index: Indexed<O>, values: fn(&T) -> IndexKeys) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if !delta.is_news() {
            return;
        }
        let (old, new) = delta.typed::<T>();
        let (old, new) = (old.map(values).unwrap_or_default(), new.map(values).unwrap_or_default());
        for object in distinct(old.into_iter().chain(new)).iter().flat_map(|value| index.filed(value)) {
            add(Key::of(object.meta()));
        }
    })
}

/// A change of an object concerns all that select it, and when its labels changed all that did. Changes between two states
/// that are `alike` to who selects concern nobody, unless the labels changed.
pub fn selecting<T: Object, O: Selects>(selecting: Selecting<O>, alike: fn(&T, &T) -> bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if !delta.is_news() {
            return;
        }
        let mut all = |object: &T| selecting.keys(object.meta(), add);
        match delta.typed::<T>() {
            (Some(old), Some(new)) => {
                let relabeled = old.meta().labels != new.meta().labels;
                if relabeled {
                    all(old);
                }
                if relabeled || !alike(old, new) {
                    all(new);
                }
            }
            (old, new) => old.into_iter().chain(new).for_each(all),
        }
    })
}

/// A change of an object concerns its controller, if that is of the owners' kind; when the controller changed, both. Changes
/// between two states that are `alike` to the owner concern nobody.
pub fn controller<T: Object, O: Object>(owners: Lister<O>, alike: fn(&T, &T) -> bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if delta.is_news() {
            tell_controllers(delta.typed::<T>(), &owners, alike, add);
        }
    })
}

/// [`controller`], for owners that adopt what they select: an object without a controller that appeared, was relabeled or
/// released concerns all that select it.
pub fn claiming<T: Object, O: Selects>(
    owners: Lister<O>,
    selecting: Selecting<O>,
    alike: fn(&T, &T) -> bool,
) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if !delta.is_news() {
            return;
        }
        let (old, new) = delta.typed::<T>();
        tell_controllers((old, new), &owners, alike, add);
        let Some(free) = new.map(Object::meta).filter(|meta| meta.controller().is_none()) else { return };
        let appeared =
            old.map(Object::meta).is_none_or(|old| old.labels != free.labels || old.controller().is_some());
        if appeared && !free.is_deleting() {
            selecting.keys(free, add);
        }
    })
}

/// The key of the controller of an object, if it is one of these owners and is there.
pub fn controller_key<O: Object>(owners: &Lister<O>, object: &ObjectMeta) -> Option<Key> {
    let owner = object.controller().filter(|owner| owner.kind == owners.store().kind().kind)?;
    let key = Key::new(object.namespace.clone(), owner.name.clone());
    owners.get(&key).filter(|found| found.meta().uid == owner.uid)?;
    Some(key)
}

fn tell_controllers<T: Object, O: Object>(
    (old, new): (Option<&T>, Option<&T>),
    owners: &Lister<O>,
    alike: fn(&T, &T) -> bool,
    add: &mut dyn FnMut(Key),
) {
    if old.zip(new).is_some_and(|(old, new)| alike(old, new)) {
        return;
    }
    let (before, now) = (old.map(Object::meta), new.map(Object::meta));
    let has_moved =
        now.is_none() || before.and_then(ObjectMeta::controller) != now.and_then(ObjectMeta::controller);
    let left = before.filter(|_| has_moved);
    left.into_iter().chain(now).filter_map(|meta| controller_key(owners, meta)).for_each(add);
}
