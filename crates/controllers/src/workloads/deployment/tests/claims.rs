//! Adoption and release.

use serde_json::json;

use super::fixtures::*;

#[test]
fn an_orphan_is_adopted_after_a_live_look_and_nothing_else_happens() {
    let orphan = replica_set(1, 10, |set| set.metadata.owner_references.clear());
    let other = deployment(|deployment| deployment.spec.replicas = Some(3));
    let patch = json!({"metadata": {
        "uid": "uid-1",
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web-uid",
            "controller": true, "blockOwnerDeletion": true,
        }],
    }});
    assert_eq!(
        all_steps(&plan_of(&other, &[orphan, replica_set(2, 5, |_| {})])),
        ["verify deployments.apps default/web Alive(\"web-uid\")".to_owned(), format!("patch web-1 {patch}")]
    );
}

#[test]
fn what_is_no_longer_selected_is_released_and_does_not_count() {
    let relabeled = replica_set(1, 10, |set| set.metadata.labels = labels(&[("app", "other")]));
    let plan = plan_of(&deployment(|_| {}), &[relabeled]);
    let patch =
        json!({"metadata": {"uid": "uid-1", "ownerReferences": [{"$patch": "delete", "uid": "web-uid"}]}});
    let steps = steps(&plan);
    assert_eq!(steps[0], format!("patch web-1 {patch}"));
    assert!(steps[1].starts_with("create web-") && steps[1].contains(" size=10 "), "{steps:?}");
}

#[test]
fn nobody_elses_and_nothing_dying_is_touched() {
    let others = replica_set(1, 10, |set| set.metadata.owner_references[0].uid = "other".into());
    let dying = replica_set(2, 10, |set| {
        set.metadata.owner_references.clear();
        set.metadata.deletion_timestamp = ago(1);
    });
    let unselected = replica_set(3, 10, |set| {
        set.metadata.owner_references.clear();
        set.metadata.labels = labels(&[]);
    });
    let steps = steps(&plan_of(&deployment(|_| {}), &[others, dying, unselected]));
    assert!(steps.len() == 1 && steps[0].starts_with("create "), "{steps:?}");
}

#[test]
fn one_that_is_being_deleted_claims_nothing() {
    let going = deployment(|deployment| deployment.metadata.deletion_timestamp = ago(1));
    let orphan = replica_set(1, 10, |set| set.metadata.owner_references.clear());
    let unselected = replica_set(3, 10, |set| set.metadata.labels = labels(&[]));
    assert_eq!(steps(&plan_of(&going, &[orphan, unselected])), [""; 0]);
}
