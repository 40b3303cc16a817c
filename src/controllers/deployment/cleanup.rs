//! Old ReplicaSets beyond the `revisionHistoryLimit` are deleted, those with the lowest revision first. Pure.

use super::draft::{Draft, Set};
use super::status;
use crate::model::revisions;

/// Forgets surplus old ReplicaSets when the Deployment's status says that all is rolled out.
pub(super) fn when_complete(draft: &mut Draft<'_>) {
    let deployment = &draft.view.deployment;
    if status::is_complete(deployment, &deployment.status) {
        forget(draft);
    }
}

/// Forgets surplus old ReplicaSets. One that has pods, or may have for all that is known, counts as surplus and stays.
pub(super) fn forget(draft: &mut Draft<'_>) {
    // The largest number is how "keep all" is written.
    let limit = draft.view.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX);
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return };
    let alive = |at: &usize| !draft.sets[*at].object.metadata.is_deleting();
    let mut old: Vec<usize> = draft.old().filter(alive).collect();
    let surplus = old.len().saturating_sub(limit);
    // Stable, from the oldest on.
    old.sort_by_key(|at| revisions::revision(&draft.sets[*at].annotations).unwrap_or(0));
    draft.forgotten = old.into_iter().take(surplus).filter(|at| is_empty(&draft.sets[*at])).collect();
}

fn is_empty(set: &Set) -> bool {
    let held = &set.object;
    set.replicas == 0
        && held.spec.replicas == Some(0)
        && held.status.replicas == 0
        && held.status.observed_generation >= held.metadata.generation
}
