//! What is written when something failed.

use super::fixtures::{Bench, ago, budget, controlled_by, failed, lines, percent, pod, pods, says};
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::policy::PodDisruptionBudget;

/// Four pods under a budget whose status is behind.
fn bench() -> Bench {
    let budget = budget(|budget| {
        says(budget, [1, 3, 2, 4]);
        budget.metadata.generation = 4;
        budget.status.disrupted_pods.insert("a", ago(5));
        let other = Condition { r#type: "Other".into(), ..Condition::default() };
        budget.status.conditions.push(other);
    });
    Bench::of(&budget, &pods(&["a", "b", "c", "d"]))
}

#[test]
fn a_write_that_failed_closes_the_budget_and_keeps_the_rest() {
    let plan = bench().plan_after(failed(422, "Invalid", "no"));
    assert_eq!(lines(&plan), ["status 0 3/2/4 @3 False SyncFailed: no -a"]);
    assert!(plan.end, "what is refused is so until something changes");
    for (code, message) in [(0, "no answer"), (429, "not now"), (500, "down")] {
        let plan = bench().plan_after(failed(code, "", message));
        assert_eq!(lines(&plan), [format!("status 0 3/2/4 @3 False SyncFailed: {message} -a")]);
        assert!(!plan.end, "{code}: it is tried again");
    }
}

#[test]
fn a_conflict_closes_nothing() {
    let plan = bench().plan_after(failed(409, "Conflict", "somebody was faster"));
    assert!(plan.is_empty() && !plan.end);
}

#[test]
fn what_closes_it_is_not_written_twice() {
    let failing = |change: &dyn Fn(&mut PodDisruptionBudget)| {
        let job = pod("a", |pod| pod.metadata.owner_references = controlled_by("a/b/c", "Job", "job"));
        let budget = budget(|budget| {
            budget.spec.min_available = Some(percent("50%"));
            says(budget, [1, 3, 2, 4]);
            change(budget);
        });
        Bench::of(&budget, &[job])
    };
    let error = "unexpected GroupVersion string: a/b/c";
    let bench = failing(&|_| {});
    assert_eq!(bench.status(), format!("status 0 3/2/4 @3 False SyncFailed: {error}"));
    // The write that failed was the one that was to close it.
    assert!(bench.plan_after(failed(500, "", "down")).is_empty());
    let closed = |budget: &mut PodDisruptionBudget, message: &str| {
        budget.status.disruptions_allowed = 0;
        budget.status.conditions[0].status = "False".into();
        budget.status.conditions[0].reason = "SyncFailed".into();
        budget.status.conditions[0].message = message.into();
    };
    assert_eq!(failing(&|budget| closed(budget, "unexpected GroupVersion string: a/b/c")).status(), "");
    let other = failing(&|budget| closed(budget, "another error")).status();
    assert_eq!(other, format!("status 0 3/2/4 @3 False SyncFailed: {error}"));
}

#[test]
fn a_budget_that_failed_opens_again() {
    let budget = budget(|budget| {
        says(budget, [0, 4, 2, 4]);
        budget.status.conditions[0].reason = "SyncFailed".into();
        budget.status.conditions[0].message = "it was so".into();
    });
    let bench = Bench::of(&budget, &pods(&["a", "b", "c", "d"]));
    assert_eq!(bench.lines(), ["status 2 4/2/4 @3 True SufficientPods"]);
}
