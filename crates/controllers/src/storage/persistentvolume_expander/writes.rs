//! The patches by which a volume grows in its objects, with what is told when they fail. Each carries the UID and resource version
//! of what was read.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::view::text;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::model::plan::{EventSpec, Patch, Regarding, Verb};
use coxswain_machinery::model::{Key, Step, Write};
use coxswain_machinery::wire::{Str, Time};

/// Says on a claim whose resizer is to grow its volume.
pub(super) const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// Says on a volume how much its claim had before it grew.
pub(super) const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// The conditions of a claim that speak of its resizing.
const RESIZE_CONDITIONS: [&str; 4] =
    [RESIZING, FILE_SYSTEM_PENDING, "ControllerResizeError", "NodeResizeError"];
const RESIZING: &str = "Resizing";
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";
const RESTART: &str = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";

/// Whether a node is told to grow a file system for the first time since the volume has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    /// It is.
    First,
    /// It was told before, and could not.
    Again,
}

/// The resizer of a migrated volume, on its claim.
pub(super) fn resizer(claim: &PersistentVolumeClaim, driver: &str) -> Write {
    let failed = EventSpec {
        reason: "ExternalExpanding",
        ..failed(
            claim,
            format!("error setting resizer annotation to pvc {}, with error {}", key(claim), of_claim(claim)),
        )
    };
    let patch = json!({ "metadata": identity(&claim.metadata, json!({ RESIZER: driver })) });
    Write { on_failure: Some(failed), ..status_of(claim, patch) }
}

/// The claim says that it is being resized, and the volume has its new size.
pub(super) fn begun(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    driver: &str,
    size: &Str,
    now: Timestamp,
) -> Vec<Step> {
    let mut conditions = vec![condition(claim, RESIZING, "", now)];
    conditions.extend(without(claim, RESIZING));
    let patch = json!({
        "metadata": identity(&claim.metadata, json!({ RESIZER: driver })),
        "status": {
            "conditions": conditions,
            "allocatedResources": { "storage": size.as_str() },
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
        },
    });
    let at = key(claim);
    let told = format!("error updating pvc {at} with resize in progress: {}", of_claim(claim));
    let marked = Write { on_failure: Some(failed(claim, told)), ..status_of(claim, patch) };
    let mut steps = vec![Step::Write(marked)];
    if text(&volume.spec.capacity) != *size {
        let patch = json!({
            "metadata": identity(&volume.metadata, Value::Null),
            "spec": { "capacity": { "storage": size.as_str() } },
        });
        let told = format!("error updating pv for pvc {at}: {}", of_volume(volume));
        steps.push(Step::Write(Write { on_failure: Some(failed(claim, told)), ..of(volume, patch) }));
    }
    steps
}

/// The node is to grow the file system. The volume says how much the claim had.
pub(super) fn pending_on_node(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    now: Timestamp,
    marking: Marking,
) -> Vec<Step> {
    let mut status = json!({ "allocatedResourceStatuses": { "storage": "NodeResizePending" } });
    let is_said = claim
        .status
        .conditions
        .iter()
        .any(|held| held.r#type == FILE_SYSTEM_PENDING && held.status == "True");
    if !is_said {
        status["conditions"] = json!([condition(claim, FILE_SYSTEM_PENDING, RESTART, now)]);
    }
    let patch = json!({ "metadata": identity(&claim.metadata, Value::Null), "status": status });
    let at = key(claim);
    let marking_failed = format!("error marking pvc {at} for node expansion: ");
    let (of_status, of_annotation) = match marking {
        Marking::First => (marking_failed.repeat(2), marking_failed),
        Marking::Again => (marking_failed, String::new()),
    };
    let told = failed(claim, of_status + &of_claim(claim));
    let mut steps = vec![Step::Write(Write { on_failure: Some(told), ..status_of(claim, patch) })];
    if !volume.metadata.annotations.contains_key(PRE_RESIZE) {
        let had = text(&claim.status.capacity);
        let told = format!(
            "{of_annotation}error updating pv {} annotation ({PRE_RESIZE}) with pre-resize capacity {had}: {}",
            volume.metadata.name,
            of_volume(volume)
        );
        let patch = json!({ "metadata": identity(&volume.metadata, json!({ PRE_RESIZE: had.as_str() })) });
        steps.push(Step::Write(Write { on_failure: Some(failed(claim, told)), ..of(volume, patch) }));
    }
    steps
}

/// The claim has what its volume has: there is no file system to grow.
pub(super) fn resized(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Write {
    let size = text(&volume.spec.capacity);
    let patch = json!({
        "metadata": identity(&claim.metadata, Value::Null),
        "status": {
            "capacity": { "storage": size.as_str() },
            "conditions": without(claim, ""),
            "allocatedResourceStatuses": { "storage": null },
        },
    });
    let at = key(claim);
    let succeeded = EventSpec {
        regarding: Regarding::of(&PERSISTENT_VOLUME_CLAIMS, &claim.metadata),
        warning: false,
        reason: "VolumeResizeSuccessful",
        message: format!("ExpandVolume succeeded for volume {at}"),
    };
    let told = format!("error marking pvc {at} as resized: {}", of_claim(claim));
    Write { on_success: Some(succeeded), on_failure: Some(failed(claim, told)), ..status_of(claim, patch) }
}

/// The node is done, so the volume need not say any more how much its claim had.
pub(super) fn without_annotation(volume: &PersistentVolume) -> Write {
    of(volume, json!({ "metadata": identity(&volume.metadata, json!({ PRE_RESIZE: null })) }))
}

/// A condition that is true. One that is so already stays as it is.
fn condition(claim: &PersistentVolumeClaim, kind: &str, message: &str, now: Timestamp) -> Value {
    let is_it = claim.status.conditions.iter().any(|held| held.r#type == kind && held.status == "True");
    if is_it {
        return json!({ "type": kind });
    }
    // What it said before goes.
    let message = if message.is_empty() { Value::Null } else { message.into() };
    json!({
        "type": kind, "status": "True", "lastTransitionTime": Time::from(now).to_string(), "lastProbeTime": null,
        "reason": null, "message": message,
    })
}

/// What takes away the conditions of a claim that speak of its resizing, but for one.
fn without(claim: &PersistentVolumeClaim, spared: &str) -> Vec<Value> {
    let is_stale = |kind: &str| kind != spared && RESIZE_CONDITIONS.contains(&kind);
    let stale = claim.status.conditions.iter().filter(|held| is_stale(&held.r#type));
    stale.map(|held| json!({ "$patch": "delete", "type": held.r#type.as_str() })).collect()
}

/// Which object is meant, as it was read; with annotations to set, if any.
fn identity(meta: &ObjectMeta, annotations: Value) -> Value {
    let mut identity =
        json!({ "uid": meta.uid.to_string(), "resourceVersion": meta.resource_version.as_str() });
    if !annotations.is_null() {
        identity["annotations"] = annotations;
    }
    identity
}

fn status_of(claim: &PersistentVolumeClaim, patch: Value) -> Write {
    Write::new(&PERSISTENT_VOLUME_CLAIMS, key(claim), Verb::Patch(Patch::Strategic(patch))).on("status")
}

fn of(volume: &PersistentVolume, patch: Value) -> Write {
    Write::new(&PERSISTENT_VOLUMES, Key::of(&volume.metadata), Verb::Patch(Patch::Strategic(patch)))
}

fn key(claim: &PersistentVolumeClaim) -> Key {
    Key::of(&claim.metadata)
}

fn of_claim(claim: &PersistentVolumeClaim) -> String {
    format!("patchPVCStatus failed to patch PVC {:?}: {{error}}", claim.metadata.name.as_str())
}

fn of_volume(volume: &PersistentVolume) -> String {
    format!("error Patching PV {:?} with error : {{error}}", volume.metadata.name.as_str())
}

fn failed(claim: &PersistentVolumeClaim, message: String) -> EventSpec {
    EventSpec {
        regarding: Regarding::of(&PERSISTENT_VOLUME_CLAIMS, &claim.metadata),
        warning: true,
        reason: "VolumeResizeFailed",
        message,
    }
}
