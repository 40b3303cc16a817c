//! `Recreate`: all old pods go, and only when none is left does the new ReplicaSet get its own. Pure.

use super::cleanup;
use super::draft::Draft;
use super::sync_new_rs;
use crate::wire::{Time, WireError};

/// One step of the replacement.
pub(super) fn roll_out(draft: &mut Draft<'_>, now: Time) -> Result<(), WireError> {
    // Making the new ReplicaSet already would be scaling up before scaling down.
    sync_new_rs::sync(draft, false, now)?;
    if scale_down(draft) || old_pods_run(draft) {
        return Ok(());
    }
    if draft.current.is_none() {
        sync_new_rs::sync(draft, true, now)?;
    }
    if let Some(at) = draft.current {
        draft.resize(at, draft.desired());
    }
    cleanup::when_complete(draft);
    Ok(())
}

fn scale_down(draft: &mut Draft<'_>) -> bool {
    let old: Vec<usize> = draft.old().filter(|at| draft.sets[*at].is_active()).collect();
    for &at in &old {
        draft.resize(at, 0);
    }
    !old.is_empty()
}

/// Whether an old pod has not run to its end, one that terminates included.
fn old_pods_run(draft: &Draft<'_>) -> bool {
    if draft.old_sets().any(|set| set.object.status.replicas > 0) {
        return true;
    }
    let new = draft.new_set().map(|set| &set.object.metadata.uid);
    let is_new = |owner: &crate::api::meta::OwnerReference| Some(&owner.uid) == new;
    draft.view.pods.iter().any(|pod| !pod.is_finished() && !pod.metadata.controller().is_some_and(is_new))
}
