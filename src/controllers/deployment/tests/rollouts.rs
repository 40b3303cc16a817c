//! What is made, scaled and forgotten while a template is rolled out.

use super::fixtures::{
    Bench, ago, annotate, decoded, deployment, labels, named, new_set, planned, planned_set, pod, recreate,
    set, strategy, template,
};
use crate::api::apps::ReplicaSet;
use crate::api::kinds::REPLICA_SETS;
use crate::model::revisions::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY};
use crate::wire::Labels;

fn scaled(name: &str, from: i32, to: i32) -> String {
    let direction = if to > from { "up" } else { "down" };
    format!("Normal ScalingReplicaSet: Scaled {direction} replica set {name} from {from} to {to}")
}

#[test]
fn the_first_replica_set_gets_all_pods_at_once() {
    let first = deployment(|deployment| deployment.metadata.annotations = Labels::default());
    let name = named("v2");
    let expected = [
        format!("create {name} 3"),
        scaled(&name, 0, 3),
        "status 1@2: 0/0/0/0-3+0 Progressing=True(NewReplicaSetCreated) \
         Available=False(MinimumReplicasUnavailable)"
            .to_owned(),
    ];
    let plan = Bench::of(&first, &[]).plan();
    assert_eq!(super::fixtures::lines(&plan), expected);
    let progressing = &planned(&plan).status.conditions[0];
    assert_eq!(progressing.message, format!("Created new replica set \"{name}\""));
    assert_eq!((progressing.last_update_time, progressing.last_transition_time), (ago(0), ago(0)));
}

#[test]
fn a_new_template_gets_what_fits_under_the_surge() {
    let name = named("v2");
    let lines = Bench::of(&deployment(|_| {}), &[set("v1", 3, |_| {})]).lines();
    let expected = [
        format!("create {name} 1"),
        scaled(&name, 0, 1),
        // The surge is there and nothing of it is available: one may be missing, but the new one is that one.
        "update web-v1 2".to_owned(),
        scaled("web-v1", 3, 2),
    ];
    assert_eq!(lines[..4], expected);
}

#[test]
fn nothing_is_made_for_an_empty_deployment_but_the_replica_set() {
    let empty = deployment(|deployment| deployment.spec.replicas = Some(0));
    let expected = [
        format!("create {} 0", named("v2")),
        "status 1@2: 0/0/0/0-0+0 Available=True(MinimumReplicasAvailable) \
         Progressing=True(NewReplicaSetAvailable)"
            .to_owned(),
    ];
    assert_eq!(Bench::of(&empty, &[]).lines(), expected);
}

#[test]
fn what_is_made_is_the_template_with_the_hash() {
    let annotated = deployment(|deployment| {
        deployment.metadata.annotations = labels(&[
            ("note", "kept"),
            (REVISION, "7"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ]);
        deployment.spec.min_ready_seconds = 5;
    });
    let made =
        planned_set(&Bench::of(&annotated, &[set("v1", 0, |set| annotate(set, REVISION, "7"))]).plan());
    let name = named("v2");
    let hash = name.strip_prefix("web-").unwrap();
    assert_eq!((made.metadata.name.as_str(), made.metadata.namespace.as_str()), (name.as_str(), "default"));
    assert_eq!(made.metadata.labels, labels(&[("app", "web"), ("pod-template-hash", hash)]));
    assert_eq!(made.spec.selector.match_labels, labels(&[("app", "web"), ("pod-template-hash", hash)]));
    assert_eq!(
        made.metadata.annotations,
        labels(&[("note", "kept"), (REVISION, "8"), (DESIRED_REPLICAS, "3"), (MAX_REPLICAS, "4")])
    );
    let [owner] = made.metadata.owner_references.as_slice() else { panic!("one owner") };
    assert_eq!(
        (owner.uid.as_str(), owner.controller, owner.block_owner_deletion),
        ("web-uid", Some(true), Some(true))
    );
    assert_eq!(made.spec.min_ready_seconds, 5);
    let expected = crate::model::hash::labelled(&template("v2"), hash).unwrap();
    assert_eq!(made.spec.template.0, expected);
}

/// `size available` of a ReplicaSet.
fn sized(version: &str, (size, available): (i32, i32), age: i64) -> std::sync::Arc<ReplicaSet> {
    set(version, size, |set| {
        set.status.available_replicas = available;
        set.metadata.creation_timestamp = ago(age);
    })
}

#[test]
fn a_rolling_update_keeps_its_bounds() {
    type Row<'a> = ((i32, i32, i32), (i32, i32), &'a [(i32, i32)], &'a [&'a str]);
    let table: &[Row<'_>] = &[
        // (desired, surge, unavailable), new (size, available), old, the oldest first
        ((10, 3, 2), (5, 5), &[(8, 8)], &["update web-a 3"]),
        // Up comes before down.
        ((10, 3, 2), (2, 2), &[(8, 8)], &["update web-v2 5"]),
        // All that may be missing is missing already.
        ((10, 3, 2), (5, 0), &[(8, 8)], &[]),
        // Old pods that serve nobody go first, whatever their age.
        ((10, 3, 2), (5, 0), &[(5, 5), (5, 3)], &["update web-b 3"]),
        ((10, 3, 2), (3, 0), &[(8, 8), (2, 2)], &["update web-a 6"]),
        ((10, 3, 2), (3, 0), &[(8, 6), (2, 2)], &["update web-a 6"]),
        // Unhealthy first, then by what is available: two sizes, one write, both told.
        ((10, 2, 2), (5, 5), &[(7, 6)], &["update web-a 3"]),
        // The oldest gives first, and the next what is left.
        ((10, 0, 5), (5, 5), &[(2, 2), (3, 3)], &["update web-a 0", "update web-b 0"]),
        // More available than asked for: the last scaling is still under way.
        ((10, 3, 2), (5, 5), &[(6, 8)], &["update web-v2 7"]),
        ((10, 3, 2), (7, 7), &[(6, 8)], &[]),
        // The new one is too large: somebody scaled it.
        ((3, 1, 1), (5, 5), &[], &["update web-v2 3"]),
        ((3, 1, 0), (3, 3), &[(1, 1)], &["update web-a 0"]),
        ((3, 1, 0), (3, 2), &[(1, 1)], &[]),
        // Neither more nor fewer: one may be missing after all.
        ((3, 0, 0), (0, 0), &[(3, 3)], &["update web-a 2"]),
        ((3, 0, 0), (0, 0), &[(2, 2)], &["update web-v2 1"]),
    ];
    for ((desired, surge, unavailable), new, old, expected) in table {
        let web = deployment(|deployment| {
            deployment.spec.replicas = Some(*desired);
            deployment.spec.strategy = strategy(*surge, *unavailable);
        });
        let mut sets = vec![sized("v2", *new, 100)];
        sets.extend(
            old.iter().zip(["a", "b"]).zip([900, 800]).map(|((old, name), age)| sized(name, *old, age)),
        );
        let told = |set: &std::sync::Arc<ReplicaSet>| {
            let mut told = ReplicaSet::clone(set);
            annotate(&mut told, DESIRED_REPLICAS, &desired.to_string());
            annotate(&mut told, MAX_REPLICAS, &(desired + surge).to_string());
            let revision = if told.metadata.name == "web-v2" { "2" } else { "1" };
            annotate(&mut told, REVISION, revision);
            decoded(&REPLICA_SETS, crate::wire::Message::to_bytes(&told))
        };
        let sets: Vec<_> = sets.iter().map(told).collect();
        let mut lines = Bench::of(&web, &sets).set_lines();
        lines.retain(|line| line.starts_with("update"));
        assert_eq!(lines, *expected, "{desired}+{surge}-{unavailable}: {new:?} {old:?}");
    }
}

#[test]
fn two_reasons_to_scale_down_are_told_apart() {
    let web = deployment(|deployment| {
        deployment.spec.replicas = Some(10);
        deployment.spec.strategy = strategy(2, 2);
    });
    let told = |set: &mut ReplicaSet| annotate(set, DESIRED_REPLICAS, "10");
    let sets = [
        set("v1", 7, |set| {
            set.status.available_replicas = 6;
            told(set);
        }),
        new_set(5, told),
    ];
    let expected = ["update web-v1 3".to_owned(), scaled("web-v1", 7, 6), scaled("web-v1", 6, 3)];
    assert_eq!(Bench::of(&web, &sets).set_lines(), expected);
}

#[test]
fn recreate_stops_all_before_it_starts_any() {
    let web = deployment(recreate);
    let name = named("v2");
    let old = set("v1", 3, |_| {});
    let expected = ["update web-v1 0".to_owned(), scaled("web-v1", 3, 0)];
    assert_eq!(Bench::of(&web, &[old]).set_lines(), expected);

    // Scaled down, but its pods still count, or are on their way out.
    let counted = set("v1", 0, |set| set.status.replicas = 1);
    assert_eq!(Bench::of(&web, &[counted]).set_lines(), [""; 0]);
    let gone = set("v1", 0, |_| {});
    let bench = Bench::of(&web, &[std::sync::Arc::clone(&gone)]);
    bench.add(&pod("last", &gone, |pod| pod.metadata.deletion_timestamp = ago(1)));
    assert_eq!(bench.set_lines(), [""; 0]);

    // A pod that has run to its end holds nothing up.
    bench.add(&pod("last", &gone, |pod| pod.status.phase = "Failed".into()));
    assert_eq!(bench.set_lines(), [format!("create {name} 3"), scaled(&name, 0, 3)]);

    // The new one's own pods don't either.
    let new = new_set(1, |_| {});
    let bench = Bench::of(&web, &[gone, std::sync::Arc::clone(&new)]);
    bench.add(&pod("own", &new, |_| {}));
    assert_eq!(bench.set_lines(), ["update web-v2 3".to_owned(), scaled("web-v2", 1, 3)]);
}

#[test]
fn an_old_template_that_returns_gets_a_new_revision() {
    let back = set("v2", 0, |set| annotate(set, REVISION_HISTORY, "0"));
    let current = set("v3", 3, |set| {
        set.metadata.creation_timestamp = ago(10);
        annotate(set, REVISION, "4");
    });
    let bench = Bench::of(&deployment(|deployment| deployment.spec.min_ready_seconds = 7), &[back, current]);
    let plan = bench.plan();
    let updated = planned_set(&plan);
    assert_eq!((updated.metadata.name.as_str(), updated.spec.replicas), ("web-v2", Some(1)));
    assert_eq!(updated.spec.min_ready_seconds, 7);
    assert_eq!(updated.metadata.annotations.get(REVISION).unwrap(), "5");
    assert_eq!(updated.metadata.annotations.get(REVISION_HISTORY).unwrap(), "0,1");
    assert_eq!(super::fixtures::planned(&plan).metadata.annotations.get(REVISION).unwrap(), "5");
    let planned = planned(&plan);
    let found = planned.status.conditions.iter().find(|condition| condition.r#type == "Progressing").unwrap();
    assert_eq!(
        (found.reason.as_str(), found.message.as_str()),
        ("ReplicaSetUpdated", "ReplicaSet \"web-v2\" is progressing.")
    );
}

#[test]
fn of_equal_templates_the_oldest_is_the_new_one() {
    let younger = set("x", 0, |set| {
        set.spec.template = template("v2");
        set.metadata.creation_timestamp = ago(5);
    });
    let lines = Bench::of(&deployment(|_| {}), &[younger, new_set(1, |_| {})]).set_lines();
    assert_eq!(lines[0], "update web-v2 3");
}

/// A Deployment all of whose pods are new and available, by its own status.
fn complete(limit: i32) -> std::sync::Arc<crate::api::apps::Deployment> {
    deployment(|deployment| {
        deployment.metadata.annotations = labels(&[(REVISION, "2")]);
        deployment.spec.revision_history_limit = Some(limit);
        let status = &mut deployment.status;
        (status.replicas, status.updated_replicas, status.available_replicas) = (3, 3, 3);
        status.observed_generation = 2;
    })
}

fn old(name: &str, revision: &str, change: impl FnOnce(&mut ReplicaSet)) -> std::sync::Arc<ReplicaSet> {
    set(name, 0, |set| {
        annotate(set, REVISION, revision);
        change(set);
    })
}

#[test]
fn history_is_kept_to_its_limit() {
    let new = || new_set(3, |set| annotate(set, REVISION, "20"));
    let sets = || [old("a", "10", |_| {}), old("b", "9", |_| {}), old("c", "11", |_| {}), new()];
    for (limit, expected) in [
        (0, vec!["delete web-b b-uid 50", "delete web-a a-uid 50", "delete web-c c-uid 50"]),
        (1, vec!["delete web-b b-uid 50", "delete web-a a-uid 50"]),
        (3, vec![]),
        (i32::MAX, vec![]),
    ] {
        assert_eq!(Bench::of(&complete(limit), &sets()).set_lines(), expected, "{limit}");
    }
    let incomplete = deployment(|deployment| deployment.spec.revision_history_limit = Some(0));
    assert_eq!(Bench::of(&incomplete, &sets()).set_lines(), [""; 0]);
}

#[test]
fn history_that_may_have_pods_stays() {
    let changes: [fn(&mut ReplicaSet); 4] = [
        |set| set.status.replicas = 1,
        |set| set.metadata.generation = 2,
        |set| set.metadata.deletion_timestamp = ago(1),
        |_| {},
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let new = new_set(3, |set| annotate(set, REVISION, "20"));
        let lines = Bench::of(&complete(0), &[old("a", "1", change), new]).set_lines();
        assert_eq!(lines.is_empty(), index < 3, "{index}: {lines:?}");
    }
}
