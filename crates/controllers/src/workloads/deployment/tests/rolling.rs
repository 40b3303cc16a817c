//! Rolling updates: bounds, the new ReplicaSet, growing and shrinking.

use super::super::plan::Bounds;
use super::fixtures::*;
use coxswain_machinery::api::apps::{DeploymentSpec, RollingUpdateDeployment};
use coxswain_machinery::model::template::Template;
use coxswain_machinery::wire::IntOrString;

/// `default/web` with the template of `revision`, complete but for that.
fn at(
    revision: i32,
    replicas: i32,
    surge: i32,
    unavailable: i32,
) -> std::sync::Arc<coxswain_machinery::api::apps::Deployment> {
    deployment(|deployment| {
        bounded(replicas, surge, unavailable)(deployment);
        deployment.spec.template = template(&format!("nginx:{revision}"));
    })
}

#[track_caller]
fn check_bounds(surge: &str, unavailable: &str, replicas: i32, expected: Option<(i32, i32)>) {
    let value = |text: &str| match text.parse() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::Str(text.into()),
    };
    let mut spec = DeploymentSpec { replicas: Some(replicas), ..Default::default() };
    spec.strategy.r#type = "RollingUpdate".into();
    spec.strategy.rolling_update = Some(Box::new(RollingUpdateDeployment {
        max_unavailable: Some(value(unavailable)),
        max_surge: Some(value(surge)),
    }));
    let bounds = Bounds::of(&spec).ok().map(|bounds| (bounds.surge, bounds.unavailable));
    assert_eq!(bounds, expected, "{surge} {unavailable} of {replicas}");
}

#[test]
fn bounds_round_surge_up_and_unavailability_down() {
    check_bounds("25%", "25%", 10, Some((3, 2)));
    check_bounds("25%", "25%", 1, Some((1, 0)));
    check_bounds("25%", "25%", 4, Some((1, 1)));
    check_bounds("0", "0", 5, Some((0, 1)));
    check_bounds("0%", "1%", 5, Some((0, 1)));
    check_bounds("0", "0", 0, Some((0, 0)));
    check_bounds("3", "7", 5, Some((3, 5)));
    check_bounds("100%", "100%", 7, Some((7, 7)));
    check_bounds("200%", "0", 2, Some((4, 0)));
    check_bounds("x", "0", 5, None);
    // As kube-controller-manager reads them: in 64 bits, with a sign. What has no room in 32 bits is the largest number.
    check_bounds("-5%", "0", 5, Some((0, 1)));
    check_bounds("5000000000%", "0", 3, Some((150_000_000, 0)));
    // kube-controller-manager cuts these two to 32 bits: to 705,032,704, and to a negative number.
    check_bounds("5000000000%", "0", 100, Some((i32::MAX, 0)));
    check_bounds("3000000000%", "0", 100, Some((i32::MAX, 0)));
    check_bounds("9223372036854775808%", "0", 5, None);
    check_bounds("4294967295%", "0", i32::MAX, Some((i32::MAX, 0)));
}

#[test]
fn the_first_replica_set_starts_in_full_size() {
    let deployment = deployment(|_| {});
    let name = format!("web-{}", Template::new(&deployment.spec.template).unwrap().hash(None));
    let plan = plan_of(&deployment, &[]);
    assert_eq!(
        all_steps(&plan),
        [
            format!(
                "create {name} size=10 desired-replicas=10 max-replicas=13 revision=1 \
                 -> ScalingReplicaSet: Scaled up replica set {name} from 0 to 10"
            ),
            "status web".to_owned(),
        ]
    );
    let after = updated(&plan).unwrap();
    assert_eq!(after.metadata.annotations, labels(&[("deployment.kubernetes.io/revision", "1")]));
    assert_eq!(after.status.observed_generation, 1);
    assert_eq!(after.status.unavailable_replicas, 10);
    assert_eq!(after.status.conditions[0].message, format!("Created new replica set {name:?}").as_str());
    assert_eq!(
        conditions(&plan),
        ["Progressing=True NewReplicaSetCreated 0/0", "Available=False MinimumReplicasUnavailable 0/0"]
    );
}

#[test]
fn one_without_pods_starts_without_an_event() {
    let plan = plan_of(&at(1, 0, 1, 0), &[]);
    let steps = steps(&plan);
    assert!(steps[0].ends_with("size=0 desired-replicas=0 max-replicas=1 revision=1"), "{steps:?}");
}

#[test]
fn a_new_template_starts_within_the_surge_while_the_old_one_makes_room() {
    let plan = plan_of(&at(2, 10, 3, 2), &[replica_set(1, 10, |_| {})]);
    let steps = steps(&plan);
    assert!(steps[0].contains(" size=3 desired-replicas=10 max-replicas=13 revision=2 -> "), "{steps:?}");
    assert_eq!(
        steps[1],
        "update web-1 size=8 desired-replicas=10 max-replicas=13 revision=1 \
         -> ScalingReplicaSet: Scaled down replica set web-1 from 10 to 8"
    );
    assert_eq!(steps.len(), 2);
}

/// Sizes after the plan, of web-1 and web-2, given sizes and available pods of both.
#[track_caller]
fn check(bounds: (i32, i32, i32), old: (i32, i32), new: (i32, i32), expected: (i32, i32)) {
    let (replicas, surge, unavailable) = bounds;
    let noted = |revision| annotations(revision, replicas, replicas + surge);
    let old_set = replica_set(1, old.0, |set| {
        set.status.available_replicas = old.1;
        set.metadata.annotations = noted(1);
    });
    let new_set = replica_set(2, new.0, |set| {
        set.status.available_replicas = new.1;
        set.metadata.annotations = noted(2);
    });
    let plan = plan_of(&at(2, replicas, surge, unavailable), &[new_set, old_set]);
    let mut after = (old.0, new.0);
    for step in steps(&plan) {
        let size = step.split_once("size=").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        if step.starts_with("update web-1 ") {
            after.0 = size;
        } else {
            assert!(step.starts_with("update web-2 "), "{step}");
            after.1 = size;
        }
    }
    assert_eq!(after, expected, "{bounds:?} old {old:?} new {new:?}");
}

/// kube-controller-manager ignores a refused scale-down of an old ReplicaSet, but not a refused scale-up.
#[test]
fn refused_scale_down_of_old_sets_does_not_stop_the_status() {
    let goes_on = |old: (i32, i32), new: (i32, i32)| -> Vec<(String, bool)> {
        let sized = |revision, (size, available): (i32, i32)| {
            replica_set(revision, size, |set| set.status.available_replicas = available)
        };
        let plan = plan_of(&at(2, 10, 3, 2), &[sized(1, old), sized(2, new)]);
        assert!(plan.requeue_after.is_some(), "the deadline");
        plan.writes().map(|write| (write.key.name.to_string(), write.keep_going)).collect()
    };
    let unready = replica_set(2, 3, |set| set.status.available_replicas = 0);
    let held = plan_of(&at(2, 10, 3, 2), &[replica_set(1, 10, |_| {}), unready]);
    assert!(steps(&held)[0].starts_with("update web-1 size=8"), "{:?}", steps(&held));
    assert_eq!(updated(&held).unwrap().status.unavailable_replicas, 3, "as if the size were refused");
    let named = |name: &str, keeps: bool| (name.to_owned(), keeps);
    assert_eq!(goes_on((10, 10), (3, 3)), [named("web-1", true), named("web", false)]);
    assert_eq!(goes_on((8, 8), (3, 3)), [named("web-2", false), named("web", false)]);
}

#[test]
fn growing_comes_before_shrinking() {
    check((10, 3, 2), (8, 8), (3, 0), (8, 5));
    check((10, 3, 2), (8, 8), (5, 0), (8, 5));
    check((10, 3, 2), (8, 8), (5, 2), (6, 5));
    check((10, 3, 2), (8, 8), (5, 5), (3, 5));
    check((10, 0, 1), (10, 10), (0, 0), (9, 0));
    check((10, 0, 1), (9, 9), (0, 0), (9, 1));
    check((10, 0, 1), (9, 9), (1, 0), (9, 1));
    check((10, 1, 0), (10, 10), (0, 0), (10, 1));
    check((10, 1, 0), (10, 10), (1, 1), (9, 1));
    check((1, 1, 0), (1, 1), (1, 0), (1, 1));
    check((1, 1, 0), (1, 1), (1, 1), (0, 1));
    check((5, 0, 5), (5, 5), (0, 0), (0, 0));
}

#[test]
fn a_new_replica_set_that_is_too_large_shrinks_first() {
    check((5, 1, 1), (2, 2), (7, 7), (2, 5));
}

#[test]
fn pods_that_are_not_available_go_first() {
    check((10, 3, 2), (8, 3), (5, 0), (8, 5));
    check((10, 3, 2), (10, 0), (3, 0), (8, 3));
    check((10, 3, 2), (10, 3), (3, 0), (8, 3));
    check((4, 1, 1), (4, 2), (1, 1), (2, 1));
    check((4, 1, 1), (4, 3), (1, 1), (2, 1));
}

#[test]
fn of_several_the_oldest_shrinks_first() {
    let sets = [
        replica_set(1, 2, |_| {}),
        replica_set(2, 6, |set| set.status.available_replicas = 5),
        replica_set(3, 5, |_| {}),
    ];
    let plan = plan_of(&at(3, 10, 3, 2), &sets);
    let steps = steps(&plan);
    // 12 available, 8 needed: the one that is not available, then four more.
    assert!(steps[0].starts_with("update web-2 size=3 "), "{steps:?}");
    assert!(steps[1].starts_with("update web-1 size=0 "), "{steps:?}");
}

#[test]
fn what_its_controller_has_not_seen_yet_is_waited_for() {
    let old = replica_set(1, 8, |set| {
        set.metadata.generation = 4;
        set.status.available_replicas = 10;
        set.status.replicas = 10;
    });
    let new = replica_set(2, 5, |_| {});
    assert_eq!(steps(&plan_of(&at(2, 10, 3, 2), &[old, new])), [""; 0]);
}

/// The status tells of pods as they were before the last two were taken: only eight can still be there.
#[test]
fn pods_that_are_on_their_way_out_are_not_counted_as_available() {
    check((10, 3, 2), (8, 10), (5, 0), (8, 5));
    check((10, 3, 2), (8, 10), (5, 1), (7, 5));
}

#[test]
fn rolling_back_gives_the_old_replica_set_the_next_revision_and_scales_it_in_one_write() {
    let old = replica_set(1, 0, |_| {});
    let present = replica_set(2, 10, |_| {});
    let plan = plan_of(&at(1, 10, 3, 2), &[old, present]);
    assert_eq!(
        steps(&plan),
        ["update web-1 size=3 desired-replicas=10 max-replicas=13 revision=3 revision-history=1 \
          -> ScalingReplicaSet: Scaled up replica set web-1 from 0 to 3"]
    );
    let after = updated(&plan).unwrap();
    assert_eq!(after.metadata.annotations.get("deployment.kubernetes.io/revision").unwrap(), "3");
}

#[test]
fn of_two_with_the_template_the_oldest_is_the_new_one() {
    let older = replica_set(1, 4, |_| {});
    let younger = replica_set(2, 6, |set| set.spec.template = template("nginx:1"));
    let plan = plan_of(&at(1, 10, 3, 2), &[younger, older]);
    assert!(steps(&plan)[0].starts_with("update web-1 size=7 "), "{:?}", steps(&plan));
}

#[test]
fn an_unknown_strategy_is_no_plan() {
    let odd = deployment(|deployment| deployment.spec.strategy.r#type = "Magic".into());
    let plan = plan_of(&odd, &[replica_set(1, 10, |_| {})]);
    assert!(plan.is_empty() && plan.retry.unwrap().contains("Magic"));
}

#[test]
fn a_long_name_is_cut_so_that_the_hash_fits() {
    for (name, stem) in [
        ("a".repeat(253), "a".repeat(242)),
        (format!("{}.b", "a".repeat(242)), "a".repeat(242)),
        (format!("{}.{}", "a".repeat(241), "b".repeat(11)), "a".repeat(241)),
    ] {
        let long = deployment(|deployment| deployment.metadata.name = name.as_str().into());
        let created = steps(&plan_of(&long, &[]))[0].split(' ').nth(1).unwrap().to_owned();
        let hash = Template::new(&long.spec.template).unwrap().hash(None);
        assert!(created.len() <= 253);
        let room = 253 - 1 - hash.len();
        assert_eq!(created, format!("{}-{hash}", &stem[..stem.len().min(room)]), "{name}");
    }
}
