//! Volumes of FlexVolume drivers, from every state that a crash can leave.

use super::*;

const STATUSES: [&str; 7] = [
    "",
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "SomethingElse",
];

fn resizing(wanted: &str, has: &str, allocated: &str, status: &str) -> PersistentVolumeClaim {
    let mut claim = claim(wanted, has);
    if !allocated.is_empty() {
        claim.status.allocated_resources.insert("storage", allocated);
    }
    if !status.is_empty() {
        claim.status.allocated_resource_statuses = [("storage", status)].into_iter().collect();
    }
    claim
}

fn condition(kind: &str, status: &str) -> PersistentVolumeClaimCondition {
    PersistentVolumeClaimCondition {
        r#type: kind.into(),
        status: status.into(),
        last_transition_time: Time::from_seconds(5),
        message: "before".into(),
        ..PersistentVolumeClaimCondition::default()
    }
}

#[test]
fn how_far_it_has_come_says_what_comes_next() {
    use super::super::flex::Course::{Grow, MarkPending, Wait};
    let to = |size: &str| Grow(size.into());
    // Smaller than what is asked for, and not.
    let table = [
        ("", to("5Gi"), to("3Gi")),
        ("ControllerResizeInProgress", to("3Gi"), to("3Gi")),
        ("ControllerResizeInfeasible", to("5Gi"), to("3Gi")),
        ("NodeResizePending", to("3Gi"), Wait),
        ("NodeResizeInProgress", to("3Gi"), Wait),
        ("NodeResizeInfeasible", to("3Gi"), MarkPending),
        ("SomethingElse", to("5Gi"), to("5Gi")),
    ];
    assert_eq!(table.each_ref().map(|row| row.0), STATUSES);
    for (status, when_smaller, otherwise) in table {
        let claim = resizing("5Gi", "1Gi", "3Gi", status);
        let course = |size| super::super::flex::course(&claim, &flexible(size));
        assert_eq!(course("2Gi"), when_smaller, "{status}, smaller");
        assert_eq!([course("5Gi"), course("6Gi")], [otherwise.clone(), otherwise], "{status}");
        let unallocated = resizing("5Gi", "1Gi", "", status);
        if let Grow(size) = super::super::flex::course(&unallocated, &flexible("2Gi")) {
            assert_eq!(size, "5Gi", "{status}, nothing allocated");
        }
    }
}

#[test]
fn a_node_that_is_done_frees_the_volume_of_its_annotation() {
    let plan = planned_for(&claim("2Gi", "2Gi"), &marked(flexible("2Gi")));
    assert_eq!(steps(&plan), ["patch persistentvolumes vol"]);
    let write = plan.writes().next().unwrap();
    let expected = json!({ "metadata": {
        "uid": "volume", "resourceVersion": "9",
        "annotations": { "volume.alpha.kubernetes.io/pre-resize-capacity": null },
    } });
    assert_eq!(patch(write), expected);
    assert!(write.on_failure.is_none() && plan.note == Note::default());
    // The node has not grown what the volume has.
    let waiting = resizing("2Gi", "2Gi", "3Gi", "NodeResizePending");
    assert_eq!(steps(&planned_for(&waiting, &marked(flexible("3Gi")))), [""; 0]);
    assert_eq!(steps(&planned_for(&claim("2Gi", "2Gi"), &flexible("2Gi"))), [""; 0], "nothing is left to do");
}

#[test]
fn growing_begins_with_the_claim_and_the_volume_follows() {
    let mut claim = claim("2Gi", "1Gi");
    claim.status.conditions =
        ["FileSystemResizePending", "Unused", "NodeResizeError", "ControllerResizeError"]
            .map(|kind| condition(kind, "True"))
            .to_vec();
    let plan = planned_for(&claim, &flexible("1Gi"));
    assert_eq!(steps(&plan), ["patch persistentvolumeclaims/status ns/data", "patch persistentvolumes vol"]);
    assert!(plan.look_again && plan.note.driver.as_deref() == Some(DRIVER));
    let [first, second] = plan.writes().collect::<Vec<_>>()[..] else { panic!() };
    let dropped = |kind: &str| json!({ "$patch": "delete", "type": kind });
    let expected = json!({
        "metadata": {
            "uid": "claim", "resourceVersion": "7",
            "annotations": { "volume.kubernetes.io/storage-resizer": DRIVER },
        },
        "status": {
            "conditions": [
                { "type": "Resizing", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z",
                  "lastProbeTime": null, "reason": null, "message": null },
                dropped("FileSystemResizePending"), dropped("NodeResizeError"), dropped("ControllerResizeError"),
            ],
            "allocatedResources": { "storage": "2Gi" },
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
        },
    });
    assert_eq!(patch(first), expected);
    let told = first.on_failure.as_ref().unwrap();
    assert!(told.warning && told.reason == "VolumeResizeFailed");
    assert_eq!(
        told.message,
        "error updating pvc ns/data with resize in progress: patchPVCStatus failed to patch PVC \"data\": {error}"
    );
    let expected = json!({
        "metadata": { "uid": "volume", "resourceVersion": "9" }, "spec": { "capacity": { "storage": "2Gi" } },
    });
    assert_eq!(patch(second), expected);
    assert_eq!(
        second.on_failure.as_ref().unwrap().message,
        "error updating pv for pvc ns/data: error Patching PV \"vol\" with error : {error}"
    );
}

#[test]
fn a_condition_that_is_true_already_stays_as_it_is() {
    let mut claim = resizing("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    claim.status.conditions = vec![condition("Resizing", "True")];
    let plan = planned_for(&claim, &flexible("2Gi"));
    assert_eq!(steps(&plan), ["patch persistentvolumeclaims/status ns/data"], "the volume has its size");
    let conditions = &patch(plan.writes().next().unwrap())["status"]["conditions"];
    assert_eq!(*conditions, json!([{ "type": "Resizing" }]));
    claim.status.conditions = vec![condition("Resizing", "False")];
    let conditions =
        &patch(planned_for(&claim, &flexible("2Gi")).writes().next().unwrap())["status"]["conditions"];
    assert_eq!((&conditions[0]["status"], &conditions[0]["message"]), (&json!("True"), &Value::Null));
}

/// The view of the second look, when these were the answers.
fn second_look(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Plan<Note> {
    let room = room(&[&super::claim("2Gi", "1Gi")], &[&flexible("1Gi")]);
    let effect = |kind: &'static Kind, key, subresource, answer: AnyObject| Effect {
        kind,
        key,
        subresource,
        change: WriteEffect::Stored(answer.meta().resource_version.clone()),
        answer: Some(answer),
    };
    let (at, subresource) = (Key::new("", "vol"), "status");
    let read = Reads::default()
        .after(effect(&PERSISTENT_VOLUME_CLAIMS, key(), subresource, Arc::new(claim)))
        .after(effect(&PERSISTENT_VOLUMES, at, "", Arc::new(volume)));
    match room.observe(&key(), &[], &read).unwrap() {
        Observation::View(view) => Controller::plan(&view, now()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn then_the_node_is_told_and_the_volume_says_what_it_was() {
    let mut answered = resizing("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    answered.metadata.resource_version = "8".into();
    answered.status.conditions = vec![condition("Resizing", "True")];
    let mut grown = flexible("2Gi");
    grown.metadata.resource_version = "10".into();
    let plan = second_look(answered.clone(), grown.clone());
    assert_eq!(steps(&plan), ["patch persistentvolumeclaims/status ns/data", "patch persistentvolumes vol"]);
    assert!(!plan.look_again && plan.note.driver.is_some());
    let [first, second] = plan.writes().collect::<Vec<_>>()[..] else { panic!() };
    let expected = json!({
        "metadata": { "uid": "claim", "resourceVersion": "8" },
        "status": {
            "allocatedResourceStatuses": { "storage": "NodeResizePending" },
            "conditions": [{
                "type": "FileSystemResizePending", "status": "True",
                "lastTransitionTime": "2023-11-14T22:13:20Z", "lastProbeTime": null, "reason": null,
                "message": "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
            }],
        },
    });
    assert_eq!(patch(first), expected);
    let twice = "error marking pvc ns/data for node expansion: ";
    let told = |write: &Write| write.on_failure.as_ref().unwrap().message.clone();
    assert_eq!(told(first), format!("{twice}{twice}patchPVCStatus failed to patch PVC \"data\": {{error}}"));
    let expected = json!({ "metadata": {
        "uid": "volume", "resourceVersion": "10",
        "annotations": { "volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi" },
    } });
    assert_eq!(patch(second), expected);
    assert_eq!(
        told(second),
        format!(
            "{twice}error updating pv vol annotation (volume.alpha.kubernetes.io/pre-resize-capacity) with pre-resize \
             capacity 1Gi: error Patching PV \"vol\" with error : {{error}}"
        )
    );
    let plan = second_look(answered, marked(grown));
    assert_eq!(plan.writes().count(), 1, "what it was stays said");
}

#[test]
fn a_volume_without_a_file_system_is_done_at_once() {
    let mut answered = resizing("2Gi", "1Gi", "2Gi", "ControllerResizeInProgress");
    answered.status.conditions = vec![condition("Unused", "True"), condition("Resizing", "True")];
    let mut grown = flexible("2Gi");
    grown.spec.volume_mode = Some("Block".into());
    let plan = second_look(answered, grown);
    assert_eq!(steps(&plan), ["patch persistentvolumeclaims/status ns/data"]);
    let write = plan.writes().next().unwrap();
    let expected = json!({
        "metadata": { "uid": "claim", "resourceVersion": "7" },
        "status": {
            "capacity": { "storage": "2Gi" },
            "conditions": [{ "$patch": "delete", "type": "Resizing" }],
            "allocatedResourceStatuses": { "storage": null },
        },
    });
    assert_eq!(patch(write), expected);
    let told = write.on_success.as_ref().unwrap();
    assert_eq!(
        (told.warning, told.reason, told.message.as_str()),
        (false, "VolumeResizeSuccessful", "ExpandVolume succeeded for volume ns/data")
    );
    assert_eq!(
        write.on_failure.as_ref().unwrap().message,
        "error marking pvc ns/data as resized: patchPVCStatus failed to patch PVC \"data\": {error}"
    );
}

#[test]
fn a_node_that_could_not_is_asked_again() {
    let plan = planned_for(&resizing("2Gi", "1Gi", "2Gi", "NodeResizeInfeasible"), &flexible("2Gi"));
    assert_eq!(steps(&plan), ["patch persistentvolumeclaims/status ns/data", "patch persistentvolumes vol"]);
    let told = |at: usize| plan.writes().nth(at).unwrap().on_failure.as_ref().unwrap().message.clone();
    assert!(told(0).starts_with("error marking pvc ns/data for node expansion: patchPVCStatus failed"));
    assert!(told(1).starts_with("error updating pv vol annotation"));
    assert!(!plan.look_again);
}

/// From whatever a crash has left, looks come to an end where the node is waited for, or nothing is left.
#[test]
fn every_state_that_a_crash_leaves_converges() {
    use super::super::flex::Course;
    for status in STATUSES {
        for (has, size, allocated) in
            [("1Gi", "1Gi", ""), ("1Gi", "1Gi", "2Gi"), ("1Gi", "2Gi", "2Gi"), ("2Gi", "2Gi", "2Gi")]
        {
            let claim = resizing("2Gi", has, allocated, status);
            let mut volume = marked(flexible(size));
            match super::super::flex::course(&claim, &volume) {
                Course::Grow(to) => {
                    volume.spec.capacity.insert("storage", &to);
                    let after = resizing("2Gi", has, &to, "ControllerResizeInProgress");
                    let plan = second_look(after, volume);
                    assert!(!plan.look_again && plan.writes().count() == 1, "{status} {has} {size}");
                }
                Course::Finish => assert_eq!((has, size), ("2Gi", "2Gi"), "{status}"),
                Course::Wait => assert!(status.starts_with("NodeResize"), "{status}"),
                Course::MarkPending => assert_eq!(status, "NodeResizeInfeasible"),
                Course::Go => panic!("{status}: nothing was begun"),
            }
        }
    }
}
