//! Which Services a change of Endpoints concerns. Decides nothing about them.

use std::sync::Arc;

use super::services::LEADER;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;

pub(super) fn of_endpoints() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let gone = delta.old.filter(|_| delta.new.is_none());
        // The Service may have gone while nobody looked; all others bring their own keys.
        let left = delta.new.filter(|_| delta.initial && !delta.resync);
        let left = left.filter(|endpoints| !endpoints.meta().annotations.contains_key(LEADER));
        if let Some(endpoints) = gone.or(left) {
            emit(Key::of(endpoints.meta()));
        }
    })
}
