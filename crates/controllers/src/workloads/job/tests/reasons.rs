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
    let counted = "1 of 4 have succeeded, 0 have failed (more than 6 fail the Job).";
    let pods = [pod("a", succeeded), pod("b", |_| {})];
    assert_eq!(
        reasons(|job| job.spec.active_deadline_seconds = Some(130), &pods),
        [
            "1 pod runs, and 2 should.",
            counted,
            "It may be active for another 30s.",
            "1 pod has ended and is not counted yet.",
        ]
    );
    assert_eq!(
        reasons(|job| job.spec.suspend = true, &pods)[0],
        "It is suspended: none of its pods may run, and 1 pod is deleted."
    );
    assert_eq!(
        reasons(|job| job.spec.pod_replacement_policy = "Failed".into(), &[pod("a", deleting)])[..2],
        ["no pods run, and 2 should.", "1 pod is on its way out, to be replaced when failed."]
    );
    assert_eq!(
        reasons(
            |job| job.spec.backoff_limit = Some(0),
            &[pod("a", failed), pod("b", |_| {}), pod("c", deleting)]
        )[..3],
        [
            "It has failed (BackoffLimitExceeded): Job has reached the specified backoff limit.",
            "1 pod still runs and is deleted.",
            "1 pod is on its way out: the end is told when none is left.",
        ]
    );
    let mut view = view(&job(|_| {}), &[]);
    view.backoff = Record { failures: 2, last: ago(5) };
    assert_eq!(
        plan::reasons(&view, now())[1],
        "2 pods failed since one succeeded: no other is made for 15s."
    );
}

#[test]
fn an_explanation_says_why_a_job_is_left_alone() {
    assert_eq!(
        reasons(|job| job.spec.managed_by = "example.com/another".into(), &[]),
        ["example.com/another runs this Job: it and its pods are left alone."]
    );
    assert_eq!(
        reasons(|job| job.status.conditions = vec![condition("Complete", "True", "CompletionsReached")], &[]),
        ["It is Complete (CompletionsReached): nothing is left to do."]
    );
    assert_eq!(
        reasons(|job| job.spec.completion_mode = "Sorted".into(), &[]),
        ["Its completion mode \"Sorted\" is not known: it is left alone."]
    );
    assert_eq!(
        reasons(|job| job.metadata.deletion_timestamp = ago(1), &[])[0],
        "It is being deleted: pods that have ended are counted, and no others are made."
    );
}
