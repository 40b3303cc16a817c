//! `Recreate`: nothing new as long as anything old runs.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::Deployment;
use coxswain_machinery::random::HashSet;

fn at(revision: i32) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.spec.strategy.r#type = "Recreate".into();
        deployment.spec.strategy.rolling_update = None;
        deployment.spec.template = template(&format!("nginx:{revision}"));
    })
}

#[test]
fn all_old_pods_go_first() {
    let plan = plan_of(&at(3), &[replica_set(1, 4, |_| {}), replica_set(2, 10, |_| {})]);
    let steps = steps(&plan);
    assert_eq!(steps.len(), 2);
    assert!(steps[0].starts_with("update web-1 size=0 desired-replicas=10 max-replicas=10 "), "{steps:?}");
    assert!(steps[1].starts_with("update web-2 size=0 "), "{steps:?}");
}

#[test]
fn it_waits_for_pods_that_count() {
    let draining = replica_set(1, 0, |set| set.status.replicas = 1);
    assert_eq!(steps(&plan_of(&at(2), &[draining])), [""; 0]);
}

#[test]
fn it_waits_for_pods_that_are_on_their_way_out() {
    let sets = [replica_set(1, 0, |_| {})];
    let mut view = view(&at(2), &sets);
    view.running = HashSet::from_iter(["uid-1".into()]);
    assert_eq!(steps(&super::super::plan::plan(&view, now())), [""; 0]);
}

#[test]
fn then_the_new_ones_come() {
    let plan = plan_of(&at(2), &[replica_set(1, 0, |_| {})]);
    let steps = steps(&plan);
    assert!(steps[0].contains("size=10 desired-replicas=10 max-replicas=10 revision=2 ->"), "{steps:?}");
}

#[test]
fn pods_of_the_new_one_are_no_reason_to_wait() {
    let sets = [replica_set(1, 0, |_| {}), replica_set(2, 0, |_| {})];
    let mut view = view(&at(2), &sets);
    view.running = HashSet::from_iter(["uid-2".into(), "uid-of-another".into()]);
    let steps = steps(&super::super::plan::plan(&view, now()));
    assert!(steps[0].starts_with("update web-2 size=10 "), "{steps:?}");
}

#[test]
fn one_that_rolled_before_and_was_scaled_is_rolled_out_anew() {
    let sets = [replica_set(1, 4, |_| {}), replica_set(2, 6, |_| {})];
    let mut scaled = (*at(2)).clone();
    scaled.spec.replicas = Some(3);
    let scaled = decoded(
        &coxswain_machinery::api::kinds::DEPLOYMENTS,
        coxswain_machinery::wire::Message::to_bytes(&scaled),
    );
    let steps = steps(&plan_of(&scaled, &sets));
    assert!(steps.len() == 1 && steps[0].starts_with("update web-1 size=0 "), "{steps:?}");
}
