//! What state a pod is in.

use jiff::Timestamp;

use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::api::pod::{ContainerStatus, Pod};
use coxswain_machinery::model::pods;

/// It runs and is ready.
pub(super) fn is_healthy(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

/// It has been healthy for `minReadySeconds`.
pub(super) fn is_available(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    is_healthy(pod) && pods::is_available(pod, set.spec.min_ready_seconds, now)
}

/// It is not available, or on its way out.
pub(super) fn is_unavailable(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.is_deleting() || !is_available(set, pod, now)
}

/// No container of it has run. A pod whose init containers run is pending as well, and so is one whose node has restarted.
pub(super) fn has_never_run(pod: &Pod) -> bool {
    let has_run = |status: &ContainerStatus| {
        status.is_running() || status.state.terminated.is_some() || status.restart_count > 0
    };
    is_pending(pod) && !pod.all_statuses().any(has_run)
}

/// It waits for a node, for volumes or for images, or its init containers run.
pub(super) fn is_pending(pod: &Pod) -> bool {
    pod.status.phase == "Pending"
}
