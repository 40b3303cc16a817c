//! What explanations say.

use std::sync::Arc;

use super::super::backoff::Record;
use super::super::plan;
use super::fixtures::{ago, condition, deleting, failed, job, now, pod, succeeded, view};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::pod::Pod;

fn reasons(change: impl FnOnce(&mut Job), pods: &[Arc<Pod>]) -> Vec<String> {
    plan::reasons(&view(&job(change), pods), now())
}

#[test]
fn an_explanation_says_what_is_waited_for() {
    let counted = "1 of 4 have succeeded, 0 have failed (backoffLimit 6).";
    let pods = [pod("a", succeeded), pod("b", |_| {})];
    assert_eq!(
        reasons(|job| job.spec.active_deadline_seconds = Some(130), &pods),
        [
            "1 pod runs; 2 desired.",
            counted,
            "The active deadline is reached in 30s.",
            "1 pod has finished and is not counted yet.",
        ]
    );
    assert_eq!(
        reasons(|job| job.spec.suspend = true, &pods)[0],
        "The Job is suspended; no pod may run, and 1 pod is deleted."
    );
    assert_eq!(
        reasons(|job| job.spec.pod_replacement_policy = "Failed".into(), &[pod("a", deleting)])[..2],
        ["no pods run; 2 desired.", "1 pod is terminating; a replacement is created after a pod has failed."]
    );
    assert_eq!(
        reasons(
            |job| job.spec.backoff_limit = Some(0),
            &[pod("a", failed), pod("b", |_| {}), pod("c", deleting)]
        )[..3],
        [
            "The Job has failed (BackoffLimitExceeded): Job has reached the specified backoff limit.",
            "1 pod still runs and is deleted.",
            "1 pod is terminating; the Job is marked as finished when none is left.",
        ]
    );
    let mut view = view(&job(|_| {}), &[]);
    view.backoff = Record { failures: 2, last: ago(5) };
    assert_eq!(
        plan::reasons(&view, now())[1],
        "2 pods failed since the last success; the next pod is created in 15s (backoff)."
    );
}

#[test]
fn an_explanation_says_why_a_job_is_left_alone() {
    assert_eq!(
        reasons(|job| job.spec.managed_by = "example.com/another".into(), &[]),
        ["The external controller example.com/another manages this Job; the Job and its pods are ignored."]
    );
    assert_eq!(
        reasons(|job| job.status.conditions = vec![condition("Complete", "True", "CompletionsReached")], &[]),
        ["The Job is Complete (CompletionsReached); no work is left."]
    );
    assert_eq!(
        reasons(|job| job.spec.completion_mode = "Sorted".into(), &[]),
        ["The completion mode \"Sorted\" is unknown; the Job is ignored."]
    );
    assert_eq!(
        reasons(|job| job.metadata.deletion_timestamp = ago(1), &[])[0],
        "The Job is being deleted; finished pods are counted, and no pods are created."
    );
}
