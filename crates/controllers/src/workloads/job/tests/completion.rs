//! Completion: of Jobs that run, are suspended, or are being deleted.

use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::{ago, condition, deleting, job, pod, steps, steps_of, succeeded, untracked, view};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::pod::Pod;

/// A work queue, of which one pod has succeeded and is counted.
fn work_queue(change: impl FnOnce(&mut Job)) -> Arc<Job> {
    job(|job| {
        job.spec.completions = None;
        (job.status.succeeded, job.status.active, job.status.ready) = (1, 1, Some(1));
        change(job);
    })
}

#[test]
fn job_suspended_at_completion_keeps_start_time() {
    // Suspending deletes the last pod of a work queue, which has all that it needs then.
    let suspended = work_queue(|job| job.spec.suspend = true);
    let decided = "0/0/1 1+0 SuccessCriteriaMet(CompletionsReached)";
    let expected = ["untrack b", "delete b", &format!("status {decided}")];
    assert_eq!(steps_of(&suspended, &[pod("b", |_| {})]), expected);

    // The success and the suspension are seen together.
    let suspended = job(|job| {
        job.spec.completions = Some(1);
        job.spec.suspend = true;
    });
    let expected = [
        "status 0/0/0 0+0 [a|] SuccessCriteriaMet(CompletionsReached)",
        "untrack a",
        "again 0/0/0 1+0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached) ended",
        "emit Completed",
    ];
    assert_eq!(steps_of(&suspended, &[pod("a", succeeded)]), expected);
}

#[test]
fn job_created_suspended_without_completions_is_complete_and_not_suspended() {
    let nothing = job(|job| {
        job.spec.completions = Some(0);
        job.spec.suspend = true;
        job.status.start_time = None;
    });
    let expected = [
        "status 0/0/0 0+0 SuccessCriteriaMet(CompletionsReached) unstarted",
        "again 0/0/0 0+0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached) unstarted ended",
        "emit Completed",
    ];
    assert_eq!(steps_of(&nothing, &[]), expected);
}

#[test]
fn job_resumed_at_completion_is_not_reported_as_resumed() {
    let resumed = job(|job| {
        job.spec.completions = Some(1);
        job.status.conditions = vec![condition("Suspended", "True", "JobSuspended")];
    });
    let steps = steps_of(&resumed, &[pod("a", succeeded)]);
    assert!(!steps.iter().any(|step| step.contains("Resumed")), "{steps:?}");
    assert!(steps.iter().any(|step| step == "emit Completed"), "{steps:?}");
}

#[test]
fn job_being_deleted_is_declared_complete() {
    let gone = |job: &mut Job| job.metadata.deletion_timestamp = ago(10);
    let held = work_queue(gone);
    // The running pod lost its finalizer with the deletion of the Job; it is not counted.
    let ended = pod("b", |pod| {
        succeeded(pod);
        untracked(pod);
    });
    let expected = [
        "status 0/0/0 1+0 SuccessCriteriaMet(CompletionsReached)",
        "again 0/0/0 1+0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached) ended",
        "emit Completed",
    ];
    assert_eq!(steps_of(&held, &[ended]), expected);
    let runs = pod("b", untracked);
    assert!(!steps_of(&held, &[runs]).iter().any(|step| step.contains("Success")), "one still runs");

    // The success and the deletion are seen together.
    let held = job(|job| {
        job.spec.completions = Some(1);
        gone(job);
    });
    let steps = steps_of(&held, &[pod("a", succeeded)]);
    assert_eq!(steps.last().map(String::as_str), Some("emit Completed"), "{steps:?}");
    // Too few have succeeded: nothing is created, and nothing ends.
    let held = job(gone);
    assert_eq!(
        steps_of(&held, &[pod("a", succeeded)]),
        ["status 0/0/0 0+0 [a|]", "untrack a", "again 0/0/0 1+0"]
    );
}

/// The state of a pod.
#[derive(Clone, Copy, Debug)]
enum Sort {
    Runs,
    Succeeded,
    Terminates,
}

fn pods(sorts: &[Sort]) -> Vec<Arc<Pod>> {
    let of = |(at, sort): (usize, &Sort)| {
        pod(&format!("p{at}"), |pod| match sort {
            Sort::Runs => {}
            Sort::Succeeded => succeeded(pod),
            Sort::Terminates => deleting(pod),
        })
    };
    sorts.iter().enumerate().map(of).collect()
}

proptest! {
    #[test]
    fn no_planned_status_of_a_completing_job_lacks_its_start_time_or_is_suspended_in_the_same_pass(
        completions in proptest::option::of(1..3_i32),
        (suspend, was_suspended, is_deleted) in any::<(bool, bool, bool)>(),
        counted in 0..3_i32,
        sorts in proptest::collection::vec(
            prop_oneof![Just(Sort::Runs), Just(Sort::Succeeded), Just(Sort::Terminates)],
            0..4,
        ),
    ) {
        let job = job(|job| {
            job.spec.completions = completions;
            job.spec.suspend = suspend;
            job.status.succeeded = counted;
            if was_suspended {
                job.status.conditions = vec![condition("Suspended", "True", "JobSuspended")];
            }
            if is_deleted {
                job.metadata.deletion_timestamp = ago(10);
            }
        });
        let view = view(&job, &pods(&sorts));
        let lines = steps(&view);
        let completes = lines.iter().any(|line| line.contains("SuccessCriteriaMet"));
        if completes {
            let told = |word: &str| lines.iter().any(|line| line.contains(word));
            prop_assert!(!told("unstarted") && !told("emit Suspended") && !told("emit Resumed"), "{lines:?}");
        }
    }
}
