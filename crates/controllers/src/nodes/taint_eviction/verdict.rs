//! Whether a pod may stay on a node with taints, and for how long. Pure.

use std::time::Duration;

use coxswain_machinery::api::core::{Node, Taint};
use coxswain_machinery::api::shape::Toleration;
use coxswain_machinery::model::fitting::tolerates;

/// The effect of taints that drive pods away.
const NO_EXECUTE: &str = "NoExecute";

/// The taints that drive pods away.
pub(super) fn no_execute(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| taint.effect == NO_EXECUTE)
}

/// Whether a node drives some pods away.
pub(super) fn is_tainted(node: &Node) -> bool {
    no_execute(&node.spec.taints).next().is_some()
}

/// What the taints of a node mean to a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict<'t> {
    /// No taint drives pods away.
    Untainted,
    /// The pod tolerates all of them without end.
    Stays,
    /// It tolerates all of them, and this one for the shortest time, from when that is seen.
    StaysFor(Duration, &'t Taint),
    /// It does not tolerate this one.
    Goes(&'t Taint),
}

/// Of each taint the first toleration counts that tolerates it, and of the times that these have the shortest.
pub(super) fn judge<'t>(taints: &'t [Taint], tolerations: &[Toleration], comparing: bool) -> Verdict<'t> {
    let mut verdict = Verdict::Untainted;
    for taint in no_execute(taints) {
        // Linear: of a node's taints those that evict, which are few.
        let used = tolerations.iter().find(|toleration| tolerates(toleration, taint, comparing));
        let Some(used) = used else { return Verdict::Goes(taint) };
        let seconds = used.seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        verdict = match (verdict, seconds) {
            (Verdict::StaysFor(shortest, by), Some(time)) if time >= shortest => {
                Verdict::StaysFor(shortest, by)
            }
            (_, Some(time)) => Verdict::StaysFor(time, taint),
            (Verdict::Untainted, None) => Verdict::Stays,
            (verdict, None) => verdict,
        };
    }
    verdict
}
