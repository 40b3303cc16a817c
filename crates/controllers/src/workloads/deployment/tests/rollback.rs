//! Rolling back by annotation: to which template, with which annotations, and what is told.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::DEPLOYMENTS;
use coxswain_machinery::model::plan::{Step, Verb, Write};

const TO: &str = "deprecated.deployment.rollback.to";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The Deployment of `nginx:IMAGE`, which is rolled out as revision IMAGE and done, to be rolled back to `to`.
fn asking(image: i32, to: &str, change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.spec.template = template(&format!("nginx:{image}"));
        let annotations = [(REVISION, &*image.to_string()), (TO, to), ("mine", "new")];
        deployment.metadata.annotations = labels(&annotations);
        deployment.status.conditions = vec![condition("Progressing", "True", "NewReplicaSetAvailable", 1000)];
        change(deployment);
    })
}

/// Revisions 1 and 2, without pods, and 3 with all of them. Each has a note of what it is.
fn history() -> Vec<Arc<ReplicaSet>> {
    let set = |revision: i32| {
        let size = if revision == 3 { 10 } else { 0 };
        replica_set(revision, size, |set| {
            let note = if revision == 3 { ("mine", "new") } else { ("note", "old") };
            set.metadata.annotations = set.metadata.annotations.with(note.0, note.1);
        })
    };
    (1..=3).map(set).collect()
}

/// What the only step of a rollback leaves, and its event: image, annotations.
#[track_caller]
fn rolled_back(deployment: &Arc<Deployment>, sets: &[Arc<ReplicaSet>]) -> (i32, Vec<String>, String) {
    let plan = plan_of(deployment, sets);
    let [
        Step::Write(Write {
            kind, verb: Verb::Update(body), subresource: "", on_success: Some(event), ..
        }),
    ] = &plan.steps[..]
    else {
        panic!("{:?}", all_steps(&plan));
    };
    assert_eq!(*kind, &DEPLOYMENTS);
    let new: Arc<Deployment> = decoded(&DEPLOYMENTS, body.to_vec());
    assert_eq!(new.metadata.resource_version, deployment.metadata.resource_version);
    let image = (1..=9).find(|image| new.spec.template == template(&format!("nginx:{image}")));
    let annotations = new.metadata.annotations.iter().map(|(key, value)| format!("{key}={value}"));
    let warning = if event.warning { "Warning " } else { "" };
    (
        image.expect("a template without the hash label"),
        annotations.collect(),
        format!("{warning}{}: {}", event.reason, event.message),
    )
}

#[test]
fn a_revision_is_found_by_its_number_and_the_last_one_by_its_order() {
    let old = ["deployment.kubernetes.io/revision=3", "note=old"];
    for (to, image) in [("1", 1), ("2", 2), ("0", 2)] {
        let (found, annotations, event) = rolled_back(&asking(3, to, |_| {}), &history());
        assert_eq!(
            (found, &*event),
            (image, &*format!("DeploymentRollback: Rolled back deployment \"web\" to revision {image}"))
        );
        assert_eq!(annotations, old, "the ReplicaSet's, and of its own only those that no ReplicaSet has");
    }
    // The last one is by number and not by age.
    let mut sets = history();
    sets[0] = replica_set(1, 0, |set| set.metadata.annotations = annotations(7, 10, 13));
    sets[2] = replica_set(3, 10, |set| {
        set.metadata.annotations = annotations(8, 10, 13).with("mine", "new");
    });
    let shown = asking(3, "0", |deployment| {
        deployment.metadata.annotations = deployment.metadata.annotations.with(REVISION, "8");
    });
    assert_eq!(rolled_back(&shown, &sets).0, 1);
}

#[test]
fn where_there_is_nothing_to_roll_back_to_the_annotation_goes_and_a_warning_says_why() {
    let unknown = "Warning DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to.";
    let no_last = "Warning DeploymentRollbackRevisionNotFound: Unable to find last revision.";
    let unchanged = "Warning DeploymentRollbackTemplateUnchanged: The rollback revision contains the same template as \
                     current deployment \"web\"";
    let all = history();
    let numberless = replica_set(1, 0, |set| set.metadata.annotations = labels(&[(REVISION, "first")]));
    let unnumbered = replica_set(1, 0, |set| set.metadata.annotations = labels(&[]));
    let cases = [
        ("9", all.clone(), unknown),
        ("3", all.clone(), unchanged),
        ("0", vec![all[2].clone()], no_last),
        ("0", vec![numberless, all[2].clone()], no_last),
        ("0", vec![unnumbered, all[2].clone()], no_last),
    ];
    for (to, sets, warning) in cases {
        let (image, annotations, event) = rolled_back(&asking(3, to, |_| {}), &sets);
        assert_eq!((image, &*event), (3, warning));
        assert_eq!(annotations, ["deployment.kubernetes.io/revision=3", "mine=new"]);
    }
}

#[test]
fn the_present_template_has_its_revision_first() {
    // It has no ReplicaSet yet: the last revision is the one that was rolled out until now.
    let made = |strategy: &str| {
        let fresh = asking(4, "0", |deployment| deployment.spec.strategy.r#type = strategy.into());
        steps(&plan_of(&fresh, &history()))[0].clone()
    };
    assert!(made("RollingUpdate").contains("size=3 desired-replicas=10 max-replicas=13 revision=4"));
    assert!(made("Recreate").contains("size=0 "), "{}", made("Recreate"));
    // Its ReplicaSet is not annotated yet, or the Deployment does not show the revision yet.
    let noted = asking(3, "1", |deployment| {
        deployment.metadata.annotations = deployment.metadata.annotations.with("mine", "newer");
    });
    assert!(steps(&plan_of(&noted, &history()))[0].contains("update web-3 "));
    let late = asking(3, "1", |deployment| {
        deployment.metadata.annotations = deployment.metadata.annotations.with(REVISION, "2");
    });
    assert_eq!(all_steps(&plan_of(&late, &history())), ["status web"]);
}

/// A release whose refusal is tolerated is planned every time.
#[test]
fn releases_do_not_hold_up_a_rollback() {
    let mut sets = history();
    sets[0] = replica_set(1, 0, |set| set.metadata.labels = labels(&[("app", "other")]));
    let lines = all_steps(&plan_of(&asking(3, "2", |_| {}), &sets));
    assert!(lines[0].starts_with("patch web-1 "), "{lines:?}");
    assert!(
        lines[1].contains("DeploymentRollback: Rolled back deployment \"web\" to revision 2"),
        "{lines:?}"
    );
}

#[test]
fn it_comes_before_scaling_and_waits_while_paused() {
    let larger = asking(3, "1", |deployment| deployment.spec.replicas = Some(20));
    assert_eq!(rolled_back(&larger, &history()).0, 1);
    let paused = asking(3, "1", |deployment| deployment.spec.paused = true);
    assert_eq!(steps(&plan_of(&paused, &history())), [""; 0]);
    // Its revision may be one that the history does not keep.
    for (to, expected) in [("1", 0), ("", 2)] {
        let forgetful = asking(3, to, |deployment| {
            deployment.spec.paused = true;
            deployment.spec.revision_history_limit = Some(0);
        });
        assert_eq!(steps(&plan_of(&forgetful, &history())).len(), expected, "{to:?}");
    }
    for text in ["", "one"] {
        assert_eq!(steps(&plan_of(&asking(3, text, |_| {}), &history())), [""; 0], "{text:?}");
    }
}
