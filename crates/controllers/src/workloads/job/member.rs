//! A pod as its Job sees it: whether it runs, how it ended and when, which index it has. Decides nothing.

use std::cmp::Reverse;

use coxswain_machinery::api::Among;
use coxswain_machinery::api::meta::{FOREGROUND_FINALIZER, ObjectMeta};
use coxswain_machinery::api::pod::{ContainerStatus, Pod};
use coxswain_machinery::model::pods;
use coxswain_machinery::wire::{Str, Time, Uid};

/// Finalizer of pods that their Job has not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation, and label, of pods: the index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation of pods: how often pods of the index failed before.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of pods: how often pods of the index failed before without being counted.
pub(super) const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Whether the pod has the finalizer of pods that are not counted yet.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|held| held == TRACKING)
}

/// The pod's index, if it has one.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    let index: u32 = pod.metadata.annotations.get(INDEX)?.parse().ok()?;
    i32::try_from(index).is_ok().then_some(index)
}

/// How often pods of the index failed before this one, counted and not counted.
pub(super) fn earlier_failures(pod: &Pod) -> (i32, i32) {
    let read = |name: &str| {
        let text: Option<&Str> = pod.metadata.annotations.get(name);
        text.and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
    };
    (read(FAILURES), read(IGNORED_FAILURES))
}

/// When the pod ended: by its containers, else by its conditions, its deletion or its creation.
pub(super) fn finish_time(pod: &Pod) -> Option<Time> {
    let of_containers = finished_at(pod.status.container_statuses.iter());
    let of_sidecars = finished_at(sidecars(pod));
    let by_containers = match (of_containers, of_sidecars) {
        (Finished::At(regular), Finished::At(sidecar)) => Some(regular.max(sidecar)),
        (Finished::At(regular), Finished::None) => Some(regular),
        (_, Finished::At(sidecar)) => Some(sidecar),
        (_, Finished::None | Finished::NotAll) => None,
    };
    let unready = || {
        let ready = pod.condition("Ready").filter(|ready| ready.status == "False")?;
        ready.last_transition_time
    };
    let deleted = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        pod.metadata.deletion_timestamp.map(|at| at.plus_seconds(-grace))
    };
    by_containers.or_else(unready).or_else(deleted).or(pod.metadata.creation_timestamp)
}

/// Returns whether the Job is deleted in the foreground, so that the garbage collector deletes its pods first.
pub(super) fn is_deleted_in_foreground(job: &ObjectMeta) -> bool {
    job.is_deleting() && job.finalizers.iter().any(|finalizer| finalizer == FOREGROUND_FINALIZER)
}

/// When some containers ended.
enum Finished {
    /// There are none.
    None,
    /// Some have not, or do not say when.
    NotAll,
    /// The last of them then.
    At(Time),
}

fn finished_at<'a>(statuses: impl Iterator<Item = &'a ContainerStatus>) -> Finished {
    let mut latest = Finished::None;
    for status in statuses {
        let ended = status.state.terminated.as_ref().and_then(|ended| ended.finished_at);
        latest = match (ended, latest) {
            (None, _) | (_, Finished::NotAll) => Finished::NotAll,
            (Some(ended), Finished::None) => Finished::At(ended),
            (Some(ended), Finished::At(latest)) => Finished::At(ended.max(latest)),
        };
    }
    latest
}

fn sidecars(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let statuses = pod.status.init_container_statuses.iter();
    let names = Among::of(&pod.shape.sidecars);
    statuses.filter(move |status| names.contains(&status.name))
}

/// How often containers and init containers of the pod were restarted, taken together.
pub(super) fn restarts(pod: &Pod) -> i64 {
    let statuses = pod.status.container_statuses.iter().chain(pod.status.init_container_statuses.iter());
    statuses.map(|status| i64::from(status.restart_count)).sum()
}

/// A pod's place in the order of deletion: the least goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    // The order of these fields is the order of the criteria.
    is_bound: bool,
    phase: u8,
    is_ready: bool,
    /// What is not known counts as young.
    ready_since: Reverse<i64>,
    restarts: Reverse<(i32, i32)>,
    created: Reverse<i64>,
    uid: Uid,
}

/// The pod's place in the order of deletion.
pub(super) fn rank(pod: &Pod) -> Rank {
    let youngest = |at: Option<Time>| Reverse(at.map_or(i64::MAX, Time::seconds));
    let is_ready = pod.is_ready();
    Rank {
        is_bound: !pod.spec.node_name.is_empty(),
        phase: match pod.status.phase.as_str() {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        },
        is_ready,
        ready_since: if is_ready { youngest(pods::ready_since(pod)) } else { Reverse(0) },
        restarts: Reverse(pods::most_restarts(pod)),
        created: youngest(pod.metadata.creation_timestamp),
        uid: pod.metadata.uid.clone(),
    }
}
