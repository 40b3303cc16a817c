//! Whether a class may go. Pure.

use std::time::Duration;

use super::FINALIZER;
use super::view::View;
use coxswain_machinery::api::kinds::VOLUME_ATTRIBUTES_CLASSES;
use coxswain_machinery::model::words::{names, verb};
use coxswain_machinery::model::{Plan, finalizers};

/// When a class is looked at again that somebody uses of whom the cache has not heard: it need not tell when that ends.
const UNHEARD_OF: Duration = Duration::from_secs(10);

pub(super) fn plan(view: &View) -> Plan {
    let is_used = !view.users.is_empty();
    let mut plan = finalizers::plan(&VOLUME_ATTRIBUTES_CLASSES, &*view.class, FINALIZER, is_used);
    if view.is_live && is_used {
        plan.look_again_after(UNHEARD_OF);
    }
    plan
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let users = (!view.users.is_empty())
        .then(|| format!("{} {} it", names(&view.users), verb(view.users.len(), "names", "name")));
    finalizers::reasons(&view.class.metadata, FINALIZER, "class", users)
}
