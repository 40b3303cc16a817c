//! What state a pod is in.

use jiff::Timestamp;

use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::api::pod::Pod;
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

/// It waits for a node, for volumes or for images.
pub(super) fn is_pending(pod: &Pod) -> bool {
    pod.status.phase == "Pending"
}
