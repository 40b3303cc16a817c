//! Which Endpoints a change of Endpoints concerns. Decides nothing about them.

use std::sync::Arc;

use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;

pub(super) fn of_endpoints() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if let Some(endpoints) = delta.latest().filter(|_| !delta.resync) {
            emit(Key::of(endpoints.meta()));
        }
    })
}
