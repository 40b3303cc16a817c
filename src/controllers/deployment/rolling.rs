//! `RollingUpdate`: the new ReplicaSet grows and the old ones shrink, within the surge and the unavailability allowed.
//! Pure.

use super::cleanup;
use super::draft::Draft;
use super::sync_new_rs::{self, new_size};
use crate::wire::{Time, WireError};

/// One step of a rolling update: up if possible, else down if possible, else, when all is rolled out, tidy up.
pub(super) fn roll_out(draft: &mut Draft<'_>, now: Time) -> Result<(), WireError> {
    sync_new_rs::sync(draft, true, now)?;
    if !scale_up(draft) && !scale_down(draft) {
        cleanup::when_complete(draft);
    }
    Ok(())
}

fn scale_up(draft: &mut Draft<'_>) -> bool {
    let (Some(at), desired) = (draft.current, draft.desired()) else { return false };
    let size = if draft.sets[at].replicas > desired { desired } else { new_size(draft) };
    draft.resize(at, size)
}

/// Takes pods from old ReplicaSets. What they may lose is what there is beyond the pods that must be available, the
/// new ReplicaSet's pods that are not available yet not counted: one of those may never become available, and giving
/// up an old pod for it would break the promise.
fn scale_down(draft: &mut Draft<'_>) -> bool {
    let old: Vec<usize> = draft.old().filter(|at| draft.sets[*at].is_active()).collect();
    let missing = draft.new_set().map_or(0, |set| set.replicas - set.available());
    let surplus = draft.total() - draft.fenceposts.least() - missing;
    if old.is_empty() || surplus <= 0 {
        return false;
    }
    let Some(unhealthy) = scale_down_unhealthy(draft, &old, surplus) else { return false };
    let available: i64 = draft.sets.iter().map(super::draft::Set::available).sum();
    let healthy = scale_down_available(draft, &old, available - draft.fenceposts.least());
    unhealthy + healthy > 0
}

/// Takes pods that are not available, from the oldest ReplicaSet first; they serve nobody, and could block the
/// rollout. Returns how many. `None`: a ReplicaSet reports more available pods than it is asked for, so its last
/// scaling has not been carried out; nothing can be said before that.
fn scale_down_unhealthy(draft: &mut Draft<'_>, old: &[usize], surplus: i64) -> Option<i64> {
    let mut taken = 0;
    for &at in old {
        if taken >= surplus {
            break;
        }
        let set = &draft.sets[at];
        let (size, unhealthy) = (set.replicas, set.replicas - set.available());
        if unhealthy < 0 {
            return None;
        }
        let take = unhealthy.min(surplus - taken);
        draft.resize(at, size - take);
        taken += take;
    }
    Some(taken)
}

/// Takes `surplus` pods, from the oldest ReplicaSet first. Returns how many.
fn scale_down_available(draft: &mut Draft<'_>, old: &[usize], surplus: i64) -> i64 {
    let mut taken = 0;
    for &at in old {
        let take = draft.sets[at].replicas.min(surplus - taken).max(0);
        draft.resize(at, draft.sets[at].replicas - take);
        taken += take;
    }
    taken
}
