//! What an explanation says.

use super::fixtures::*;
use coxswain_machinery::framework::Room as _;

fn said(bench: &Bench) -> Vec<String> {
    Controller::<ReplicaSet>::reasons(&bench.view(&[]), now())
}

use super::super::Controller;
use coxswain_machinery::api::apps::ReplicaSet;

#[test]
fn it_says_what_is_missing_and_what_goes() {
    let three = [pod("a", |_| {}), pod("b", unready), pod("c", |_| {})];
    for (wanted, expected) in [
        (3, vec!["3 replicas desired, 3 existing: 2 ready, 2 available."]),
        (
            5,
            vec![
                "5 replicas desired, 3 existing: 2 ready, 2 available.",
                "2 pods are missing and are created from the template.",
            ],
        ),
        (
            2,
            vec![
                "2 replicas desired, 3 existing: 2 ready, 2 available.",
                "1 pod too many: b is deleted. Order of deletion: not scheduled, not ready, lower deletion cost, \
                 more such pods on the node, ready for a shorter time, more restarts, newer.",
            ],
        ),
    ] {
        let set = replica_set(|set| set.spec.replicas = Some(wanted));
        assert_eq!(said(&Bench::of(&set, &three)), expected);
    }
    let going = replica_set(|set| set.metadata.deletion_timestamp = ago(1));
    assert_eq!(
        said(&Bench::of(&going, &[]))[1],
        "The ReplicaSet is being deleted; no pod is created or deleted."
    );
}

#[test]
fn it_says_whose_pods_are_whose_and_what_time_will_change() {
    let set = replica_set(|set| {
        set.spec.replicas = Some(2);
        set.spec.min_ready_seconds = 30;
    });
    let pods = [
        pod("free", orphaned),
        pod("strange", |pod| pod.metadata.labels = labels(&[("app", "other")])),
        pod("young", |pod| pod.status.conditions = vec![ready(ago(10))]),
    ];
    assert_eq!(
        said(&Bench::of(&set, &pods)),
        [
            "2 replicas desired, 2 existing: 2 ready, 1 available.",
            "free matches the selector and has no controller: it is adopted.",
            "strange no longer matches the selector: it is released.",
            "A ready pod becomes available in 20s (minReadySeconds is 30).",
        ]
    );
}
