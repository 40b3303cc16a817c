//! Which old ReplicaSets are not kept any more: see `spec.revisionHistoryLimit`.

use std::cmp::Ordering;

use super::claims::by_age;
use super::draft::Draft;
use super::member::Member;

/// Deletes those beyond the limit, the oldest revisions first; never one that has pods, or may have.
pub(super) fn clean_up(draft: &mut Draft<'_>) {
    let Some(limit) = draft.spec().revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return;
    };
    let mut kept = draft.old();
    kept.retain(|at| !draft.members[*at].object.metadata.is_deleting());
    let surplus = kept.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    kept.sort_by(|a, b| by_revision(&draft.members[*a], &draft.members[*b]));
    for at in kept.into_iter().take(surplus) {
        if is_empty(&draft.members[at]) {
            draft.delete(at);
        }
    }
}

fn by_revision(a: &Member, b: &Member) -> Ordering {
    let number = |member: &Member| member.revision().unwrap_or(0);
    number(a).cmp(&number(b)).then_with(|| by_age(&a.object, &b.object))
}

/// It has no pods, by the last that is known, and this plan does not write it.
fn is_empty(member: &Member) -> bool {
    !member.is_changed() && member.replicas == 0 && member.object.status.replicas == 0 && member.is_observed()
}
