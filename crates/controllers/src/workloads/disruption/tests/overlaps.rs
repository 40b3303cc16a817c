//! Pods that several budgets select.

use std::sync::Arc;

use super::fixtures::{Bench, budget, labels, pod, says};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::framework::{Memory as _, Observation, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;

/// A settled budget of this name, with a selector of its own.
fn named(name: &'static str, selector: &'static [(&'static str, &'static str)]) -> Arc<PodDisruptionBudget> {
    budget(|budget| {
        budget.metadata.name = name.into();
        budget.spec.selector.as_mut().unwrap().match_labels = labels(selector);
        says(budget, [0, 2, 2, 2]);
    })
}

/// `web` and `zoo` select `a`, `other` and `web` select `b`.
fn bench() -> Bench {
    let held = [
        pod("a", |pod| pod.metadata.labels = labels(&[("app", "web"), ("zoo", "yes")])),
        pod("b", |pod| pod.metadata.labels = labels(&[("app", "web"), ("other", "yes")])),
        pod("c", |_| {}),
    ];
    let bench = Bench::of(&named("web", &[("app", "web")]), &held);
    bench.with_budget(&named("zoo", &[("zoo", "yes")])).with_budget(&named("other", &[("other", "yes")]))
}

/// The pods of which a budget is to speak, and those of which it has not yet.
fn spoken_of(bench: &Bench, name: &str) -> (usize, Vec<String>) {
    match bench.observe(name, &[]) {
        Observation::View(view) => {
            let untold = view.untold.iter().map(|pod| pod.metadata.name.to_string()).collect();
            (view.overlaps.len(), untold)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_of_them_by_name_says_so() {
    let bench = bench();
    let told: Vec<String> = bench.lines().into_iter().filter(|line| line.contains("Multiple")).collect();
    assert_eq!(
        told,
        [
            "Warning MultiplePodDisruptionBudgets a: Pod \"default\"/\"a\" matches multiple PodDisruptionBudgets.  \
          Chose \"web\" arbitrarily."
        ]
    );
    assert_eq!(spoken_of(&bench, "other"), (1, vec!["b".to_owned()]));
    assert_eq!(spoken_of(&bench, "zoo"), (0, vec![]));
}

#[test]
fn it_is_said_once_of_each_version_of_a_pod() {
    let bench = bench();
    let key = Key::new("default", "web");
    bench.told.commit(&key, bench.view(&[]).overlaps);
    assert_eq!(spoken_of(&bench, "web"), (1, vec![]));
    let changed = pod("a", |pod| {
        pod.metadata.labels = labels(&[("app", "web"), ("zoo", "yes")]);
        pod.metadata.resource_version = "51".into();
    });
    bench.pods.upsert(&(changed as AnyObject));
    assert_eq!(spoken_of(&bench, "web"), (1, vec!["a".to_owned()]));
    // What is gone is forgotten, the budget itself, too.
    bench.told.commit(&key, bench.view(&[]).overlaps);
    let end = |outcome: &Outcome| {
        let ended = ReconcileEnd { outcome, actions: &[], took: std::time::Duration::ZERO };
        bench.told.ended(&key, ended);
        spoken_of(&bench, "web").1.len()
    };
    assert_eq!(end(&Outcome::Waiting(&coxswain_machinery::api::kinds::PODS)), 0);
    assert_eq!(end(&Outcome::Absent), 1);
}
