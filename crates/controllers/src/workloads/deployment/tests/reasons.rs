//! What an explanation says.

use super::super::Controller;
use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::framework::Room as _;
use coxswain_machinery::random::HashSet;
use std::sync::Arc;

fn said(deployment: &Arc<Deployment>, sets: &[Arc<ReplicaSet>]) -> Vec<String> {
    Controller::reasons(&view(deployment, sets), now())
}

#[test]
fn it_says_how_far_the_template_is_rolled_out() {
    let ten = deployment(|_| {});
    assert_eq!(
        said(&ten, &[]),
        [
            "10 replicas desired, 0 existing: none of the current template yet, 0 available.",
            "No ReplicaSet has the current template; one is created.",
        ]
    );
    let done = [replica_set(1, 10, |_| {})];
    assert_eq!(
        said(&ten, &done),
        ["10 replicas desired, 10 existing: 10 of the current template in web-1, 10 available."]
    );
    let second = deployment(|deployment| deployment.spec.template = template("nginx:2"));
    let stuck = [replica_set(1, 8, |_| {}), replica_set(2, 5, |set| set.status.available_replicas = 0)];
    assert_eq!(
        said(&second, &stuck),
        [
            "10 replicas desired, 13 existing: 5 of the current template in web-2, 8 available.",
            "web-1 has pods of an earlier template; during the rollout, at most 13 pods may exist (maxSurge) and at \
             least 8 must be available (maxUnavailable).",
            "The limits maxSurge and maxUnavailable are reached; the next step waits until a new pod is available.",
        ]
    );
    let late = deployment(|deployment| {
        deployment.spec.template = template("nginx:2");
        deployment.status.conditions =
            vec![condition("Progressing", "False", "ProgressDeadlineExceeded", 10)];
    });
    assert_eq!(
        said(&late, &stuck).pop().unwrap(),
        "No progress for more than 600s (progressDeadlineSeconds); the rollout continues."
    );
}

#[test]
fn it_says_what_comes_before_the_template() {
    let last = |change: fn(&mut Deployment), sets: &[Arc<ReplicaSet>]| {
        said(&deployment(change), sets).pop().unwrap()
    };
    let whole = [replica_set(1, 10, |_| {})];
    assert_eq!(
        last(|deployment| deployment.spec.paused = true, &whole),
        "The Deployment is paused; it is scaled, but its template is not rolled out."
    );
    assert_eq!(
        last(|deployment| deployment.metadata.deletion_timestamp = ago(1), &whole),
        "The Deployment is being deleted; its ReplicaSets are not scaled."
    );
    assert_eq!(
        last(|deployment| deployment.spec.replicas = Some(20), &whole),
        "spec.replicas has changed; all ReplicaSets are scaled in proportion before the rollout continues."
    );
    let free = [replica_set(1, 10, |set| set.metadata.owner_references.clear())];
    assert_eq!(
        said(&deployment(|_| {}), &free)[1..],
        [
            "web-1 matches the selector and has no controller: it is adopted.",
            "Further steps follow after that.",
        ]
    );
    let recreate = deployment(|deployment| {
        deployment.spec.template = template("nginx:2");
        deployment.spec.strategy.r#type = "Recreate".into();
        deployment.spec.strategy.rolling_update = None;
    });
    let mut seen = view(&recreate, &[replica_set(1, 10, |_| {}), replica_set(2, 0, |_| {})]);
    seen.running = HashSet::from_iter(["uid-1".into()]);
    assert_eq!(
        Controller::reasons(&seen, now())[1],
        "Pods of 1 earlier ReplicaSet still run; the strategy is Recreate, so pods of the current template are \
         created only after the old pods are deleted."
    );
}
