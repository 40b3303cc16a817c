//! The usual wake-ups: which keys a change concerns, ready-made.

use std::sync::Arc;

use super::watch::KeyMap;
use crate::informer::Delta;
use crate::model::Key;

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

/// Every change concerns one key: that of a loop whose decisions are about all objects at once.
pub fn constant(key: Key) -> KeyMap {
    Arc::new(move |_: Delta<'_>, add: &mut dyn FnMut(Key)| add(key.clone()))
}
