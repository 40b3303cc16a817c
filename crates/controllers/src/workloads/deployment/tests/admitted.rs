//! ReplicaSets whose template admission has changed.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::model::template::Template;
use coxswain_machinery::wire::Raw;

const ANNOTATION: &str = "coxswain.dev/admitted-template";

/// A ReplicaSet that was created from `nginx:1` and stored with the template of `image`.
fn created(image: &str, collisions: Option<i32>, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let hash = Template::new(&template("nginx:1")).unwrap().hash(collisions);
    replica_set(1, 10, |set| {
        set.metadata.generation = 1;
        set.status.observed_generation = 1;
        set.metadata.labels = labels(&[("app", "web"), ("pod-template-hash", &hash)]);
        set.spec.template = Raw(Template::labelled(&template(image), &hash).unwrap().into());
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
    assert!(first[1].starts_with("Warning TemplateChangedByAdmission: ReplicaSet \"web-1\" "), "{first:?}");
    // The annotation outlasts the first generation.
    let known = created("nginx:9", None, |set| {
        set.metadata.generation = 7;
        set.status.observed_generation = 7;
        set.metadata.annotations = set.metadata.annotations.with(ANNOTATION, &own_hash("nginx:9"));
    });
    assert_eq!(lines(&deployment(|_| {}), &known), [""; 0]);
    let collided = deployment(|deployment| deployment.status.collision_count = Some(3));
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
