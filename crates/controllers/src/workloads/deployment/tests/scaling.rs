//! The Deployment's own size changes, and paused Deployments.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::plan::{Bounds, distribute};
use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};

fn at(revision: i32, replicas: i32) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.spec.replicas = Some(replicas);
        deployment.spec.template = template(&format!("nginx:{revision}"));
    })
}

fn sizes(plan: &coxswain_machinery::model::Plan) -> Vec<String> {
    let short = |step: String| step.split(" -> ").next().unwrap().to_owned();
    steps(plan).into_iter().map(short).collect()
}

#[test]
fn a_single_replica_set_takes_the_whole_change() {
    let plan = plan_of(&at(1, 20), &[replica_set(1, 10, |_| {})]);
    assert_eq!(
        steps(&plan),
        ["update web-1 size=20 desired-replicas=20 max-replicas=25 revision=1 \
          -> ScalingReplicaSet: Scaled up replica set web-1 from 10 to 20"]
    );
    assert_eq!(updated(&plan).unwrap().status.unavailable_replicas, 10);
}

#[test]
fn scaling_comes_before_a_new_template() {
    let plan = plan_of(&at(2, 20), &[replica_set(1, 10, |_| {})]);
    assert_eq!(sizes(&plan), ["update web-1 size=20 desired-replicas=20 max-replicas=25 revision=1"]);
}

#[test]
fn scaling_to_zero_and_back() {
    let plan = plan_of(&at(1, 0), &[replica_set(1, 10, |_| {})]);
    assert_eq!(sizes(&plan), ["update web-1 size=0 desired-replicas=0 max-replicas=0 revision=1"]);
    let empty = replica_set(1, 0, |set| set.metadata.annotations = annotations(1, 0, 0));
    let plan = plan_of(&at(1, 10), &[empty]);
    assert_eq!(sizes(&plan), ["update web-1 size=10 desired-replicas=10 max-replicas=13 revision=1"]);
}

#[test]
fn in_mid_roll_out_the_change_is_shared_out() {
    let sets = [replica_set(1, 8, |_| {}), replica_set(2, 5, |_| {})];
    // 13 of at most 13 become 25 of at most 25: 8 * 25 / 13 = 15.4, 5 * 25 / 13 = 9.6.
    let plan = plan_of(&at(2, 20), &sets);
    assert_eq!(
        sizes(&plan),
        [
            "update web-1 size=15 desired-replicas=20 max-replicas=25 revision=1",
            "update web-2 size=10 desired-replicas=20 max-replicas=25 revision=2",
        ]
    );
    // 5 of at most 7: 8 * 7 / 13 = 4.3, 5 * 7 / 13 = 2.7.
    let plan = plan_of(&at(2, 5), &sets);
    assert_eq!(
        sizes(&plan),
        [
            "update web-1 size=4 desired-replicas=5 max-replicas=7 revision=1",
            "update web-2 size=3 desired-replicas=5 max-replicas=7 revision=2",
        ]
    );
}

#[test]
fn deployment_ignores_sizes_in_annotations_that_have_a_sign() {
    let desired = "deployment.kubernetes.io/desired-replicas";
    let noted = |text: &str| {
        let set = replica_set(1, 10, |set| {
            set.metadata.annotations = set.metadata.annotations.with(desired, text);
        });
        steps(&plan_of(&at(2, 10), &[set]))
    };
    for text in ["-1", "+3", "", "3x", "99999999999"] {
        assert!(noted(text)[0].starts_with("create "), "{text:?}: {:?}", noted(text));
    }
    assert!(noted("3")[0].starts_with("update web-1 "), "{:?}", noted("3"));
    // The share is computed from the status.
    let most = "deployment.kubernetes.io/max-replicas";
    let unreadable = replica_set(1, 8, |set| {
        set.metadata.annotations = set.metadata.annotations.with(most, "-5");
    });
    let scaled = deployment(|deployment| {
        deployment.spec.replicas = Some(20);
        deployment.spec.template = template("nginx:2");
        deployment.status.replicas = 13;
    });
    assert_eq!(
        sizes(&plan_of(&scaled, &[unreadable, replica_set(2, 5, |_| {})])),
        [
            "update web-1 size=15 desired-replicas=20 max-replicas=25 revision=1",
            "update web-2 size=10 desired-replicas=20 max-replicas=25 revision=2",
        ]
    );
}

#[test]
fn of_one_size_newer_ones_grow_first_and_older_ones_shrink_first() {
    let sets = [replica_set(1, 5, |_| {}), replica_set(2, 5, |_| {})];
    assert!(sizes(&plan_of(&at(2, 11), &sets))[0].starts_with("update web-2 "));
    assert!(sizes(&plan_of(&at(2, 2), &sets))[0].starts_with("update web-1 "));
}

#[test]
fn one_that_missed_the_change_only_gets_the_note() {
    let behind = replica_set(1, 8, |set| set.metadata.annotations = annotations(1, 9, 12));
    let plan = plan_of(&at(2, 10), &[behind, replica_set(2, 5, |_| {})]);
    assert_eq!(steps(&plan), ["update web-1 size=8 desired-replicas=10 max-replicas=13 revision=1"]);
}

#[test]
fn once_the_new_one_is_saturated_old_ones_go() {
    let adopted = replica_set(1, 3, |set| set.metadata.annotations = annotations(1, 7, 9));
    let plan = plan_of(&at(2, 10), &[adopted, replica_set(2, 10, |_| {})]);
    assert_eq!(sizes(&plan), ["update web-1 size=0 desired-replicas=10 max-replicas=13 revision=1"]);
}

#[test]
fn scaled_to_zero_in_mid_roll_out() {
    let sets = [replica_set(1, 8, |_| {}), replica_set(2, 5, |_| {})];
    let plan = plan_of(&at(2, 0), &sets);
    let all = sizes(&plan);
    assert!(
        all.len() == 2 && all.iter().all(|step| step.contains(" size=0 desired-replicas=0 max-replicas=0")),
        "{all:?}"
    );
}

/// The original would take this for a change of size for ever, and not roll out the new template.
#[test]
fn a_wrong_note_at_the_right_size_is_corrected() {
    let odd = replica_set(1, 10, |set| set.metadata.annotations = annotations(1, 7, 9));
    let plan = plan_of(&at(2, 10), &[odd]);
    assert_eq!(steps(&plan), ["update web-1 size=10 desired-replicas=10 max-replicas=13 revision=1"]);
}

fn paused(change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
    deployment(|deployment| {
        deployment.spec.paused = true;
        change(deployment);
    })
}

#[test]
fn a_paused_one_scales_but_rolls_nothing_out() {
    let other = paused(|deployment| {
        deployment.spec.template = template("nginx:2");
        deployment.spec.replicas = Some(4);
    });
    let plan = plan_of(&other, &[replica_set(1, 10, |_| {})]);
    assert_eq!(sizes(&plan), ["update web-1 size=4 desired-replicas=4 max-replicas=5 revision=1"]);
    assert_eq!(steps(&plan_of(&paused(|_| {}), &[])), [""; 0]);
}

#[test]
fn a_paused_one_still_keeps_its_history_short() {
    let short = paused(|deployment| {
        deployment.spec.revision_history_limit = Some(1);
        deployment.spec.template = template("nginx:3");
    });
    let sets = [replica_set(1, 0, |_| {}), replica_set(2, 0, |_| {}), replica_set(3, 10, |_| {})];
    assert_eq!(steps(&plan_of(&short, &sets)), ["delete web-1 uid-1 100"]);
}

#[test]
fn each_keeps_its_proportion() {
    for (shares, target, sizes) in [
        (vec![], 5, vec![]),
        // Exactly, to more and to less.
        (vec![(6, 10), (4, 10)], 20, vec![12, 8]),
        (vec![(6, 10), (4, 10)], 5, vec![3, 2]),
        (vec![(6, 10), (4, 10)], 10, vec![6, 4]),
        // 7.5, 5 and 2.5: the rounding of the first and the last is the first one's loss.
        (vec![(6, 12), (4, 12), (2, 12)], 15, vec![8, 5, 2]),
        // 1.67 each: two, two, and what is left.
        (vec![(1, 3), (1, 3), (1, 3)], 5, vec![2, 2, 1]),
        // 1.33 each: what is missing is the first one's.
        (vec![(1, 3), (1, 3), (1, 3)], 4, vec![2, 1, 1]),
        // Not all pods that could be were there: 10 and 5 of 20 that become 40, and then some.
        (vec![(10, 20), (5, 20)], 40, vec![30, 10]),
        // Together they have more pods than could be: what is too much is the first one's.
        (vec![(10, 12), (10, 12)], 12, vec![2, 10]),
        // 7.5 each: one too many, which the first one loses.
        (vec![(10, 20), (10, 20)], 15, vec![7, 8]),
        // 3.75 each would be too few: shrinking ends when it is enough.
        (vec![(10, 40), (10, 40)], 15, vec![5, 10]),
        // One grew when more was allowed than the other knew of: it shrinks though together they grow.
        (vec![(8, 16), (2, 4)], 12, vec![6, 6]),
        // Adopted from other Deployments, which had less room: none grows while all shrink.
        (vec![(5, 2), (5, 7), (2, 2)], 3, vec![0, 2, 2]),
        // Of nothing, or less, no part can be told.
        (vec![(8, 0), (2, -1)], 12, vec![10, 2]),
        (vec![(8, 0), (2, -1)], 5, vec![3, 2]),
        // The first one can't lose more than it has.
        (vec![(2, 0), (8, 0)], 5, vec![0, 8]),
        (vec![(8, 13), (5, 0)], 0, vec![0, 0]),
        (vec![(8, 13), (5, 13)], -1, vec![0, 0]),
    ] {
        let given: Vec<_> =
            shares.iter().map(|(size, of)| super::super::plan::Share { size: *size, of: *of }).collect();
        assert_eq!(distribute(&given, target), sizes, "{shares:?} to {target}");
    }
}

fn shares() -> impl Strategy<Value = (Vec<(i32, i32)>, i32, i32)> {
    // Sizes that together are at most what was allowed before, and a Deployment of another size.
    prop::collection::vec(1..50_i32, 1..6).prop_flat_map(|sizes| {
        let total: i32 = sizes.iter().sum();
        (Just(sizes), total..total + 20, 0..300_i32, 0..60_i32).prop_map(|(sizes, of, replicas, surge)| {
            (sizes.into_iter().map(|size| (size, of)).collect(), replicas, surge)
        })
    })
}

proptest! {
    #[test]
    fn shares_add_up_to_what_is_allowed((given, replicas, surge) in shares()) {
        let mut given: Vec<_> = given.into_iter().map(|(size, of)| super::super::plan::Share { size, of }).collect();
        given.sort_by_key(|share| -share.size);
        let target = if replicas == 0 { 0 } else { replicas + surge };
        let sizes = distribute(&given, target);
        prop_assert_eq!(sizes.iter().sum::<i32>(), target);
        prop_assert!(sizes.iter().all(|size| *size >= 0), "{:?}", sizes);
    }

    #[test]
    fn no_numbers_panic(
        shares in prop::collection::vec((any::<i32>(), any::<i32>()), 0..6),
        target in any::<i32>(),
    ) {
        let shares: Vec<_> = shares.into_iter().map(|(size, of)| super::super::plan::Share { size, of }).collect();
        distribute(&shares, target);
    }

    #[test]
    fn no_objects_panic(numbers in prop::collection::vec(prop_oneof![any::<i32>(), -3..20_i32], 12)) {
        let odd = deployment(|deployment| {
            bounded(numbers[0], numbers[1], numbers[2])(deployment);
            deployment.spec.revision_history_limit = Some(numbers[3]);
            deployment.spec.progress_deadline_seconds = Some(numbers[4]);
            deployment.status.replicas = numbers[5];
            deployment.status.updated_replicas = numbers[6];
            deployment.spec.template = template("nginx:2");
        });
        let set = |revision: i32, at: usize| replica_set(revision, numbers[at], |set: &mut ReplicaSet| {
            set.status.available_replicas = numbers[at + 1];
            set.metadata.annotations = annotations(revision, numbers[0], numbers[at + 2]);
        });
        let _ = Bounds::of(&odd.spec);
        plan_of(&odd, &[set(1, 6), set(2, 9)]);
        plan_of(&odd, &[set(1, 6), set(3, 9)]);
    }
}
