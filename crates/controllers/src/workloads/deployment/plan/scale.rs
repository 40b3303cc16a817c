//! Sizes when it is the Deployment's size that changed, or when nothing may be rolled out because it is paused.
//!
//! | ReplicaSets with pods | what becomes of them |
//! |---|---|
//! | none | the new ReplicaSet, or else the youngest, gets all pods |
//! | one | it gets all pods |
//! | several, the new one has all pods that are wanted | the others go: they were adopted |
//! | several, `RollingUpdate` | each keeps its proportion, so that the risk stays spread as it was |
//! | several, `Recreate` | nothing: it rolled before, and the roll-out makes an end of that |
//!
//! See "Proportional scaling" in the documentation of Deployments. (In the last case the original waits for the sizes to
//! change, which nothing does.)
//! Differs: recreate-one-template.

use std::cmp::Reverse;

use super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS};
use super::claims::by_age;
use super::draft::Draft;
use super::member::Member;

/// Whether some ReplicaSet with pods was scaled last when the Deployment had another size.
pub(super) fn is_due(draft: &Draft<'_>) -> bool {
    let is_behind =
        |member: &Member| noted(member, DESIRED_REPLICAS).is_some_and(|size| size != draft.bounds.replicas);
    draft.members.iter().any(|member| member.is_active() && is_behind(member)) && !sizes(draft).is_empty()
}

pub(super) fn scale(draft: &mut Draft<'_>) {
    let sizes = sizes(draft);
    // What has the right size already is told of the Deployment's. The original leaves the note of a single one as it is:
    // it takes the Deployment as about to be scaled for good, and never rolls out another template.
    // Differs: single-replicaset-note.
    let notes = sizes.len() > 1 || is_due(draft);
    for (at, size) in sizes {
        if !draft.resize(at, size) && notes {
            draft.annotate_size(at);
        }
    }
}

/// The sizes that members are to have, in the order in which they are written.
fn sizes(draft: &Draft<'_>) -> Vec<(usize, i32)> {
    let replicas = draft.bounds.replicas;
    let active: Vec<usize> = (0..draft.members.len()).filter(|at| draft.members[*at].is_active()).collect();
    match active.as_slice() {
        [] => {
            let heir = draft.new.or_else(|| draft.members.len().checked_sub(1));
            heir.map(|at| (at, replicas)).into_iter().collect()
        }
        [only] => vec![(*only, replicas)],
        _ if draft.newest().is_some_and(|new| is_saturated(new, replicas)) => {
            draft.active_old().into_iter().rev().map(|at| (at, 0)).collect()
        }
        _ if draft.spec().strategy.r#type == "RollingUpdate" => in_proportion(draft, active),
        _ => Vec::new(),
    }
}

/// Whether the new ReplicaSet has all pods that are wanted, and they are available.
fn is_saturated(new: &Member, replicas: i32) -> bool {
    noted(new, DESIRED_REPLICAS) == Some(replicas)
        && new.replicas == replicas
        && new.object.status.available_replicas == replicas
}

/// Returns the number in an annotation. As in kube-controller-manager, a number with a sign is none.
fn noted(member: &Member, annotation: &str) -> Option<i32> {
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    member.annotation(annotation).filter(digits)?.parse().ok()
}

/// The larger ones come first. Of those of one size, newer ones grow first and older ones shrink first.
fn in_proportion(draft: &Draft<'_>, mut active: Vec<usize>) -> Vec<(usize, i32)> {
    let target = if draft.bounds.replicas > 0 { draft.bounds.most() } else { 0 };
    let total = draft.total();
    if target != total {
        active.sort_by(|a, b| by_age(&draft.members[*a].object, &draft.members[*b].object));
        if target > total {
            active.reverse();
        }
        active.sort_by_key(|at| Reverse(draft.members[*at].replicas));
    }
    let share = |at: &usize| {
        let member = &draft.members[*at];
        let of = noted(member, MAX_REPLICAS).filter(|most| *most != 0);
        Share { size: member.replicas, of: of.unwrap_or(draft.view.deployment.status.replicas) }
    };
    let shares: Vec<Share> = active.iter().map(share).collect();
    active.into_iter().zip(distribute(&shares, target)).collect()
}

/// What a ReplicaSet's share of a Deployment's pods is reckoned from.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Share {
    /// Its size, not 0.
    pub(in super::super) size: i32,
    /// The most pods that the Deployment could have when it got this size.
    pub(in super::super) of: i32,
}

impl Share {
    /// As large a part of `target` as its size was of what could be, to the nearest number. Of nothing no part can be told:
    /// it stays as it is.
    fn scaled_to(self, target: i32) -> i64 {
        let (size, of) = (i64::from(self.size), i64::from(self.of));
        if of > 0 { (2 * size * i64::from(target) + of).div_euclid(2 * of) } else { size }
    }
}

/// New sizes of ReplicaSets that are to have `target` pods together.
///
/// One after the other gets its part of them, until all together have reached the target: the one that would lead past it
/// gets as much as leads there, and those behind it stay as they are. What is still missing when all have their parts, for
/// parts are rounded, is the first one's. None grows while all together shrink. (In the original one does whose annotation is of another
/// Deployment, and then all together are more than the target.)
/// Differs: proportional-scaling.
pub(in super::super) fn distribute(shares: &[Share], target: i32) -> Vec<i32> {
    if target <= 0 {
        return vec![0; shares.len()];
    }
    let mut sizes: Vec<i64> = shares.iter().map(|share| share.size.into()).collect();
    let mut missing = i64::from(target) - sizes.iter().sum::<i64>();
    let direction = missing.signum();
    let mut balancing = 0;
    for (at, share) in shares.iter().enumerate().take_while(|_| direction != 0) {
        let mut part = share.scaled_to(target);
        if direction < 0 {
            // What is noted at one that was another Deployment's may say that it had room left.
            part = part.min(sizes[at]);
        }
        missing -= part - sizes[at];
        sizes[at] = part;
        if missing.signum() != direction {
            balancing = at;
            break;
        }
    }
    if let Some(size) = sizes.get_mut(balancing) {
        *size += missing;
    }
    sizes.into_iter().map(|size| i32::try_from(size.max(0)).unwrap_or(i32::MAX)).collect()
}
