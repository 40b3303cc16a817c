//! Sizes when it is the Deployment's size that changed, or when nothing may be rolled out because it is paused.
//!
//! In the middle of a roll-out the change is shared out among the ReplicaSets in proportion to their sizes: the risk stays
//! spread as it was.

use std::cmp::{Ordering, Reverse};

use super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS};
use super::claims::by_age;
use super::draft::Draft;
use super::member::Member;

/// Whether some ReplicaSet with pods was scaled last when the Deployment had another size.
pub(super) fn is_due(draft: &Draft<'_>) -> bool {
    let differs = |size: i32| size != draft.bounds.replicas;
    let mut active = draft.members.iter().filter(|member| member.is_active());
    active.any(|member| desired(member).is_some_and(differs)) && way(draft) != Way::None
}

/// How the sizes are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// This one takes it all.
    Single(usize),
    /// An old ReplicaSet was adopted while the new one has all pods that are wanted.
    DropOld,
    /// In proportion.
    Share,
    /// Not at all: what recreates has several ReplicaSets with pods only if it rolled before. The roll-out makes an end of
    /// that. (The original waits for the sizes to change, which nothing does.)
    None,
}

fn way(draft: &Draft<'_>) -> Way {
    if let Some(at) = active_or_latest(draft) {
        Way::Single(at)
    } else if draft.newest().is_some_and(|new| is_saturated(new, draft.bounds.replicas)) {
        Way::DropOld
    } else if draft.spec().strategy.r#type == "RollingUpdate" {
        Way::Share
    } else {
        Way::None
    }
}

fn desired(member: &Member) -> Option<i32> {
    member.annotation(DESIRED_REPLICAS)?.parse().ok()
}

pub(super) fn scale(draft: &mut Draft<'_>) {
    match way(draft) {
        Way::Single(at) => {
            let due = is_due(draft);
            if !draft.resize(at, draft.bounds.replicas) && due {
                // It has the right size already. The original leaves the note of the old one as it is, takes the
                // Deployment as about to be scaled for good, and never rolls out another template.
                draft.annotate_size(at);
            }
        }
        Way::DropOld => {
            for at in draft.active_old().into_iter().rev() {
                draft.resize(at, 0);
            }
        }
        Way::Share => scale_in_proportion(draft),
        Way::None => {}
    }
}

/// The one member that has pods; if none has any, the newest. `None` if several have, or there are no members.
fn active_or_latest(draft: &Draft<'_>) -> Option<usize> {
    let mut active = (0..draft.members.len()).filter(|at| draft.members[*at].is_active());
    match (active.next(), active.next()) {
        (None, _) => draft.new.or_else(|| draft.members.len().checked_sub(1)),
        (one, None) => one,
        _ => None,
    }
}

/// Whether the new ReplicaSet has all pods that are wanted, and they are available.
fn is_saturated(new: &Member, replicas: i32) -> bool {
    desired(new) == Some(replicas)
        && new.replicas == replicas
        && new.object.status.available_replicas == replicas
}

fn scale_in_proportion(draft: &mut Draft<'_>) {
    let bounds = draft.bounds;
    let mut active: Vec<usize> =
        (0..draft.members.len()).filter(|at| draft.members[*at].is_active()).collect();
    let target = if bounds.replicas > 0 { bounds.most() } else { 0 };
    let total = active.iter().fold(0_i32, |sum, at| sum.saturating_add(draft.members[*at].replicas));
    let by_age = |a: &usize, b: &usize| by_age(&draft.members[*a].object, &draft.members[*b].object);
    let by_size = |at: &usize| Reverse(draft.members[*at].replicas);
    // Of those of one size, newer ones grow first and older ones shrink first.
    active.sort_by(|a, b| match target.cmp(&total) {
        Ordering::Greater => by_size(a).cmp(&by_size(b)).then_with(|| by_age(b, a)),
        Ordering::Less => by_size(a).cmp(&by_size(b)).then_with(|| by_age(a, b)),
        Ordering::Equal => Ordering::Equal,
    });
    let shares: Vec<Share> = active.iter().map(|at| share(draft, &draft.members[*at])).collect();
    let sizes = distribute(&shares, bounds.replicas, target);
    for (&at, size) in active.iter().zip(sizes) {
        if !draft.resize(at, size) {
            draft.annotate_size(at);
        }
    }
}

/// What a ReplicaSet's share of a Deployment's pods is reckoned from.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Share {
    /// Its size, not 0.
    pub(in super::super) size: i32,
    /// The most pods that the Deployment could have when it got this size.
    pub(in super::super) of: i32,
}

fn share(draft: &Draft<'_>, member: &Member) -> Share {
    let noted = member.annotation(MAX_REPLICAS).and_then(|text| text.parse().ok()).filter(|most| *most != 0);
    Share { size: member.replicas, of: noted.unwrap_or(draft.view.deployment.status.replicas) }
}

/// New sizes of ReplicaSets whose sizes are to add up to `target`, for a Deployment of `replicas` pods. What rounding
/// leaves over goes to the first.
pub(in super::super) fn distribute(shares: &[Share], replicas: i32, target: i32) -> Vec<i32> {
    let total = shares.iter().fold(0_i32, |sum, share| sum.saturating_add(share.size));
    let to_add = target.saturating_sub(total);
    let mut left = to_add;
    let mut sizes = Vec::with_capacity(shares.len());
    for share in shares {
        let change = if left == 0 {
            0
        } else if to_add > 0 {
            fraction(*share, replicas, target).min(left)
        } else {
            fraction(*share, replicas, target).max(left)
        };
        left = left.saturating_sub(change);
        sizes.push(share.size.saturating_add(change));
    }
    if let Some(first) = sizes.first_mut() {
        *first = first.saturating_add(left).max(0);
    }
    sizes
}

/// By how many pods a ReplicaSet is to change so that its share stays what it was.
fn fraction(share: Share, replicas: i32, target: i32) -> i32 {
    if replicas == 0 {
        return share.size.saturating_neg();
    }
    if share.of <= 0 {
        return 0;
    }
    let (size, of) = (i64::from(share.size), i64::from(share.of));
    let rounded = (2 * size * i64::from(target) + of) / (2 * of);
    i32::try_from(rounded - size).unwrap_or(i32::MAX)
}
