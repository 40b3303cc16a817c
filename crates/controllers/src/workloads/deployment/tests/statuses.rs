//! The status: counts, conditions and their times, the deadline.

use std::sync::Arc;
use std::time::Duration;

use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet, ReplicaSetCondition};
use coxswain_machinery::wire::Time;

/// `default/web` as it is when all is done, changed.
fn done(change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.metadata.annotations = labels(&[("deployment.kubernetes.io/revision", "1")]);
        let status = &mut deployment.status;
        status.observed_generation = 1;
        status.replicas = 10;
        status.updated_replicas = 10;
        status.ready_replicas = 10;
        status.available_replicas = 10;
        status.terminating_replicas = Some(0);
        status.conditions = vec![
            condition("Available", "True", "MinimumReplicasAvailable", 500),
            condition("Progressing", "True", "NewReplicaSetAvailable", 400),
        ];
        change(deployment);
    })
}

/// The same in mid roll-out, with this reason of `Progressing`, updated `since` seconds ago.
fn rolling(reason: &str, since: i64) -> Arc<Deployment> {
    done(|deployment| {
        deployment.status.updated_replicas = 4;
        let status = if reason == "ProgressDeadlineExceeded" { "False" } else { "True" };
        deployment.status.conditions[1] = condition("Progressing", status, reason, since);
    })
}

fn only(size: i32, available: i32) -> [Arc<ReplicaSet>; 1] {
    [replica_set(1, size, |set| {
        set.status.available_replicas = available;
        set.status.ready_replicas = available;
    })]
}

/// The new ReplicaSet and an old one, neither of which can change now.
fn stuck(updated: i32) -> [Arc<ReplicaSet>; 2] {
    let old = replica_set(0, 9, |set| {
        set.status.replicas = 10 - updated;
        set.status.available_replicas = 8;
    });
    let new = replica_set(1, 4, |set| {
        set.status.replicas = updated;
        set.status.ready_replicas = 2;
        set.status.available_replicas = 0;
    });
    [old, new]
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let plan = plan_of(&done(|_| {}), &only(10, 10));
    assert_eq!(all_steps(&plan), [""; 0]);
    assert_eq!((plan.requeue_after, plan.retry), (None, None));
}

#[test]
fn counts_are_sums_and_the_new_ones_are_the_updated_ones() {
    let sets = [
        replica_set(1, 4, |set| {
            set.status.replicas = 4;
            set.status.ready_replicas = 2;
            set.status.available_replicas = 1;
            set.status.terminating_replicas = Some(2);
        }),
        replica_set(0, 9, |set| {
            set.status.available_replicas = 8;
            set.status.terminating_replicas = Some(1);
        }),
    ];
    let status = updated(&plan_of(&deployment(|_| {}), &sets)).unwrap().status.clone();
    assert_eq!((status.replicas, status.updated_replicas, status.ready_replicas), (13, 4, 11));
    // The plan takes two old pods away, which may be refused.
    assert_eq!((status.available_replicas, status.unavailable_replicas), (9, 4));
    assert_eq!((status.terminating_replicas, status.observed_generation), (Some(3), 1));
}

#[test]
fn terminating_pods_are_told_only_if_all_tell() {
    let set = |terminating: Option<i32>, observed: i64| {
        replica_set(0, 0, move |set| {
            set.status.terminating_replicas = terminating;
            set.status.observed_generation = observed;
        })
    };
    for (terminating, observed, expected) in [(Some(2), 3, Some(2)), (None, 3, None), (None, 0, Some(0))] {
        let [new] = only(9, 9);
        let plan = plan_of(&done(|_| {}), &[new, set(terminating, observed)]);
        assert_eq!(updated(&plan).unwrap().status.terminating_replicas, expected);
    }
    let mut view = view(&done(|_| {}), &only(10, 10));
    view.gates.terminating_replicas = false;
    let plan = super::super::plan::plan(&view, now());
    assert_eq!(updated(&plan).unwrap().status.terminating_replicas, None);
}

#[test]
fn availability_has_its_own_bound() {
    assert_eq!(
        conditions(&plan_of(&done(|_| {}), &only(10, 8))),
        [
            "Available=True MinimumReplicasAvailable 500/500",
            "Progressing=True NewReplicaSetAvailable 400/400"
        ]
    );
    assert_eq!(
        conditions(&plan_of(&done(|_| {}), &only(10, 7))),
        ["Progressing=True NewReplicaSetAvailable 400/400", "Available=False MinimumReplicasUnavailable 0/0"]
    );
}

#[test]
fn progress_moves_the_update_time_and_not_the_transition() {
    let plan = plan_of(&rolling("ReplicaSetUpdated", 100), &stuck(5));
    assert_eq!(
        conditions(&plan),
        ["Available=True MinimumReplicasAvailable 500/500", "Progressing=True ReplicaSetUpdated 0/100"]
    );
    let message = updated(&plan).unwrap().status.conditions[1].message.clone();
    assert_eq!(message, "ReplicaSet \"web-1\" is progressing.");
    // It was not `True` before.
    let plan = plan_of(&rolling("ProgressDeadlineExceeded", 100), &stuck(5));
    assert_eq!(conditions(&plan)[1], "Progressing=True ReplicaSetUpdated 0/0");
}

#[test]
fn the_end_is_noted_once() {
    let plan = plan_of(&rolling("ReplicaSetUpdated", 100), &only(10, 10));
    assert_eq!(conditions(&plan)[1], "Progressing=True NewReplicaSetAvailable 0/100");
    let message = updated(&plan).unwrap().status.conditions[1].message.clone();
    assert_eq!(message, "ReplicaSet \"web-1\" has successfully progressed.");
    assert_eq!(plan.requeue_after, None);
}

#[test]
fn the_deadline_is_waited_for_and_then_reported() {
    let quiet = |since: i64| {
        let mut deployment = (*rolling("ReplicaSetUpdated", since)).clone();
        deployment.status.ready_replicas = 100;
        deployment.status.available_replicas = 100;
        decoded::<Deployment>(
            &coxswain_machinery::api::kinds::DEPLOYMENTS,
            coxswain_machinery::wire::Message::to_bytes(&deployment),
        )
    };
    let plan = plan_of(&quiet(590), &stuck(4));
    assert_eq!(conditions(&plan)[1], "Progressing=True ReplicaSetUpdated 590/590");
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(10_001)));
    let plan = plan_of(&quiet(600), &stuck(4));
    assert_eq!(conditions(&plan)[1], "Progressing=True ReplicaSetUpdated 600/600");
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(1)), "the deadline itself is still in time");
    let plan = plan_of(&quiet(601), &stuck(4));
    assert_eq!(conditions(&plan)[1], "Progressing=False ProgressDeadlineExceeded 0/0");
    let message = updated(&plan).unwrap().status.conditions[1].message.clone();
    assert_eq!(message, "ReplicaSet \"web-1\" has timed out progressing.");
    assert_eq!(plan.requeue_after, None);
}

#[test]
fn losing_pods_after_the_end_is_no_missed_deadline() {
    let plan = plan_of(
        &done(|deployment| deployment.status.conditions[1].last_update_time = ago(5000)),
        &only(10, 3),
    );
    assert_eq!(conditions(&plan)[0], "Progressing=True NewReplicaSetAvailable 5000/400");
    assert_eq!(plan.requeue_after, None);
}

#[test]
fn without_a_deadline_there_is_no_progress_to_tell() {
    for seconds in [None, Some(i32::MAX)] {
        let plan =
            plan_of(&done(|deployment| deployment.spec.progress_deadline_seconds = seconds), &only(10, 10));
        assert_eq!(conditions(&plan), ["Available=True MinimumReplicasAvailable 500/500"]);
    }
}

#[test]
fn a_replica_set_that_is_there_already_is_found() {
    let bare = deployment(|deployment| deployment.metadata.annotations = labels(&[]));
    let plan = plan_of(&bare, &only(10, 4));
    let after = updated(&plan).unwrap();
    assert_eq!(after.metadata.annotations.get("deployment.kubernetes.io/revision").unwrap(), "1");
    assert_eq!(
        conditions(&plan)[1],
        "Progressing=True ReplicaSetUpdated 0/0",
        "and at once its pods are progress"
    );
    let plan = plan_of(
        &bare,
        &[replica_set(1, 10, |set| {
            set.status.replicas = 0;
            set.status.ready_replicas = 0;
            set.status.available_replicas = 0;
        })],
    );
    assert_eq!(conditions(&plan)[0], "Progressing=True FoundNewReplicaSet 0/0");
    assert_eq!(updated(&plan).unwrap().status.conditions[0].message, "Found new replica set \"web-1\"");
}

#[test]
fn pausing_and_resuming_are_noted() {
    let paused = done(|deployment| deployment.spec.paused = true);
    let plan = plan_of(&paused, &only(10, 10));
    assert_eq!(conditions(&plan)[1], "Progressing=Unknown DeploymentPaused 0/0");
    assert_eq!(updated(&plan).unwrap().status.conditions[1].message, "Deployment is paused");

    let resume = |complete: bool| {
        done(|deployment| {
            deployment.status.conditions[1] = condition("Progressing", "Unknown", "DeploymentPaused", 5000);
            if !complete {
                deployment.status.updated_replicas = 4;
                deployment.status.ready_replicas = 100;
                deployment.status.available_replicas = 100;
            }
        })
    };
    let plan = plan_of(&resume(true), &only(10, 10));
    assert_eq!(conditions(&plan)[1], "Progressing=True NewReplicaSetAvailable 0/0");
    let plan = plan_of(&resume(false), &stuck(4));
    assert_eq!(
        conditions(&plan)[1],
        "Progressing=Unknown DeploymentResumed 0/5000",
        "the deadline begins anew"
    );
    assert_eq!(updated(&plan).unwrap().status.conditions[1].message, "Deployment is resumed");
}

#[test]
fn a_missed_deadline_outlives_a_pause() {
    let missed = |paused: bool| {
        done(|deployment| {
            deployment.spec.paused = paused;
            deployment.metadata.generation = 2;
            deployment.status.conditions[1] =
                condition("Progressing", "False", "ProgressDeadlineExceeded", 50);
        })
    };
    let plan = plan_of(&missed(true), &only(10, 10));
    assert_eq!(conditions(&plan)[1], "Progressing=False ProgressDeadlineExceeded 50/50");
}

fn failing(revision: i32, size: i32, message: &str) -> Arc<ReplicaSet> {
    let message = message.to_owned();
    replica_set(revision, size, move |set| {
        set.status.conditions = vec![ReplicaSetCondition {
            r#type: "ReplicaFailure".into(),
            status: "True".into(),
            reason: "FailedCreate".into(),
            message: message.into(),
            last_transition_time: Time::from_seconds(NOW - 30),
        }];
    })
}

#[test]
fn a_replica_sets_failure_is_the_deployments_and_the_new_ones_comes_first() {
    let plan = plan_of(&done(|_| {}), &[failing(0, 0, "old"), failing(1, 10, "new")]);
    assert_eq!(conditions(&plan)[2], "ReplicaFailure=True FailedCreate 30/30");
    assert_eq!(updated(&plan).unwrap().status.conditions[2].message, "new");
    let plan = plan_of(&done(|_| {}), &[failing(0, 0, "old"), replica_set(1, 10, |_| {})]);
    assert_eq!(updated(&plan).unwrap().status.conditions[2].message, "old");
    let over = done(|deployment| {
        deployment.status.conditions.push(condition("ReplicaFailure", "True", "FailedCreate", 30));
    });
    assert_eq!(conditions(&plan_of(&over, &only(10, 10))).len(), 2);
}

#[test]
fn one_that_is_being_deleted_only_gets_its_status() {
    let going = deployment(|deployment| {
        deployment.metadata.deletion_timestamp = ago(1);
        deployment.spec.template = template("nginx:2");
    });
    let plan = plan_of(&going, &[replica_set(1, 10, |_| {})]);
    assert_eq!(all_steps(&plan), ["status web"]);
    assert_eq!(conditions(&plan), ["Available=True MinimumReplicasAvailable 0/0"]);
}

#[test]
fn one_that_selects_everything_only_gets_a_warning() {
    let all = deployment(|deployment| {
        deployment.spec.selector = coxswain_machinery::api::meta::LabelSelector::default();
        deployment.metadata.generation = 5;
    });
    let plan = plan_of(&all, &[replica_set(1, 3, |_| {})]);
    assert_eq!(
        all_steps(&plan),
        [
            "Warning SelectingAll: This deployment is selecting all pods. A non-empty selector is required.",
            "status web",
        ]
    );
    assert_eq!(updated(&plan).unwrap().status.observed_generation, 5);
}
