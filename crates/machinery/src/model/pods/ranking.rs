//! Which pods go first when there are too many.
//!
//! See "Scaling down" of ReplicaSets in the Kubernetes documentation, KEP-2255 (pod deletion cost) and KEP-2185
//! (ages in logarithmic buckets). The original compares two pods pairwise, and goes by UID as soon as two different
//! times fall into one bucket, later criteria notwithstanding; across three pods that can run in a circle. Here a
//! rank is a sort key, so that the order is total by construction: within a bucket the later criteria decide, and
//! the UID comes last. Where the original's choice does not hang on random UIDs, both agree.
//! Differs: pod-ranking.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::{NANOS_PER_SECOND, ready_since};
use crate::api::Among;
use crate::api::pod::Pod;
use crate::wire::{Time, Uid};

/// The annotation by which a pod's owner says how much would be lost with it.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// How to rank pods at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// The moment at which ages are taken.
    pub now: Timestamp,
    /// Whether [`DELETION_COST`] counts (feature gate `PodDeletionCost`).
    pub by_cost: bool,
}

/// A pod's place in the order of deletion: the least goes first. No two pods of a cluster have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletionRank {
    // The order of these fields is the order of the criteria.
    assigned: bool,
    phase: u8,
    ready: bool,
    cost: i32,
    colocated: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<(i32, i32)>,
    created: Age,
    uid: Uid,
}

/// An age in nanoseconds, to the power of two below it; unknown before all others, then young before old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Unknown,
    /// Less than a nanosecond, or in the future.
    None,
    Log2(u32),
}

impl Age {
    fn of(since: Option<Time>, now: Timestamp) -> Self {
        let Some(since) = since else {
            return Self::Unknown;
        };
        let nanos = now.as_nanosecond() - i128::from(since.seconds()) * NANOS_PER_SECOND;
        if nanos > 0 { Self::Log2(nanos.unsigned_abs().ilog2()) } else { Self::None }
    }
}

impl Ranking {
    /// The pod's rank among those of its controller; `colocated` related pods run on its node.
    pub fn rank(&self, pod: &Pod, colocated: usize) -> DeletionRank {
        DeletionRank {
            assigned: !pod.spec.node_name.is_empty(),
            phase: match pod.status.phase.as_str() {
                "Running" => 2,
                "Unknown" => 1,
                _ => 0,
            },
            ready: pod.is_ready(),
            cost: if self.by_cost { deletion_cost(pod) } else { 0 },
            colocated: Reverse(colocated),
            ready_for: Age::of(ready_since(pod), self.now),
            restarts: Reverse(most_restarts(pod)),
            created: Age::of(pod.metadata.creation_timestamp, self.now),
            uid: pod.metadata.uid.clone(),
        }
    }
}

/// What the pod says it costs to delete it: 0 when it says nothing, or nothing valid (a plus sign and leading zeros
/// are not).
pub fn deletion_cost(pod: &Pod) -> i32 {
    let Some(text) = pod.metadata.annotations.get(DELETION_COST) else {
        return 0;
    };
    let starts_well = matches!(text.as_bytes(), [b'0'] | [b'-' | b'1'..=b'9', ..]);
    if starts_well { text.parse().unwrap_or(0) } else { 0 }
}

/// The most restarts of any container; and, where that is equal, of any sidecar.
pub fn most_restarts(pod: &Pod) -> (i32, i32) {
    let containers = pod.status.container_statuses.iter().map(|status| status.restart_count);
    let statuses = pod.status.init_container_statuses.iter();
    let names = Among::of(&pod.shape.sidecars);
    let sidecars = statuses.filter(|status| names.contains(&status.name));
    let sidecars = sidecars.map(|status| status.restart_count);
    (containers.max().unwrap_or(0), sidecars.max().unwrap_or(0))
}
