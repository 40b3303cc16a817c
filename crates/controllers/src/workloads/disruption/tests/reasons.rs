//! What explanations say.

use super::super::plan::reasons::reasons;
use super::fixtures::{Bench, ago, bare, budget, controlled_by, deleting, now, percent, pod, says, unready};
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::wire::IntOrString;

fn told(bench: &Bench) -> Vec<String> {
    reasons(&bench.view(&[]), now())
}

#[test]
fn they_say_who_may_go_and_why_no_more() {
    let budget = budget(|budget| {
        budget.spec.min_available = Some(percent("50%"));
        budget.status.disrupted_pods.insert("a", ago(30));
    });
    let pods = [
        pod("a", |_| {}),
        pod("b", unready),
        pod("c", deleting),
        pod("d", bare),
        pod("e", |_| {}),
        pod("f", |_| {}),
    ];
    assert_eq!(
        told(&Bench::of(&budget, &pods)),
        [
            "1 pod may be evicted: 3 healthy of 4 expected, and 2 must be healthy.",
            "minAvailable is 50% of 4 replicas, the desired number of 1 controller.",
            "c is terminating.",
            "b is not ready.",
            "a is being evicted and does not count as healthy for up to 1m 30s.",
            "d has no controller and is not counted; only a minAvailable number counts such pods.",
        ]
    );
}

#[test]
fn they_say_what_is_asked_for() {
    let first_two = |change: fn(&mut PodDisruptionBudget)| {
        let mut told = told(&Bench::of(&budget(change), &[pod("a", |_| {})]));
        told.truncate(2);
        told
    };
    assert_eq!(
        first_two(|budget| says(budget, [0, 0, 0, 0])),
        [
            "No pod may be evicted: 1 healthy of 1 expected, and 2 must be healthy.",
            "minAvailable is 2 of all matching pods."
        ]
    );
    assert_eq!(
        first_two(|budget| {
            budget.spec.min_available = None;
            budget.spec.max_unavailable = Some(IntOrString::Int(4));
        }),
        [
            "1 pod may be evicted: 1 healthy of 4 expected, and 0 must be healthy.",
            "maxUnavailable is 4 of 4 replicas, the desired number of 1 controller."
        ]
    );
    assert_eq!(
        first_two(|budget| budget.spec.min_available = None),
        [
            "No pod may be evicted, because the expected number of pods is 0.",
            "The budget has neither minAvailable nor maxUnavailable and requires no healthy pods."
        ]
    );
    let none = told(&Bench::of(&budget(|budget| budget.spec.selector = None), &[]));
    assert_eq!(none[2..], ["The budget has no selector and matches no pod."]);
    assert_eq!(told(&Bench::of(&budget(|_| {}), &[]))[2..], ["No pod matches the selector."]);
}

#[test]
fn they_say_what_is_not_known() {
    let job = pod("a", |pod| pod.metadata.owner_references = controlled_by("a/b/c", "Job", "job"));
    let bench = Bench::of(&budget(|budget| budget.spec.min_available = Some(percent("50%"))), &[job]);
    assert_eq!(
        told(&bench),
        [
            "No pod may be evicted, because the expected number of pods is unknown: unexpected GroupVersion string: \
             a/b/c. The calculation is repeated when the cause changes."
        ]
    );
}
