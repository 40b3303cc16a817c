//! Whether a class may go. Pure.

use super::FINALIZER;
use super::view::View;
use coxswain_machinery::api::kinds::VOLUME_ATTRIBUTES_CLASSES;
use coxswain_machinery::framework::UnheardNote;
use coxswain_machinery::model::words::{names, verb};
use coxswain_machinery::model::{Plan, finalizers};

pub(super) fn plan(view: &View) -> Plan<UnheardNote> {
    let is_used = !view.users.is_empty();
    let mut plan = finalizers::plan(&VOLUME_ATTRIBUTES_CLASSES, &*view.class, FINALIZER, is_used);
    let is_unheard = view.is_live && is_used;
    if is_unheard {
        plan.look_again_after(finalizers::unheard_after(view.unheard_for));
    }
    plan.with_note(UnheardNote::of(&view.class.metadata, is_unheard))
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let users = (!view.users.is_empty())
        .then(|| format!("{} {} it", names(&view.users), verb(view.users.len(), "names", "name")));
    finalizers::reasons(&view.class.metadata, FINALIZER, "class", users)
}
