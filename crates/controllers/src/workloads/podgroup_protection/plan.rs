//! Whether a PodGroup may go. Pure.

use jiff::Timestamp;

use super::view::View;
use super::{FINALIZER, goes};
use coxswain_machinery::api::kinds::POD_GROUPS;
use coxswain_machinery::model::Plan;
use coxswain_machinery::model::finalizers::{self, Due, due};
use coxswain_machinery::model::words::{names, verb};

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    if !goes(&view.group) {
        return Plan::default();
    }
    let is_used = !view.pods.is_empty();
    let mut plan = finalizers::plan(&POD_GROUPS, &*view.group, FINALIZER, is_used);
    if view.is_live && is_used {
        plan.look_again_after(finalizers::unheard_after(&view.group.metadata, now));
    }
    plan
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    if due(&view.group.metadata, FINALIZER) == Some(Due::Put) {
        return vec![format!(
            "The PodGroup lacks the finalizer {FINALIZER}, which only the API server puts on: nothing will keep it."
        )];
    }
    let number = view.pods.len();
    let users =
        (number > 0).then(|| format!("{} {} to it", names(&view.pods), verb(number, "belongs", "belong")));
    finalizers::reasons(&view.group.metadata, FINALIZER, "PodGroup", users)
}
