//! Whether a PodGroup may go. Pure.

use super::view::View;
use super::{FINALIZER, goes};
use coxswain_machinery::api::kinds::POD_GROUPS;
use coxswain_machinery::framework::UnheardNote;
use coxswain_machinery::model::Plan;
use coxswain_machinery::model::finalizers::{self, Due, due};
use coxswain_machinery::model::words::{names, verb};

pub(super) fn plan(view: &View) -> Plan<UnheardNote> {
    if !goes(&view.group) {
        return Plan::default().with_note(UnheardNote::default());
    }
    let is_used = !view.pods.is_empty();
    let mut plan = finalizers::plan(&POD_GROUPS, &*view.group, FINALIZER, is_used);
    let is_unheard = view.is_live && is_used;
    if is_unheard {
        plan.look_again_after(finalizers::unheard_after(view.unheard_for));
    }
    plan.with_note(UnheardNote::of(&view.group.metadata, is_unheard))
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    if due(&view.group.metadata, FINALIZER) == Some(Due::Put) {
        return vec![format!(
            "The PodGroup lacks the finalizer {FINALIZER}, which only the API server adds; the deletion of the \
             PodGroup is not delayed."
        )];
    }
    let number = view.pods.len();
    let users =
        (number > 0).then(|| format!("{} {} to it", names(&view.pods), verb(number, "belongs", "belong")));
    finalizers::reasons(&view.group.metadata, FINALIZER, "PodGroup", users)
}
