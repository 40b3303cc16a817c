//! The Deployment got another size, or is paused: all ReplicaSets grow or shrink in proportion, nothing is rolled out.
//! Pure.

use std::cmp::Reverse;

use super::ROLLING_UPDATE;
use super::draft::{Draft, Set};
use crate::model::revisions::{self, DESIRED_REPLICAS, MAX_REPLICAS};

/// Whether some ReplicaSet was scaled last when the Deployment had another size.
pub(super) fn is_due(draft: &Draft<'_>) -> bool {
    let was = |set: &Set| revisions::count(&set.annotations, DESIRED_REPLICAS);
    let active = draft.sets.iter().filter(|set| set.is_active());
    active.filter_map(was).any(|was| was != draft.desired())
}

/// Brings the ReplicaSets to the Deployment's size.
pub(super) fn scale(draft: &mut Draft<'_>) {
    let active = draft.active();
    let desired = draft.desired();
    if let Some(only) = only_one_to_scale(draft, &active) {
        let told = revisions::count(&draft.sets[only].annotations, DESIRED_REPLICAS);
        // The original leaves the annotation of one that has the size already, and takes the Deployment for one that is
        // being scaled ever after.
        if draft.sets[only].replicas != desired || told.is_some_and(|told| told != desired) {
            draft.scale(only, desired);
        }
        return;
    }
    if is_saturated(draft) {
        for at in draft.old() {
            draft.resize(at, 0);
        }
    } else if draft.view.deployment.spec.strategy.r#type == ROLLING_UPDATE {
        scale_all(draft, active);
    }
}

/// The one active ReplicaSet; if none is, the new one, or the newest.
fn only_one_to_scale(draft: &Draft<'_>, active: &[usize]) -> Option<usize> {
    match active {
        [] => draft.current.or_else(|| draft.old().last()),
        [only] => Some(*only),
        _ => None,
    }
}

/// Whether the new ReplicaSet has all the pods that the Deployment asks for.
fn is_saturated(draft: &Draft<'_>) -> bool {
    draft.new_set().is_some_and(|set| {
        let desired = draft.desired();
        set.replicas == desired
            && set.available() == desired
            && revisions::count(&set.annotations, DESIRED_REPLICAS) == Some(desired)
    })
}

/// Spreads what is to be added or removed over the active ReplicaSets in proportion to their sizes, so that a rollout
/// in flight stays as far as it is, and the risk of the new version stays spread. What rounding leaves goes to the
/// largest.
fn scale_all(draft: &mut Draft<'_>, mut active: Vec<usize>) {
    let allowed = if draft.desired() > 0 { draft.fenceposts.most() } else { 0 };
    let change = allowed - draft.total();
    // Largest first; of equals the newer when adding, the older when removing. They are in order of age.
    match change {
        0 => {}
        1.. => active.sort_by_key(|at| (Reverse(draft.sets[*at].replicas), Reverse(*at))),
        _ => active.sort_by_key(|at| (Reverse(draft.sets[*at].replicas), *at)),
    }
    let mut changed = 0;
    let mut sizes: Vec<(usize, i64)> = Vec::with_capacity(active.len());
    for at in active {
        let share = share(draft, at, change, changed);
        changed += share;
        sizes.push((at, draft.sets[at].replicas + share));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + change - changed).max(0);
    }
    for (at, size) in sizes {
        draft.scale(at, size);
    }
}

/// What one ReplicaSet gets of `change`, of which `changed` is spread already.
fn share(draft: &Draft<'_>, at: usize, change: i64, changed: i64) -> i64 {
    let fair = fair_share(draft, &draft.sets[at]);
    let left = change - changed;
    match change {
        _ if left == 0 => 0,
        0 => 0,
        1.. => fair.min(left),
        _ => fair.max(left),
    }
}

/// By how much the ReplicaSet would grow if it grew like the Deployment.
fn fair_share(draft: &Draft<'_>, set: &Set) -> i64 {
    if draft.desired() == 0 {
        return -set.replicas;
    }
    // A ReplicaSet of unknown past is compared with what the Deployment has.
    let before = revisions::count(&set.annotations, MAX_REPLICAS).filter(|before| *before != 0);
    match before.unwrap_or_else(|| draft.view.deployment.status.replicas.into()) {
        before if before > 0 => divide_rounded(set.replicas, draft.fenceposts.most(), before) - set.replicas,
        _ => 0,
    }
}

/// `count * to / from` as the nearest whole number; halves go up. None of them is negative, and `from` is not 0.
fn divide_rounded(count: i64, to: i64, from: i64) -> i64 {
    let (count, to, from) = (i128::from(count), i128::from(to), i128::from(from));
    i64::try_from((2 * count * to + from) / (2 * from)).unwrap_or(i64::MAX)
}
