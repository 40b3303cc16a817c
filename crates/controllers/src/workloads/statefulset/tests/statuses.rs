//! What the status says.

use super::fixtures::*;
use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::wire::Message as _;
use coxswain_machinery::wire::splice::{Edit, edit, get};

const OK: State = |_| {};

fn status(change: impl FnOnce(&mut StatefulSet), pods: &[Member<'_>]) -> Option<String> {
    let pods: Vec<_> = pods.iter().map(|(ordinal, image, state)| pod(*ordinal, image, state)).collect();
    let bench = Bench::of(&rolling(change), &pods).with_revision("web:2", 2);
    bench.lines().into_iter().find(|line| line.starts_with("status"))
}

#[test]
fn it_counts_what_exists_is_ready_available_and_of_which_revision() {
    let slow = |set: &mut StatefulSet| {
        set.spec.replicas = Some(9);
        set.spec.min_ready_seconds = 60;
    };
    let fresh: State = |pod| pod.status.conditions = vec![ready(ago(10))];
    let pods = [
        (0, "web:1", OK),
        (1, "web:1", fresh),
        (2, "web:1", deleting as State),
        (3, "web:2", failed),
        (20, "web:2", pending),
    ];
    assert_eq!(status(slow, &pods).unwrap(), "status 5/3/2 2 2 web:1 web:2");
}

#[test]
fn one_that_is_being_replaced_counts_as_current_no_more() {
    let all = [(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK)];
    assert_eq!(status(|_| {}, &all).unwrap(), "status 3/3/3 2 0 web:1 web:2");
    let third = [(0, "web:2", OK), (1, "web:2", OK), (2, "web:3", OK)];
    assert_eq!(status(|_| {}, &third).unwrap(), "status 3/3/3 0 2 web:1 web:2", "never less than none");
}

#[test]
fn the_update_is_complete_when_all_pods_are_new_and_ready() {
    let new = [(0, "web:2", OK), (1, "web:2", OK), (2, "web:2", OK)];
    assert_eq!(status(|_| {}, &new).unwrap(), "status 3/3/3 3 3 web:2 web:2");
    let sick = [(0, "web:2", OK), (1, "web:2", OK), (2, "web:2", unready as State)];
    assert_eq!(status(|_| {}, &sick).unwrap(), "status 3/2/2 0 3 web:1 web:2");
    let on_delete = |set: &mut StatefulSet| set.spec.update_strategy.r#type = "OnDelete".into();
    assert_eq!(status(on_delete, &new).unwrap(), "status 3/3/3 3 3 web:2 web:2", "with OnDelete as well");
    assert_eq!(status(on_delete, &sick).unwrap(), "status 3/2/2 0 3 web:1 web:2");
    let none = |set: &mut StatefulSet| set.spec.replicas = Some(0);
    assert_eq!(status(none, &[]).unwrap(), "status 0/0/0 0 0 web:2 web:2", "with no pods at once");
}

#[test]
fn the_current_revision_is_the_present_one_where_it_is_not_there() {
    let unknown = |set: &mut StatefulSet| set.status.current_revision = "web-unknown".into();
    assert_eq!(status(unknown, &[(0, "web:2", OK)]).unwrap(), "status 1/1/1 1 1 web:2 web:2");
}

#[test]
fn it_is_written_only_when_it_changes_and_loses_nothing() {
    let quiet = |set: &mut StatefulSet| {
        says(set, "web:2", "web:2");
        set.spec.replicas = Some(1);
        set.status.replicas = 1;
        set.status.ready_replicas = 1;
        set.status.available_replicas = 1;
        set.status.current_replicas = 1;
        set.status.updated_replicas = 1;
    };
    let pods = [(0, "web:2", OK)];
    assert_eq!(status(quiet, &pods), None);
    let collided = |set: &mut StatefulSet| {
        quiet(set);
        set.status.collision_count = Some(3);
    };
    assert_eq!(status(collided, &pods), None);
    let newer = |set: &mut StatefulSet| {
        quiet(set);
        set.metadata.generation += 1;
    };
    assert_eq!(status(newer, &pods).unwrap(), "status 1/1/1 1 1 web:2 web:2");

    let plain = rolling(newer);
    let unknown = [Edit::SetVarint(&[3, 99], 7), Edit::SetVarint(&[2, 98], 8)];
    let set = decoded(edit(&plain.to_bytes(), &unknown).unwrap());
    let bench = Bench::of(&set, &[pod(0, "web:2", OK)]).with_revision("web:2", 2);
    let plan = bench.plan();
    let coxswain_machinery::model::plan::Verb::Update(body) = &plan.writes().next().unwrap().verb else {
        panic!("an update")
    };
    for (path, value) in [([3, 99], 7), ([2, 98], 8)] {
        assert_eq!(get(body, &path).unwrap().unwrap().varint().unwrap(), value);
    }
}
