//! Which Endpoints a change of Endpoints concerns. Decides nothing about them.

use std::sync::Arc;

use crate::framework::KeyMap;
use crate::informer::Delta;
use crate::model::Key;

pub(super) fn of_endpoints() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if let Some(endpoints) = delta.latest().filter(|_| !delta.resync) {
            emit(Key::of(endpoints.meta()));
        }
    })
}
