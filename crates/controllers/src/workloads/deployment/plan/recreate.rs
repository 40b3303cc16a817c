//! `Recreate`: all old pods go, and when the last of them is gone, the new ones come.

use super::draft::Draft;
use super::{cleanup, revisions, status};

pub(super) fn roll_out(draft: &mut Draft<'_>) {
    let old = draft.active_old();
    for &at in &old {
        draft.resize(at, 0);
    }
    if !old.is_empty() || old_pods_run(draft) {
        return;
    }
    let at = draft.new.unwrap_or_else(|| revisions::create(draft));
    draft.resize(at, draft.bounds.replicas);
    if status::is_complete(draft.view, &draft.status) {
        cleanup::clean_up(draft);
    }
}

/// Whether there is still a pod of an old ReplicaSet, on its way out or not.
fn old_pods_run(draft: &Draft<'_>) -> bool {
    draft
        .old()
        .into_iter()
        .map(|at| &draft.members[at].object)
        .any(|set| set.status.replicas > 0 || draft.view.running.contains(&set.metadata.uid))
}
