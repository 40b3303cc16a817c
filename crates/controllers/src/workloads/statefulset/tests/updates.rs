//! Which pods are replaced, in which order, and from which template new ones are made.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{RollingUpdateStatefulSet, StatefulSet};
use coxswain_machinery::api::pod::{ContainerStatus, Pod};
use coxswain_machinery::wire::IntOrString;

const OK: State = |_| {};

/// The acts on a set that is rolled from `web:1` to `web:2`, with pods of these images and states.
fn acts(change: impl FnOnce(&mut StatefulSet), pods: &[Member<'_>]) -> Vec<String> {
    bench(change, pods).acts()
}

fn bench(change: impl FnOnce(&mut StatefulSet), pods: &[Member<'_>]) -> Bench {
    let pods: Vec<Arc<Pod>> =
        pods.iter().map(|(ordinal, image, state)| pod(*ordinal, image, state)).collect();
    Bench::of(&rolling(change), &pods).with_revision("web:2", 2)
}

fn partition(number: i32) -> impl Fn(&mut StatefulSet) {
    move |set| {
        set.spec.update_strategy.rolling_update = Some(Box::new(RollingUpdateStatefulSet {
            partition: Some(number),
            ..RollingUpdateStatefulSet::default()
        }));
    }
}

#[test]
fn old_pods_go_from_the_top_and_each_new_one_is_waited_for() {
    let whole = |_: &mut StatefulSet| {};
    assert_eq!(
        acts(whole, &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK)]),
        ["delete web-2 web-2-uid"]
    );
    assert_eq!(acts(whole, &[(0, "web:1", OK), (1, "web:1", OK)]), ["create web-2 web:2"]);
    assert_eq!(acts(whole, &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:2", unready)]), [""; 0]);
    assert_eq!(
        acts(whole, &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:2", OK)]),
        ["delete web-1 web-1-uid"]
    );
    assert_eq!(acts(whole, &[(0, "web:1", OK), (1, "web:1", unready), (2, "web:2", OK)]), [""; 0]);
    assert_eq!(acts(whole, &[(0, "web:2", OK), (1, "web:2", OK), (2, "web:2", OK)]), [""; 0]);
}

#[test]
fn scaling_goes_before_updating() {
    let one = |set: &mut StatefulSet| set.spec.replicas = Some(1);
    assert_eq!(acts(one, &[(0, "web:1", OK), (1, "web:1", OK)]), ["delete web-1 web-1-uid"]);
    let broken = &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", unready as State)];
    assert_eq!(acts(|_| {}, broken), [""; 0], "a broken roll-out waits for somebody to delete the pod");
}

#[test]
fn below_the_partition_pods_stay_and_come_back_as_they_were() {
    let all = [(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK)];
    assert_eq!(acts(partition(2), &all), ["delete web-2 web-2-uid"]);
    assert_eq!(acts(partition(3), &all), [""; 0]);
    assert_eq!(acts(partition(2), &[(1, "web:1", OK), (2, "web:2", OK)]), ["create web-0 web:1"]);
    assert_eq!(acts(partition(2), &[(0, "web:1", OK), (1, "web:1", OK)]), ["create web-2 web:2"]);
    assert_eq!(
        acts(partition(1), &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:2", OK)]),
        ["delete web-1 web-1-uid"]
    );
}

#[test]
fn without_bounds_as_many_are_made_old_as_the_status_counts() {
    let unbounded = |set: &mut StatefulSet| {
        set.spec.update_strategy.rolling_update = None;
        set.status.current_replicas = 1;
    };
    assert_eq!(acts(unbounded, &[]), ["create web-0 web:1"]);
    assert_eq!(acts(unbounded, &[(0, "web:1", OK)]), ["create web-1 web:2"]);
}

#[test]
fn on_delete_nothing_is_replaced() {
    let on_delete = |set: &mut StatefulSet| {
        set.spec.update_strategy.r#type = "OnDelete".into();
        set.spec.update_strategy.rolling_update = None;
    };
    assert_eq!(acts(on_delete, &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK)]), [""; 0]);
    assert_eq!(acts(on_delete, &[(0, "web:1", OK), (2, "web:1", OK)]), ["create web-1 web:2"]);
}

#[test]
fn even_at_once_updates_go_one_by_one() {
    let parallel = |set: &mut StatefulSet| set.spec.pod_management_policy = "Parallel".into();
    let all = [(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK)];
    assert_eq!(acts(parallel, &all), ["delete web-2 web-2-uid"]);
    assert_eq!(acts(parallel, &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:2", unready)]), [""; 0]);
    let sick = &[(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", unready as State)];
    assert_eq!(acts(parallel, sick), ["delete web-2 web-2-uid"], "an old one goes though it is not ready");
}

#[test]
fn as_many_may_be_unavailable_as_the_gate_lets_them() {
    let most = |most: IntOrString| {
        move |set: &mut StatefulSet| {
            set.spec.pod_management_policy = "Parallel".into();
            set.spec.replicas = Some(4);
            set.spec.update_strategy.rolling_update =
                Some(Box::new(RollingUpdateStatefulSet { partition: Some(1), max_unavailable: Some(most) }));
        }
    };
    let all = [(0, "web:1", OK), (1, "web:1", OK), (2, "web:1", OK), (3, "web:1", OK)];
    let sick = [(0, "web:1", unready as State), (1, "web:1", OK), (2, "web:1", OK), (3, "web:1", OK)];
    let gated = |most_unavailable: IntOrString, pods: &[Member<'_>]| {
        let mut bench = bench(most(most_unavailable), pods);
        bench.gates.max_unavailable = true;
        let (plan, gauges) = super::plan::plan(&bench.view(&[]), now());
        let deletes = lines(&plan).into_iter().filter(|line| line.starts_with("delete")).collect::<Vec<_>>();
        (deletes, gauges.map(|gauges| (gauges.max_unavailable, gauges.unavailable)))
    };
    let deleted = |names: &[i32]| {
        names.iter().map(|ordinal| format!("delete web-{ordinal} web-{ordinal}-uid")).collect::<Vec<_>>()
    };
    assert_eq!(gated(IntOrString::Int(2), &all), (deleted(&[3, 2]), Some((2, Some(0)))));
    assert_eq!(gated(IntOrString::Int(9), &all), (deleted(&[3, 2, 1]), Some((9, Some(0)))));
    assert_eq!(gated(IntOrString::Int(2), &sick), (deleted(&[3]), Some((2, Some(1)))));
    assert_eq!(gated(IntOrString::Int(1), &sick), (deleted(&[]), Some((1, Some(1)))));
    assert_eq!(gated(IntOrString::Str("74%".into()), &all).0, deleted(&[3, 2]), "rounded down");
    assert_eq!(gated(IntOrString::Str("1%".into()), &all).0, deleted(&[3]), "and one at least");
    assert_eq!(bench(most(IntOrString::Int(2)), &all).acts(), deleted(&[3]), "not without the gate");
}

/// After the template is reverted, or changed once more, nothing brings a pod up that waits for a node or an image.
#[test]
fn pod_of_an_abandoned_template_that_never_ran_is_replaced() {
    let acts = |change: fn(&mut StatefulSet), image: &str, state: State| {
        let set = set(|set| {
            set.spec.template = template("web:1");
            says(set, "web:1", "web:1");
            change(set);
        });
        let pods = [pod(0, "web:1", |_| {}), pod(1, image, state)];
        Bench::of(&set, &pods).with_revision("web:2", 0).acts()
    };
    let plain: fn(&mut StatefulSet) = |_| {};
    assert_eq!(acts(plain, "web:2", pending), ["delete web-1 web-1-uid"]);
    assert_eq!(acts(plain, "web:1", pending), [""; 0], "it is of the present template");
    assert_eq!(acts(plain, "web:2", unready), [""; 0], "it has run");
    let initializing: State = |pod| {
        pending(pod);
        pod.status.init_container_statuses = std::iter::once(ContainerStatus::default()).collect();
    };
    assert_eq!(acts(plain, "web:2", initializing), [""; 0], "an init container runs");
    let held_back: fn(&mut StatefulSet) = |set| {
        let partition = Some(2);
        let rolling = RollingUpdateStatefulSet { partition, ..RollingUpdateStatefulSet::default() };
        set.spec.update_strategy.rolling_update = Some(Box::new(rolling));
    };
    assert_eq!(acts(held_back, "web:2", pending), [""; 0], "it is below the partition");
    let rolling: fn(&mut StatefulSet) = |set| says(set, "web:2", "web:1");
    assert_eq!(acts(rolling, "web:2", pending), [""; 0], "it is of the current template");
    let by_hand: fn(&mut StatefulSet) = |set| set.spec.update_strategy.r#type = "OnDelete".into();
    assert_eq!(acts(by_hand, "web:2", pending), [""; 0], "users delete the pods");
}
