//! ReplicaSets whose template admission has changed.

use std::sync::Arc;
use std::time::Duration;

use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::REPLICA_SETS;
use coxswain_machinery::model::template::Template;
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Raw;
use coxswain_machinery::wire::splice::{Edit, edit, put_bytes};

const ANNOTATION: &str = "coxswain.dev/admitted-template";

/// A ReplicaSet that was created from `nginx:1` and stored with the template of `image`.
fn created(image: &str, collisions: Option<i32>, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let hash = Template::new(&template("nginx:1")).unwrap().hash(collisions);
    replica_set(1, 10, |set| {
        set.metadata.generation = 1;
        set.status.observed_generation = 1;
        set.metadata.labels = labels(&[("app", "web"), ("pod-template-hash", &hash)]);
        set.spec.template = Raw(Template::labeled(&template(image), &hash).unwrap().into());
        change(set);
    })
}

fn own_hash(image: &str) -> String {
    Template::new(&template(image)).unwrap().hash(None)
}

fn lines(deployment: &Arc<Deployment>, set: &Arc<ReplicaSet>) -> Vec<String> {
    steps(&plan_of(deployment, &[Arc::clone(set)]))
}

#[test]
fn replica_set_changed_by_admission_is_the_new_one() {
    let first = lines(&deployment(|_| {}), &created("nginx:9", None, |_| {}));
    assert!(first[0].starts_with("update web-1 size=10 "), "{first:?}");
    assert!(first[0].contains(&format!("{ANNOTATION}={}", own_hash("nginx:9"))), "{first:?}");
    assert!(
        first[1].starts_with("Warning TemplateChangedByAdmission: created ReplicaSet \"web-1\": "),
        "{first:?}"
    );
    // The annotation outlasts the first generation.
    let known = created("nginx:9", None, |set| {
        set.metadata.generation = 7;
        set.status.observed_generation = 7;
        set.metadata.annotations = set.metadata.annotations.with(ANNOTATION, &own_hash("nginx:9"));
    });
    assert_eq!(lines(&deployment(|_| {}), &known), [""; 0]);
    let collided = collided(3);
    assert!(lines(&collided, &created("nginx:9", Some(2), |_| {}))[0].starts_with("update web-1 "));
}

#[test]
fn template_that_a_user_changed_is_rolled_out_again() {
    let edited = |annotation: Option<&str>| {
        created("nginx:9", None, |set| {
            set.metadata.generation = 2;
            if let Some(image) = annotation {
                set.metadata.annotations = set.metadata.annotations.with(ANNOTATION, &own_hash(image));
            }
        })
    };
    for set in [edited(None), edited(Some("nginx:8"))] {
        let lines = lines(&deployment(|_| {}), &set);
        assert!(lines[0].starts_with("create "), "{lines:?}");
    }
}

#[test]
fn another_template_gets_another_replica_set() {
    let changed = deployment(|deployment| deployment.spec.template = template("nginx:2"));
    assert!(lines(&changed, &created("nginx:9", None, |_| {}))[0].starts_with("create "));
    // Two templates with one hash: what was sent is what is there, and its name is its own.
    let own = own_hash("nginx:9");
    let unchanged = replica_set(9, 10, |set| {
        set.metadata.generation = 1;
        set.metadata.labels = labels(&[("app", "web"), ("pod-template-hash", &own)]);
    });
    assert!(lines(&deployment(|_| {}), &unchanged)[0].starts_with("create "));
}

/// Earlier versions created a ReplicaSet for each spelling of a quantity. The one that was rolled out last has the pods.
#[test]
fn replica_set_that_was_rolled_out_last_comes_first_of_several_spellings() {
    let asking = |memory: &str| {
        let (mut quantity, mut entry, mut resources) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut quantity, 1, memory.as_bytes());
        put_bytes(&mut entry, 1, b"memory");
        put_bytes(&mut entry, 2, &quantity);
        put_bytes(&mut resources, 2, &entry);
        Raw(edit(&template("nginx:1"), &[Edit::SetBytes(&[2, 2, 8], resources)]).unwrap().into())
    };
    let set = |revision: i32, size: i32, memory: &str| {
        let template = asking(memory);
        replica_set(revision, size, |set| {
            set.spec.template = Raw(Template::labeled(&template, "h").unwrap().into());
        })
    };
    let present = deployment(|deployment| deployment.spec.template = asking("1073741824"));
    let both = [set(1, 0, "1Gi"), set(2, 10, "1073741824")];
    let respelled = deployment(|deployment| deployment.spec.template = asking("1Gi"));
    for deployment in [&present, &respelled] {
        assert_eq!(steps(&plan_of(deployment, &both)), [""; 0], "of an earlier version");
        let moved = [set(3, 10, "1Gi"), set(2, 0, "1073741824")];
        assert_eq!(
            steps(&plan_of(deployment, &moved)),
            [""; 0],
            "of kube-controller-manager, which takes the oldest"
        );
    }
    let respelled = steps(&plan_of(&present, &[set(1, 10, "1Gi")]));
    assert_eq!(respelled, [""; 0], "one of another spelling is the present one, too");
}

fn collided(count: i32) -> Arc<Deployment> {
    deployment(|deployment| deployment.status.collision_count = Some(count))
}

/// Returns the plan after the name of a new ReplicaSet was found taken by the last of these.
fn plan_of_taken(collided: &Arc<Deployment>, sets: &[Arc<ReplicaSet>]) -> Plan {
    let existing = sets.last().map(|set| Arc::clone(set) as AnyObject);
    let mut view = view(collided, sets);
    view.failures = vec![Failure {
        what: "create".to_owned(),
        verb: "create",
        subresource: "",
        kind: &REPLICA_SETS,
        key: Key::new("default", "web-x"),
        code: 409,
        reason: "AlreadyExists".into(),
        message: "it exists".to_owned(),
        existing,
    }];
    super::super::plan::plan(&view, now())
}

/// A webhook that changes the template with each update, too.
#[test]
fn few_replica_sets_are_created_for_a_template_that_never_stays() {
    let sets = |count: i32, age: i64| -> Vec<Arc<ReplicaSet>> {
        let collisions = std::iter::once(None).chain((1..).map(Some));
        let set = |(revision, collisions): (i32, Option<i32>)| {
            created("nginx:9", collisions, |set| {
                set.metadata.name = format!("web-{revision}").into();
                set.metadata.uid = format!("uid-{revision}").into();
                set.metadata.generation = 2;
                set.metadata.creation_timestamp = ago(age);
            })
        };
        (1..=count).zip(collisions).map(set).collect()
    };
    let taken = |count: i32, age: i64| {
        let plan = plan_of_taken(&collided(count - 1), &sets(count, age));
        (all_steps(&plan).len(), updated(&plan).unwrap().status.collision_count)
    };
    assert_eq!(taken(2, 0), (1, Some(2)), "the next name is tried");
    assert_eq!(taken(3, 599), (2, Some(2)), "an event and a condition, and no further name");
    assert_eq!(taken(3, 600), (1, Some(3)), "admission may have changed");
    assert_eq!(taken(4, 1199), (2, Some(3)), "each further one takes twice the time");
    assert_eq!(taken(4, 1200), (1, Some(4)));
}

/// Returns a ReplicaSet without owner and labels that has the name for this count of collisions.
fn disowned(collisions: Option<i32>, age: i64) -> Arc<ReplicaSet> {
    let hash = Template::new(&template("nginx:1")).unwrap().hash(collisions);
    created("nginx:1", collisions, |set| {
        set.metadata.name = format!("web-{hash}").into();
        set.metadata.labels = labels(&[]);
        set.metadata.owner_references.clear();
        set.metadata.creation_timestamp = ago(age);
    })
}

/// Returns the count of collisions and the pause after the name of the last of these ReplicaSets was found taken.
fn outcome(collided: &Arc<Deployment>, sets: &[Arc<ReplicaSet>]) -> (Option<i32>, Option<Duration>) {
    let plan = plan_of_taken(collided, sets);
    let collisions = updated(&plan).map_or(collided.status.collision_count, |to| to.status.collision_count);
    (collisions, plan.requeue_after.filter(|_| plan.end))
}

/// A webhook that removes the owner and the labels of each ReplicaSet.
#[test]
fn few_replica_sets_are_created_for_a_webhook_that_removes_their_owner() {
    let taken = |count: i32, age: i64| {
        let earlier = std::iter::once(None).chain((1..count).map(Some)).map(|count| disowned(count, 9_000));
        let sets: Vec<_> = earlier.chain([disowned(Some(count), age)]).collect();
        outcome(&collided(count), &sets)
    };
    assert_eq!(taken(2, 0), (Some(3), None), "the next name is tried");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(taken(3, 0), (Some(3), seconds(600)), "no further name, until the pause ends");
    assert_eq!(taken(3, 599), (Some(3), seconds(1)));
    assert_eq!(taken(3, 600), (Some(4), None), "admission may have changed");
}

/// The count of collisions is that of all templates that the Deployment had.
#[test]
fn replica_set_that_a_user_keeps_for_debugging_does_not_stop_a_rollout() {
    assert_eq!(outcome(&collided(3), &[disowned(Some(3), 60)]), (Some(4), None));
    // The earlier ReplicaSets have other templates.
    let others = [None, Some(1), Some(2)].map(|count| {
        let mut set = (*disowned(count, 60)).clone();
        set.spec.template = template("nginx:9");
        Arc::new(set)
    });
    let all: Vec<_> = others.into_iter().chain([disowned(Some(3), 60)]).collect();
    assert_eq!(outcome(&collided(3), &all), (Some(4), None));
    // The last ReplicaSet has another owner.
    let foreign = created("nginx:1", Some(3), |set| set.metadata.owner_references[0].uid = "another".into());
    let all = [disowned(None, 60), disowned(Some(1), 60), disowned(Some(2), 60), foreign];
    assert_eq!(outcome(&collided(3), &all), (Some(4), None), "it is another owner's");
}

/// The API server's clock is an hour ahead.
#[test]
fn pause_lasts_ten_minutes_although_a_clock_is_wrong() {
    let sets: Vec<_> = [None, Some(1), Some(2), Some(3)].map(|count| disowned(count, -3_600)).into();
    let refused = |age: i64| {
        deployment(|deployment| {
            deployment.status.collision_count = Some(3);
            let refused = condition("Progressing", "False", "ReplicaSetCreateError", age);
            deployment.status.conditions = vec![refused];
        })
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(outcome(&collided(3), &sets), (Some(3), seconds(600)));
    assert_eq!(outcome(&refused(599), &sets), (Some(3), seconds(1)));
    assert_eq!(outcome(&refused(600), &sets), (Some(4), None));
    // A Deployment without a deadline has no condition from which the pause could count.
    let endless = deployment(|deployment| {
        deployment.status.collision_count = Some(3);
        deployment.spec.progress_deadline_seconds = None;
    });
    assert_eq!(outcome(&endless, &sets), (Some(4), None));
}
