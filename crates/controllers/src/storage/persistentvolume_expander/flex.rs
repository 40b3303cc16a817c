//! How far the growing of a FlexVolume driver's volume has come, by its objects, and what comes next. No driver is asked: the
//! volume grows in its objects, and on its node. Pure.

use super::view::{capacity, requested, size, text};
use super::writes::PRE_RESIZE;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::wire::Str;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The node is done: the volume's annotation goes.
    Finish,
    /// The volume grows to this size.
    Grow(Str),
    /// It has grown, in this reconcile: the node is to go on.
    Go,
    /// The node is to try again.
    MarkPending,
    /// The node is at it.
    Wait,
}

pub(super) fn course(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Course {
    let (wanted, has, large) = (requested(claim), capacity(claim), size(volume));
    let is_marked = volume.metadata.annotations.contains_key(PRE_RESIZE);
    if is_marked && !wanted.exceeds(has) && !large.exceeds(has) {
        return Course::Finish;
    }
    let request = || text(&claim.spec.resources.requests);
    let allocated = || match claim.status.allocated_resources.get("storage") {
        Some(allocated) => allocated.clone(),
        None => request(),
    };
    let statuses = &claim.status.allocated_resource_statuses;
    let status = statuses.get("storage").map_or("", Str::as_str);
    if wanted.exceeds(large) {
        return Course::Grow(match status {
            "ControllerResizeInProgress"
            | "NodeResizePending"
            | "NodeResizeInProgress"
            | "NodeResizeInfeasible" => allocated(),
            _ => request(),
        });
    }
    match status {
        "NodeResizeInProgress" | "NodeResizePending" => Course::Wait,
        "NodeResizeInfeasible" => Course::MarkPending,
        "ControllerResizeInProgress" | "ControllerResizeInfeasible" | "" => Course::Grow(allocated()),
        _ => Course::Grow(request()),
    }
}

/// Whether a volume has no file system.
pub(super) fn is_block(volume: &PersistentVolume) -> bool {
    volume.spec.volume_mode.as_ref().is_some_and(|mode| mode == "Block")
}
