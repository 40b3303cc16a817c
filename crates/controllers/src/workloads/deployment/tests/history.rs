//! Revisions, what ReplicaSets inherit, and which of them are kept.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};

/// `default/web` with the template of revision 9, of which `limit` old ones are kept; `complete` or not.
fn limited(limit: Option<i32>, complete: bool) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.spec.revision_history_limit = limit;
        deployment.spec.template = template("nginx:9");
        deployment.status.observed_generation = 1;
        deployment.status.replicas = 10;
        deployment.status.updated_replicas = 10;
        deployment.status.available_replicas = if complete { 10 } else { 9 };
    })
}

fn history(change: impl Fn(&mut ReplicaSet) + Copy) -> Vec<Arc<ReplicaSet>> {
    let mut sets: Vec<_> = (1..=4).map(|revision| replica_set(revision, 0, change)).collect();
    sets.push(replica_set(9, 10, |_| {}));
    sets
}

#[test]
fn the_oldest_revisions_go_when_all_is_done() {
    let deleted = |limit, complete| steps(&plan_of(&limited(limit, complete), &history(|_| {})));
    assert_eq!(deleted(Some(2), true), ["delete web-1 uid-1 100", "delete web-2 uid-2 200"]);
    assert_eq!(deleted(Some(0), true).len(), 4);
    assert_eq!(deleted(Some(4), true), [""; 0]);
    assert_eq!(deleted(None, true), [""; 0]);
    assert_eq!(deleted(Some(i32::MAX), true), [""; 0]);
    assert_eq!(deleted(Some(2), false), [""; 0]);
}

#[test]
fn revisions_are_numbers_and_not_ages() {
    let sets = history(|set| {
        let revision = 20 - set.metadata.name.trim_start_matches("web-").parse::<i32>().unwrap();
        set.metadata.annotations = annotations(revision, 10, 13);
    });
    let plan = plan_of(&limited(Some(3), true), &sets);
    assert_eq!(steps(&plan).last().unwrap(), "delete web-4 uid-4 400");
}

#[test]
fn deployment_takes_a_revision_that_is_no_number_for_the_oldest() {
    let mut sets = history(|_| {});
    sets[2] = replica_set(3, 0, |set| {
        set.metadata.annotations = annotations(3, 10, 13).with("deployment.kubernetes.io/revision", "x");
    });
    assert_eq!(steps(&plan_of(&limited(Some(3), true), &sets)), ["delete web-3 uid-3 300"]);
}

#[test]
fn what_has_pods_or_may_have_stays() {
    for change in [
        (|set: &mut ReplicaSet| set.status.replicas = 1) as fn(&mut ReplicaSet),
        |set| set.metadata.generation = 4,
        |set| set.metadata.deletion_timestamp = ago(1),
    ] {
        assert_eq!(steps(&plan_of(&limited(Some(0), true), &history(change))), [""; 0]);
    }
    let mut sets = history(|_| {});
    sets[0] = replica_set(1, 0, |set| set.status.replicas = 1);
    // It counts among those that are kept, and another one is not taken in its place.
    assert_eq!(steps(&plan_of(&limited(Some(2), true), &sets)), ["delete web-2 uid-2 200"]);
}

#[test]
fn annotations_are_inherited_but_for_the_controllers_own() {
    let noted = deployment(|deployment| {
        deployment.metadata.annotations = labels(&[
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            ("deployment.kubernetes.io/revision", "1"),
            ("deployment.kubernetes.io/revision-history", "7"),
            ("deployment.kubernetes.io/desired-replicas", "7"),
            ("deployment.kubernetes.io/max-replicas", "7"),
            ("deprecated.deployment.rollback.to", "7"),
            ("example.com/note", "hello"),
        ]);
    });
    assert_eq!(
        steps(&plan_of(&noted, &[replica_set(1, 10, |_| {})])),
        ["update web-1 size=10 desired-replicas=10 max-replicas=13 revision=1 example.com/note=hello"]
    );
    let created = &steps(&plan_of(&noted, &[]))[0];
    let bare = "desired-replicas=10 max-replicas=13 revision=1 example.com/note=hello";
    assert!(created.contains(bare), "{created}");
    // What the Deployment lost stays at the ReplicaSet.
    let kept = replica_set(1, 10, |set| {
        set.metadata.annotations = set.metadata.annotations.with("example.com/other", "kept");
    });
    assert_eq!(steps(&plan_of(&deployment(|_| {}), &[kept])), [""; 0]);
}

#[test]
fn min_ready_seconds_follow() {
    let patient = deployment(|deployment| deployment.spec.min_ready_seconds = 7);
    let plan = plan_of(&patient, &[replica_set(1, 10, |_| {})]);
    let coxswain_machinery::model::Step::Write(coxswain_machinery::model::Write {
        verb: coxswain_machinery::model::plan::Verb::Update(body),
        ..
    }) = &plan.steps[0]
    else {
        panic!("{:?}", all_steps(&plan));
    };
    let set: Arc<ReplicaSet> = decoded(&coxswain_machinery::api::kinds::REPLICA_SETS, body.to_vec());
    assert_eq!((set.spec.min_ready_seconds, set.spec.replicas), (7, Some(10)));
}

/// The new ReplicaSet's annotations after the plan, given the old ones' highest revision and what it has.
#[track_caller]
fn check(highest: i32, revision: Option<&str>, past: Option<&str>, expected: Option<(&str, &str)>) {
    let new = replica_set(1, 0, |set| {
        let mut annotations = set.metadata.annotations.without("deployment.kubernetes.io/revision");
        for (key, value) in [("revision", revision), ("revision-history", past)] {
            if let Some(value) = value {
                annotations = annotations.with(&format!("deployment.kubernetes.io/{key}"), value);
            }
        }
        set.metadata.annotations = annotations;
    });
    let paused = deployment(|deployment| {
        bounded(0, 1, 0)(deployment);
        deployment.spec.paused = true;
    });
    let old = replica_set(2, 0, |set| set.metadata.annotations = annotations(highest, 0, 1));
    let plan = plan_of(&paused, &[old, new]);
    let written = steps(&plan).first().map(|step| {
        let value = |key: &str| {
            let found = step.split(' ').find_map(|part| part.strip_prefix(key));
            found.unwrap_or_default().to_owned()
        };
        (value("revision="), value("revision-history="))
    });
    assert_eq!(written, expected.map(|(revision, past)| (revision.to_owned(), past.to_owned())));
}

#[test]
fn revisions_count_up_and_are_remembered() {
    check(4, Some("2"), None, Some(("5", "2")));
    check(4, Some("2"), Some("1"), Some(("5", "1,2")));
    check(4, None, None, Some(("5", "")));
    check(4, Some("5"), Some("1"), None);
    check(4, Some("7"), None, None);
    check(4, Some("seven"), None, None);
    let long = vec!["111"; 500].join(",");
    check(4, Some("2"), Some(&format!("{long},33")), Some(("5", &format!("{long},33,2")[4..])));
}
