//! `RollingUpdate`: the new ReplicaSet grows as far as the surge allows, the old ones shrink as far as availability does,
//! one of the two in each plan.

use super::draft::Draft;
use super::{cleanup, revisions, status};

pub(super) fn roll_out(draft: &mut Draft<'_>) {
    let at = draft.new.unwrap_or_else(|| create(draft));
    let target = new_size(draft, at);
    if draft.resize(at, target) {
        return;
    }
    if shrink_old(draft, at) {
        // Pods of an old template that stay keep nothing from being reported, least of all a missed deadline.
        draft.tolerates_old = true;
        return;
    }
    if status::is_complete(draft.view, &draft.status) {
        cleanup::clean_up(draft);
    }
}

/// Adds the new ReplicaSet, as large as there is room for. Its position.
pub(super) fn create(draft: &mut Draft<'_>) -> usize {
    let at = revisions::create(draft);
    let size = new_size(draft, at);
    draft.resize(at, size);
    at
}

/// The size of the new ReplicaSet: what is asked for, as far as the others leave room.
fn new_size(draft: &Draft<'_>, at: usize) -> i32 {
    let present = draft.members[at].replicas;
    let wanting = draft.bounds.replicas - present;
    if wanting <= 0 {
        return draft.bounds.replicas;
    }
    let room = draft.bounds.most().saturating_sub(draft.total());
    present + room.clamp(0, wanting)
}

/// Takes pods of old ReplicaSets away, first those that are not available, which would only stand in the way, then as many
/// as can be spared. Whether there were any.
fn shrink_old(draft: &mut Draft<'_>, new: usize) -> bool {
    let old = draft.active_old();
    // Where a ReplicaSet shrank and grew again, pods may be counted as available that went in between. Its controller tells
    // better as soon as it has seen the last size, and that brings the Deployment back.
    if old.is_empty() || draft.members.iter().any(|member| member.is_active() && !member.is_observed()) {
        return false;
    }
    let least = draft.bounds.least_available();
    let pending = draft.members[new].replicas - draft.members[new].available();
    let mut spare = draft.total().saturating_sub(least).saturating_sub(pending);
    if spare <= 0 {
        return false;
    }
    let before = draft.total();
    for &at in &old {
        let unavailable = draft.members[at].replicas - draft.members[at].available();
        spare -= take(draft, at, unavailable.min(spare));
    }
    let available: i32 = draft.members.iter().fold(0, |sum, member| member.available().saturating_add(sum));
    let mut surplus = available.saturating_sub(least);
    for &at in &old {
        surplus -= take(draft, at, surplus);
    }
    draft.total() < before
}

/// Takes up to `count` pods away; how many it were.
fn take(draft: &mut Draft<'_>, at: usize, count: i32) -> i32 {
    let present = draft.members[at].replicas;
    let count = count.clamp(0, present);
    draft.resize(at, present - count);
    count
}
