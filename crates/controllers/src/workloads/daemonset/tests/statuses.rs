//! What the status says, when it is written, and when the DaemonSet is looked at again.

use std::time::Duration;

use super::fixtures::{
    ago, daemon_set, deleting, failed, node, old, planned, pod, ready, status, surges, taint, unbound,
    unready, view,
};
use coxswain_machinery::api::apps::{DaemonSet, DaemonSetStatus};
use coxswain_machinery::api::pod::Pod;

#[test]
fn each_node_counts_once_and_its_first_pod_speaks() {
    let set = daemon_set(|set| {
        surges(set);
        set.spec.min_ready_seconds = 10;
    });
    let just_ready = |pod: &mut Pod| pod.status.conditions = vec![ready(ago(5))];
    let pods = [
        pod("a1", "a", |_| {}),
        pod("b1", "b", just_ready),
        pod("c1", "c", unready),
        // The old one is the first, and it is not ready.
        pod("d1", "d", |pod| {
            old(pod);
            unready(pod);
            pod.metadata.creation_timestamp = ago(9000);
        }),
        pod("d2", "d", |_| {}),
        pod("e1", "e", deleting),
        // Not on a node of the cluster.
        pod("g1", "gone", |_| {}),
        pod("k1", "k", |_| {}),
    ];
    let mut view = view(&set, &["a", "b", "c", "d", "e", "f"], &pods);
    view.nodes.push(node("k", |node| taint(node, "NoSchedule")));
    assert_eq!(status(&view).as_deref(), Some("6/5/1 3/2/4 4 @3"));
}

#[test]
fn a_finished_pod_is_scheduled_unless_it_goes() {
    let set = daemon_set(|_| {});
    let of = |change: fn(&mut Pod)| status(&view(&set, &["a"], &[pod("p", "a", change)]));
    assert_eq!(of(failed).as_deref(), Some("1/1/0 0/0/1 1 @3"));
    assert_eq!(of(unbound).as_deref(), Some("1/1/0 1/1/0 1 @3"));
    let ended = |pod: &mut Pod| {
        failed(pod);
        deleting(pod);
    };
    assert_eq!(of(ended).as_deref(), Some("1/0/0 0/0/1 0 @3"));
}

fn said(set: &mut DaemonSet) {
    set.status = DaemonSetStatus {
        observed_generation: 3,
        desired_number_scheduled: 1,
        current_number_scheduled: 1,
        number_ready: 1,
        number_available: 1,
        updated_number_scheduled: 1,
        ..DaemonSetStatus::default()
    };
}

#[test]
fn what_it_says_already_is_not_written() {
    let plan = |change: fn(&mut DaemonSet), pods: &[std::sync::Arc<Pod>]| {
        let set = daemon_set(|set| {
            said(set);
            change(set);
        });
        status(&view(&set, &["a"], pods))
    };
    let pods = [pod("p", "a", |_| {})];
    assert_eq!(plan(|_| {}, &pods), None);
    assert_eq!(plan(|set| set.metadata.generation = 4, &pods).as_deref(), Some("1/1/0 1/1/0 1 @4"));
    assert_eq!(plan(|set| set.status.number_unavailable = 1, &pods).as_deref(), Some("1/1/0 1/1/0 1 @3"));
    // The count of collisions and conditions are no business of it.
    assert_eq!(plan(|set| set.status.collision_count = Some(2), &pods), None);
    assert_eq!(plan(|_| {}, &[pod("p", "a", unready)]).as_deref(), Some("1/1/0 0/0/1 1 @3"));
}

#[test]
fn a_generation_is_not_told_of_while_pods_come_and_go_that_will_change_the_counts() {
    let set = daemon_set(|set| {
        said(set);
        set.metadata.generation = 4;
        set.status.updated_number_scheduled = 0;
    });
    let rolling = view(&set, &["a"], &[pod("p", "a", old)]);
    assert_eq!(super::fixtures::all_steps(&rolling), ["delete p"]);
}

#[test]
fn it_is_looked_at_again_when_the_next_pod_becomes_available() {
    let wait = |since: Option<i64>, min_ready_seconds| {
        let set = daemon_set(|set| set.spec.min_ready_seconds = min_ready_seconds);
        let pods = [
            pod("p", "a", |pod| pod.status.conditions = vec![ready(since.and_then(ago))]),
            pod("q", "b", |pod| pod.status.conditions = vec![ready(ago(2))]),
        ];
        planned(&view(&set, &["a", "b"], &pods)).requeue_after
    };
    assert_eq!(wait(Some(4), 10), Some(Duration::from_secs(6)));
    assert_eq!(wait(Some(1000), 10), Some(Duration::from_secs(8)));
    assert_eq!(wait(Some(1000), 1), None);
    assert_eq!(wait(Some(1000), 0), None);
    let set = daemon_set(|set| set.spec.min_ready_seconds = 10);
    let timeless = pod("p", "a", |pod| pod.status.conditions = vec![ready(None)]);
    assert_eq!(planned(&view(&set, &["a"], &[timeless])).requeue_after, Some(Duration::from_secs(10)));
}

/// A surging node's second pod counts for nothing in the status, and the roll-out waits for it all the same.
#[test]
fn it_is_looked_at_again_for_the_second_pod_of_a_node_too() {
    let set = daemon_set(|set| {
        surges(set);
        set.spec.min_ready_seconds = 10;
    });
    let pods = [
        pod("o", "a", |pod| {
            old(pod);
            pod.metadata.creation_timestamp = ago(9000);
        }),
        pod("n", "a", |pod| pod.status.conditions = vec![ready(ago(4))]),
    ];
    assert_eq!(planned(&view(&set, &["a"], &pods)).requeue_after, Some(Duration::from_secs(6)));
}
