//! Which pods give way to the present template.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::plan::{self, Bounds};
use super::super::view::View;
use super::fixtures::{
    ago, daemon_set, deleting, failed, node, now, old, pod, ready, rolls, status, steps, surges, taint,
    unready, view,
};
use coxswain_machinery::api::apps::{DaemonSet, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Step, Verb, Write};
use coxswain_machinery::wire::IntOrString;

fn old_and_unready(pod: &mut Pod) {
    old(pod);
    unready(pod);
}

fn old_and_failed(pod: &mut Pod) {
    old(pod);
    failed(pod);
}

fn old_and_deleting(pod: &mut Pod) {
    old(pod);
    deleting(pod);
}

fn just_ready(pod: &mut Pod) {
    pod.status.conditions = vec![ready(ago(5))];
}

fn percent(text: &str) -> IntOrString {
    IntOrString::Str(text.into())
}

#[test]
fn bounds_are_rounded_up_and_never_both_nothing() {
    let int = IntOrString::Int;
    for (unavailable, surge, desired, expected) in [
        (int(1), int(0), 10, (1, 0)),
        (percent("10%"), int(0), 11, (2, 0)),
        (percent("1%"), int(0), 10, (1, 0)),
        (percent("100%"), int(0), 7, (7, 0)),
        (int(0), percent("25%"), 10, (0, 3)),
        (int(0), int(0), 10, (1, 0)),
        (int(0), int(0), 0, (0, 0)),
        (int(0), percent("50%"), 0, (0, 0)),
        (int(0), int(2), 0, (0, 2)),
        (percent("many"), int(0), 10, (1, 0)),
    ] {
        let bounds = RollingUpdateDaemonSet { max_unavailable: Some(unavailable), max_surge: Some(surge) };
        let strategy = DaemonSetUpdateStrategy {
            r#type: "RollingUpdate".into(),
            rolling_update: Some(Box::new(bounds)),
        };
        let bounds = Bounds::of(&strategy, desired);
        assert_eq!((bounds.unavailable, bounds.surge), expected, "{strategy:?} of {desired}");
    }
}

/// Four nodes, each with a pod that is as told.
fn four(change: impl FnOnce(&mut DaemonSet), pods: [&[fn(&mut Pod)]; 4]) -> Vec<String> {
    let set = daemon_set(change);
    let names = ["a", "b", "c", "d"];
    let on = |(name, changes): (&str, &[fn(&mut Pod)])| {
        let each = changes.iter().enumerate();
        each.map(|(at, change)| pod(&format!("{name}{at}"), name, change)).collect::<Vec<_>>()
    };
    let pods: Vec<Arc<Pod>> = names.into_iter().zip(pods).flat_map(on).collect();
    steps(&view(&set, &names, &pods))
}

#[test]
fn as_many_are_deleted_as_may_be_unavailable() {
    let none: fn(&mut Pod) = |_| {};
    assert_eq!(four(|_| {}, [&[old], &[old], &[old], &[old]]), ["delete a0"]);
    assert_eq!(four(|_| {}, [&[none], &[old], &[old], &[none]]), ["delete b0"]);
    // One is unavailable already.
    assert_eq!(four(|_| {}, [&[unready], &[old], &[old], &[old]]), [""; 0]);
    assert_eq!(four(|_| {}, [&[deleting], &[old], &[old], &[old]]), [""; 0]);
    let half = |set: &mut DaemonSet| rolls(set, percent("30%"), IntOrString::Int(0));
    assert_eq!(four(half, [&[old], &[old], &[old], &[old]]), ["delete a0", "delete b0"]);
    assert_eq!(four(half, [&[old_and_deleting], &[old], &[old], &[old]]), ["delete b0"]);
    assert_eq!(four(half, [&[none], &[none], &[none], &[none]]), [""; 0]);
    let on_delete = |set: &mut DaemonSet| set.spec.update_strategy.r#type = "OnDelete".into();
    assert_eq!(four(on_delete, [&[old], &[old_and_unready], &[old], &[old]]), [""; 0]);
    let waiting = |set: &mut DaemonSet| set.spec.min_ready_seconds = 10;
    assert_eq!(four(waiting, [&[just_ready], &[old], &[old], &[old]]), [""; 0]);
}

#[test]
fn old_pods_that_are_not_available_wait_for_nothing() {
    assert_eq!(
        four(|_| {}, [&[old_and_unready], &[old_and_unready], &[unready], &[old]]),
        ["delete a0", "delete b0"]
    );
    // Nor for the backoff of failed pods.
    let set = daemon_set(|_| {});
    let mut view = view(&set, &["a"], &[pod("p", "a", old_and_failed)]);
    view.backoffs.insert("a".into(), std::time::Duration::from_mins(1));
    assert_eq!(steps(&view), ["delete p"]);
}

#[test]
fn old_pods_that_are_ready_and_not_yet_available_go_as_the_bound_allows() {
    fn old_and_just_ready(pod: &mut Pod) {
        old(pod);
        just_ready(pod);
    }
    let settling: &[fn(&mut Pod)] = &[old_and_just_ready];
    let waiting = |set: &mut DaemonSet| set.spec.min_ready_seconds = 10;
    let two = |set: &mut DaemonSet| {
        waiting(set);
        rolls(set, IntOrString::Int(2), IntOrString::Int(0));
    };
    let new: &[fn(&mut Pod)] = &[|_| {}];
    // The template has changed twice within minReadySeconds.
    assert_eq!(four(waiting, [settling; 4]).len(), 1);
    assert_eq!(four(two, [settling; 4]).len(), 2);
    // The new pod is not available yet, or is not there.
    for other in [[just_ready as fn(&mut Pod)], [unready], [deleting]] {
        assert_eq!(four(waiting, [&other, settling, settling, settling]), [""; 0]);
        assert_eq!(four(two, [&other, settling, settling, settling]).len(), 1);
    }
    assert_eq!(four(waiting, [new, new, new, settling]), ["delete d0"]);
    // Pods that are not ready wait for nothing, and one that is available goes after all others.
    assert_eq!(
        four(waiting, [&[old_and_unready], &[old_and_unready], settling, &[old]]),
        ["delete a0", "delete b0"]
    );
    assert_eq!(four(waiting, [settling, new, new, &[old]]), ["delete a0"]);
    assert_eq!(four(two, [settling, new, new, &[old]]), ["delete a0", "delete d0"]);
}

/// The caches may be late: a pod that has become available meanwhile counts, and its delete is a conflict.
#[test]
fn pods_that_are_not_available_are_deleted_only_as_they_were_seen() {
    let set = daemon_set(|_| {});
    let seen = |pod: &mut Pod| pod.metadata.resource_version = "41".into();
    let unavailable = |pod: &mut Pod| {
        old_and_unready(pod);
        seen(pod);
    };
    let available = |pod: &mut Pod| {
        old(pod);
        seen(pod);
    };
    // With a surge it goes for being of no use, or for another that is.
    let surging = daemon_set(surges);
    let another = |is_ready: bool| pod("q", "a", if is_ready { |_: &mut Pod| {} } else { unready });
    let table = [
        (&set, vec![pod("p", "a", unavailable)], Some("41"), true),
        (&set, vec![pod("p", "a", available)], None, false),
        (&surging, vec![pod("p", "a", unavailable), another(false)], Some("41"), true),
        (&surging, vec![pod("p", "a", unavailable), another(true)], None, false),
        (&surging, vec![pod("p", "a", available), another(true)], None, false),
    ];
    for (set, pods, version, conflict) in table {
        let plan = plan::plan(&view(set, &["a"], &pods), now());
        let of_pods = plan.steps.iter().flat_map(Step::writes).filter(|write| write.kind == &PODS);
        let writes: Vec<&Write> = of_pods.collect();
        let [Write { verb: Verb::Delete { resource_version, .. }, tolerate, .. }] = writes[..] else {
            panic!("{writes:?}");
        };
        assert_eq!((resource_version.as_deref(), tolerate.conflict), (version, conflict));
    }
}

#[test]
fn nothing_is_rolled_while_placing_has_something_to_do() {
    assert_eq!(four(|_| {}, [&[], &[old_and_unready], &[old], &[old]]), ["create on a"]);
}

#[test]
fn pods_of_the_same_generation_are_new() {
    let set = daemon_set(|set| {
        set.metadata.annotations =
            super::fixtures::labels(&[("deprecated.daemonset.template.generation", "7")]);
    });
    let by_generation = |pod: &mut Pod| {
        old(pod);
        pod.metadata.labels = pod.metadata.labels.with("pod-template-generation", "7");
    };
    let same = view(&set, &["a"], &[pod("p", "a", by_generation)]);
    assert_eq!(steps(&same), [""; 0]);
    assert_eq!(status(&same).as_deref(), Some("1/1/0 1/1/0 1 @3"));
}

#[test]
fn a_node_that_only_keeps_its_pod_is_rolled_too() {
    let plan = |unavailable: IntOrString, nodes: &[&str]| {
        let set = daemon_set(|set| rolls(set, unavailable, IntOrString::Int(0)));
        let mut pods: Vec<_> = nodes.iter().map(|name| pod("q", name, |_| {})).collect();
        pods.push(pod("p", "a", old));
        let mut view = view(&set, nodes, &pods);
        view.nodes.push(node("a", |node| taint(node, "NoSchedule")));
        steps(&view)
    };
    assert_eq!(plan(IntOrString::Int(1), &["b"]), ["delete p"]);
    assert_eq!(plan(IntOrString::Int(1), &[]), ["delete p"]);
    assert_eq!(plan(percent("50%"), &["b"]), ["delete p"]);
    assert_eq!(plan(percent("50%"), &[]), [""; 0], "half of no nodes is none");
}

#[test]
fn with_surge_the_new_pod_comes_first() {
    let none: fn(&mut Pod) = |_| {};
    assert_eq!(four(surges, [&[old], &[old], &[old], &[old]]), ["create on a"]);
    assert_eq!(four(surges, [&[none], &[old], &[old], &[none]]), ["create on b"]);
    assert_eq!(four(surges, [&[old, unready], &[old], &[old], &[old]]), [""; 0], "one surges already");
    assert_eq!(four(surges, [&[old, none], &[old], &[old], &[old]]), ["delete a0"]);
    assert_eq!(
        four(surges, [&[old_and_unready], &[old_and_unready], &[old], &[old]]),
        ["create on a", "create on b", "create on c"],
        "those that are not available are beyond any limit"
    );
    let half = |set: &mut DaemonSet| rolls(set, IntOrString::Int(0), percent("50%"));
    assert_eq!(four(half, [&[old], &[old], &[old], &[old]]), ["create on a", "create on b"]);
    assert_eq!(four(half, [&[old, unready], &[old], &[old], &[old]]), ["create on b"]);
}

#[test]
fn with_surge_an_old_pod_leaves_a_node_that_only_keeps_it_as_others_become_available() {
    let set = daemon_set(surges);
    let plan = |other: fn(&mut Pod), here: fn(&mut Pod)| {
        let mut view = view(&set, &["b"], &[pod("p", "a", here), pod("q", "b", other)]);
        view.nodes.push(node("a", |node| taint(node, "NoSchedule")));
        steps(&view)
    };
    assert_eq!(plan(|_| {}, old), ["delete p"]);
    assert_eq!(plan(unready, old), [""; 0]);
    assert_eq!(plan(unready, old_and_unready), ["delete p"]);
}

#[test]
fn what_is_left_on_a_node_that_is_gone_is_left_to_others() {
    let set = daemon_set(surges);
    assert_eq!(steps(&view(&set, &[], &[pod("p", "gone", old)])), [""; 0]);
    assert_eq!(steps(&view(&set, &["a"], &[pod("p", "gone", old), pod("q", "a", old)])), ["create on a"]);
}

proptest! {
    /// One step of a roll-out leaves as many nodes with an available pod as it must, whatever the pods are.
    #[test]
    fn a_step_keeps_its_bounds(
        kinds in prop::collection::vec(0..7_usize, 1..12),
        most in 1..4_i32,
        surge: bool,
    ) {
        let set = daemon_set(|set| {
            let (unavailable, surge) = if surge { (0, most) } else { (most, 0) };
            rolls(set, IntOrString::Int(unavailable), IntOrString::Int(surge));
        });
        let changes: [fn(&mut Pod); 7] =
            [|_| {}, old, unready, old_and_unready, old_and_deleting, deleting, old_and_failed];
        let names: Vec<String> = (0..kinds.len()).map(|at| format!("n{at}")).collect();
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        let pods: Vec<_> = kinds
            .iter()
            .zip(&nodes)
            .map(|(kind, name)| pod(&format!("p-{name}"), name, changes[*kind]))
            .collect();
        let lines = steps(&view(&set, &nodes, &pods));
        let available = |kind: usize| kind < 2;
        let lost = kinds.iter().zip(&names).filter(|(kind, name)| {
            available(**kind) && lines.contains(&format!("delete p-{name}"))
        });
        let lost = lost.count();
        let unavailable = kinds.iter().filter(|kind| !available(**kind)).count();
        if surge {
            prop_assert_eq!(lost, 0);
        } else {
            prop_assert!(lost == 0 || unavailable + lost <= most as usize, "{:?}", lines);
        }
        prop_assert!(!lines.iter().zip(&kinds).any(|(line, _)| line.starts_with("create") && !surge));
    }
}

/// 30 nodes in three zones, which their names begin with. Their UIDs are random.
fn zones(seed: u64) -> Vec<Arc<Node>> {
    let uid = |at: u64| {
        let mixed = (seed ^ at)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        format!("{:08x}-0000-4000-8000-{:012x}", mixed >> 32, mixed & 0xffff_ffff)
    };
    let named = |at: u64| {
        let name = format!("{}-{}", ["a", "b", "c"][usize::try_from(at / 10).unwrap()], at % 10);
        node(&name, |node| node.metadata.uid = uid(at).into())
    };
    (0..30).map(named).collect()
}

/// The nodes of the first step of a rollout to a revision.
fn first_step(nodes: &[Arc<Node>], change: fn(&mut DaemonSet), revision: &str) -> Vec<String> {
    let set = daemon_set(change);
    let names: Vec<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
    let pods: Vec<Arc<Pod>> = names.iter().map(|name| pod(name, name, old)).collect();
    let mut view = View { nodes: nodes.to_vec(), ..view(&set, &names, &pods) };
    view.revisions.truncate(1);
    view.revisions.push(super::fixtures::revision(2, revision, "agent:2", |_| {}));
    let steps = steps(&view);
    steps.iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

proptest! {
    #[test]
    fn daemonset_rollout_takes_nodes_of_several_zones_first(seed in any::<u64>()) {
        let nodes = zones(seed);
        let third: fn(&mut DaemonSet) = |set| rolls(set, percent("33%"), IntOrString::Int(0));
        let surge: fn(&mut DaemonSet) = |set| rolls(set, IntOrString::Int(0), percent("33%"));
        for change in [third, surge] {
            let first = first_step(&nodes, change, "new");
            prop_assert_eq!(first.len(), 10);
            let of = |zone: &str| first.iter().filter(|node| node.starts_with(zone)).count();
            // By chance all ten are of one zone once in ten million times.
            prop_assert!(["a", "b", "c"].into_iter().all(|zone| of(zone) < 10), "{first:?}");
            prop_assert_eq!(&first, &first_step(&nodes, change, "new"), "a function of the view");
            prop_assert_ne!(&first, &first_step(&nodes, change, "newer"), "another revision begins elsewhere");
        }
    }
}
