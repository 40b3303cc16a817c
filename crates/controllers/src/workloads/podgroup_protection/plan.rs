//! Whether a PodGroup may go. Pure.

use std::time::Duration;

use super::view::View;
use super::{FINALIZER, goes};
use coxswain_machinery::api::kinds::POD_GROUPS;
use coxswain_machinery::model::Plan;
use coxswain_machinery::model::finalizers::{self, Due, due};
use coxswain_machinery::model::words::{names, verb};

/// When a group is looked at again that has a pod of which the cache has not heard: it need not tell when that ends.
const UNHEARD_OF: Duration = Duration::from_secs(10);

pub(super) fn plan(view: &View) -> Plan {
    if !goes(&view.group) {
        return Plan::default();
    }
    let is_used = !view.pods.is_empty();
    let mut plan = finalizers::plan(&POD_GROUPS, &*view.group, FINALIZER, is_used);
    if view.is_live && is_used {
        plan.look_again_after(UNHEARD_OF);
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
