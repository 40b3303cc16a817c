//! What the status says, and when the key is looked at again.

use std::time::Duration;

use super::super::plan;
use super::fixtures::{
    Bench, NOW, ago, deleting, labels, lines, orphaned, pod, ready, refused, replica_set, told, unready,
    with_planned_status, writes,
};
use coxswain_machinery::api::pod::Pod;
use jiff::Timestamp;

fn since(seconds: i64) -> impl FnOnce(&mut Pod) {
    move |pod| pod.status.conditions = vec![ready(ago(seconds))]
}

#[test]
fn it_counts_what_is_labeled_ready_available_and_terminating() {
    let bench = Bench::of(
        &replica_set(|set| {
            set.spec.replicas = Some(5);
            set.spec.min_ready_seconds = 30;
            set.metadata.generation = 7;
        }),
        &[
            pod("available", since(31)),
            pod("ready", since(20)),
            pod("starting", unready),
            pod("half-labeled", |pod| pod.metadata.labels = labels(&[("app", "web")])),
            pod("adopted", orphaned),
            pod("going", deleting),
            // Neither is ours and still selected.
            pod("going-released", |pod| {
                deleting(pod);
                pod.metadata.labels = labels(&[("app", "api")]);
            }),
            pod("going-orphan", |pod| {
                deleting(pod);
                orphaned(pod);
            }),
        ],
    );
    assert_eq!(told(&with_planned_status(&bench.plan())), "7: 5/4/4/3+1");
}

#[test]
fn it_is_written_only_when_it_changes() {
    let pods = [pod("a", |_| {}), pod("b", |_| {}), pod("c", deleting)];
    let scaled = || replica_set(|set| set.spec.replicas = Some(2));
    let bench = Bench::of(&scaled(), &pods);
    let settled = with_planned_status(&bench.plan());
    bench.add(&settled);
    let plan = bench.plan();
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none() && plan.retry.is_none(), "{plan:?}");

    let changes: [fn(&mut coxswain_machinery::api::apps::ReplicaSet); 7] = [
        |set| set.metadata.generation = 2,
        |set| set.status.replicas = 7,
        |set| set.status.fully_labeled_replicas = 7,
        |set| set.status.ready_replicas = 7,
        |set| set.status.available_replicas = 7,
        |set| set.status.terminating_replicas = None,
        |set| {
            set.status.conditions = vec![coxswain_machinery::api::apps::ReplicaSetCondition {
                r#type: "ReplicaFailure".into(),
                ..Default::default()
            }];
        },
    ];
    for change in changes {
        bench.add(&replica_set(|set| {
            set.spec.replicas = Some(2);
            set.status = settled.status.clone();
            change(set);
        }));
        assert_eq!(writes(&bench.plan()).len(), 1);
    }
}

#[test]
fn what_scaling_is_about_to_change_is_told_when_it_has() {
    let wants = |replicas: i32, change: fn(&mut coxswain_machinery::api::apps::ReplicaSet)| {
        replica_set(|set| {
            set.spec.replicas = Some(replicas);
            change(set);
        })
    };
    // A new one, and then one that is to have fewer.
    let bench = Bench::of(&wants(2, |_| {}), &[]);
    assert_eq!(bench.lines(), ["create pods default/ ×2"]);
    bench.add(&pod("a", |_| {}));
    bench.add(&pod("b", |_| {}));
    let counted = with_planned_status(&bench.plan());
    bench.add(&replica_set(|set| {
        set.spec.replicas = Some(1);
        set.metadata.generation = 2;
        set.status = counted.status.clone();
    }));
    assert_eq!(bench.lines(), ["delete pods default/a a-uid"]);
    bench.add(&pod("a", deleting));
    assert_eq!(bench.lines(), ["update replicasets.apps/status default/web 2: 1/1/1/1+1"]);

    // What has changed beside is told at once, and so is what comes in more than one burst.
    let status = |lines: Vec<String>| lines.iter().filter(|line| line.contains("/status")).count();
    assert_eq!(status(Bench::of(&wants(2, |set| set.status.replicas = 1), &[]).lines()), 1);
    assert_eq!(status(Bench::of(&wants(500, |_| {}), &[]).lines()), 0);
    assert_eq!(status(Bench::of(&wants(501, |_| {}), &[]).lines()), 1);
}

#[test]
fn terminating_pods_are_told_only_while_the_gate_is_on() {
    let counted = replica_set(|set| {
        set.spec.replicas = Some(1);
        set.status.observed_generation = 1;
        set.status.replicas = 1;
        set.status.fully_labeled_replicas = 1;
        set.status.ready_replicas = 1;
        set.status.available_replicas = 1;
        set.status.terminating_replicas = Some(4);
    });
    let mut bench = Bench::of(&counted, &[pod("a", |_| {}), pod("b", deleting)]);
    assert_eq!(told(&with_planned_status(&bench.plan())), "1: 1/1/1/1+1");
    bench.gates.terminating_replicas = false;
    // The first reconcile without the gate takes the number away.
    assert_eq!(told(&with_planned_status(&bench.plan())), "1: 1/1/1/1");
    bench.add(&pod("a", unready));
    assert_eq!(told(&with_planned_status(&bench.plan())), "1: 1/1/0/0");
}

#[test]
fn a_refused_create_is_a_condition_until_it_works() {
    let bench = Bench::of(&replica_set(|_| {}), &[pod("a", |_| {})]);
    let first = bench.plan();
    let quota = "pods \"web-x\" is forbidden: exceeded quota";
    let failures = [refused(writes(&first)[0], quota)];

    let second = bench.plan_after(&failures);
    assert_eq!(
        lines(&second),
        ["update replicasets.apps/status default/web 1: 1/1/1/1+0 ReplicaFailure=True"]
    );
    let failed = with_planned_status(&second);
    let condition = &failed.status.conditions[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str(), condition.last_transition_time),
        ("FailedCreate", quota, ago(0))
    );

    // While it lasts, it stays as it is: nothing more to write.
    bench.add(&failed);
    assert_eq!(lines(&bench.plan_after(&[refused(writes(&first)[0], "another message")])), [""; 0]);
    // What else changed is told even so.
    bench.add(&pod("a", unready));
    let changed = bench.plan_after(&failures);
    assert_eq!(told(&with_planned_status(&changed)), "1: 1/1/0/0+0 ReplicaFailure=True");
    // When the creates work, the update behind them takes it away.
    assert_eq!(
        bench.lines(),
        ["create pods default/ ×2", "update replicasets.apps/status default/web 1: 1/1/0/0+0"]
    );
}

#[test]
fn a_refused_delete_is_a_condition_too() {
    let bench = Bench::of(&replica_set(|set| set.spec.replicas = Some(0)), &[pod("a", |_| {})]);
    let failures = [refused(writes(&bench.plan())[0], "keep it")];
    let failed = with_planned_status(&bench.plan_after(&failures));
    let condition = &failed.status.conditions[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("FailedDelete", "unable to delete pods: keep it")
    );
}

#[test]
fn it_looks_again_when_the_next_pod_becomes_available() {
    let set = replica_set(|set| set.spec.min_ready_seconds = 30);
    let waits = |pods: &[std::sync::Arc<Pod>]| Bench::of(&set, pods).plan().requeue_after;
    assert_eq!(
        waits(&[pod("a", since(10)), pod("b", since(25)), pod("c", since(40))]),
        Some(Duration::from_secs(5))
    );
    assert_eq!(waits(&[pod("a", since(40)), pod("b", unready)]), None);
    // Ready, but since when?
    assert_eq!(
        waits(&[pod("a", |pod| pod.status.conditions = vec![ready(None)])]),
        Some(Duration::from_secs(30))
    );
    let at_once = replica_set(|_| {});
    assert_eq!(Bench::of(&at_once, &[pod("a", since(10))]).plan().requeue_after, None);
}

#[test]
fn the_wait_it_asks_for_is_long_enough() {
    let set = replica_set(|set| {
        set.spec.replicas = Some(1);
        set.spec.min_ready_seconds = 30;
    });
    let bench = Bench::of(&set, &[pod("a", since(10))]);
    let view = bench.view(&[]);
    for nanos in [0, 1, 999_999_999] {
        let now = Timestamp::new(NOW, nanos).unwrap();
        let wait = plan::plan(&view, now).requeue_after.unwrap();
        let later = now.checked_add(jiff::SignedDuration::try_from(wait).unwrap()).unwrap();
        let after = plan::plan(&view, later);
        assert_eq!(
            (after.requeue_after, told(&with_planned_status(&after))),
            (None, "1: 1/1/1/1+0".to_owned())
        );
    }
}

#[test]
fn the_update_carries_what_it_rests_on_and_spares_a_set_that_is_gone() {
    let bench = Bench::of(&replica_set(|set| set.status.replicas = 1), &[]);
    let plan = bench.plan();
    let update = writes(&plan).pop().unwrap();
    assert_eq!((update.verb.name(), update.subresource), ("update", "status"));
    assert!(update.tolerate.absent && !update.tolerate.invalid);
    let set = with_planned_status(&plan);
    assert_eq!((&*set.metadata.uid.to_str(), set.metadata.resource_version.as_str()), ("web-uid", "100"));
}
