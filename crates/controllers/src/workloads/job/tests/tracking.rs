//! Which pods are counted, and when their finalizers go.

use std::sync::Arc;

use super::super::view::{View, Written};
use super::fixtures::{
    after, ago, condition, deleting, failed, failed_before, indexed, job, only, planned, pod, pod_of,
    refused, steps, steps_of, succeeded, uncounted, untracked, view,
};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::Write;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::Uid;

#[test]
fn a_pod_is_told_before_its_finalizer_goes_and_counted_afterwards() {
    let pods = [pod("a", succeeded), pod("b", failed), pod("c", |_| {}), pod("d", |_| {})];
    assert_eq!(
        steps_of(&job(|_| {}), &pods),
        ["status 2/2/0 0+0 [a|b]", "untrack a", "untrack b", "again 2/2/0 1+1"]
    );
}

#[test]
fn what_a_killed_manager_left_is_taken_up() {
    let left = |name: &str, is_done: bool, is_tracked: bool| {
        pod(name, |pod| {
            if is_done {
                succeeded(pod);
            } else {
                failed(pod);
            }
            if !is_tracked {
                untracked(pod);
            }
        })
    };
    let running = [pod("c", |_| {}), pod("d", |_| {})];
    let job = job(|job| {
        job.status.active = 2;
        job.status.ready = Some(2);
        uncounted(job, &["a", "gone"], &["b"]);
    });
    // The finalizers went, and nothing was counted.
    let pods = [&[left("a", true, false), left("b", false, false)], running.as_slice()].concat();
    assert_eq!(steps_of(&job, &pods), ["status 2/2/0 2+1"]);
    // One has it still: it is not told again.
    let pods = [&[left("a", true, true), left("b", false, false)], running.as_slice()].concat();
    assert_eq!(steps_of(&job, &pods), ["status 2/2/0 1+1 [a|]", "untrack a", "again 2/2/0 2+1"]);
}

#[test]
fn a_status_that_says_so_already_is_not_written_before_finalizers_go() {
    let job = job(|job| {
        job.status.active = 2;
        job.status.ready = Some(2);
        uncounted(job, &["a"], &[]);
    });
    let pods = [pod("a", succeeded), pod("b", |_| {}), pod("c", |_| {})];
    assert_eq!(steps_of(&job, &pods), ["untrack a", "status 2/2/0 1+0"]);
}

#[test]
fn indexes_are_counted_by_the_first_write() {
    let pods = [pod_of(1, "a", succeeded), pod_of(0, "b", |_| {}), pod_of(2, "c", |_| {})];
    assert_eq!(steps_of(&indexed(|_| {}), &pods), ["status 2/2/0 1+0 done:1", "untrack a"]);
    // Of two of one index both lose the finalizer, and it counts once; one beyond does not count.
    let pods =
        [pod_of(1, "a", succeeded), pod_of(1, "b", succeeded), pod_of(9, "c", succeeded), pod("d", failed)];
    let told = steps_of(&indexed(|job| job.spec.parallelism = Some(0)), &pods);
    assert_eq!(told, ["status 0/0/0 1+0 done:1", "untrack d", "untrack a", "untrack b", "untrack c"]);
}

#[test]
fn fewer_completions_forget_indexes() {
    let shrunk = indexed(|job| {
        job.spec.completions = Some(2);
        job.spec.parallelism = Some(2);
        job.status.completed_indexes = "0,2-3".into();
        job.status.succeeded = 3;
    });
    assert_eq!(only(steps_of(&shrunk, &[]), "status"), ["status 1/0/0 1+0 done:0"]);
}

#[test]
fn no_more_than_500_are_told_at_once() {
    let pods: Vec<_> = (0..700).map(|at| pod(&format!("p{at:03}"), succeeded)).collect();
    let job = job(|job| job.spec.completions = Some(700));
    let told = steps_of(&job, &pods);
    assert_eq!(only(told.clone(), "untrack").len(), 500);
    assert_eq!(only(told, "again"), ["again 0/0/0 500+0 SuccessCriteriaMet(CompletionsReached)"]);
}

#[test]
fn job_tells_all_indexes_at_once_and_takes_500_finalizers_off() {
    let wide = |change: fn(&mut Job)| {
        indexed(|job| {
            job.spec.parallelism = Some(1200);
            job.spec.completions = Some(1200);
            change(job);
        })
    };
    let pods: Vec<_> = (0..1200).map(|at| pod_of(at, &format!("p{at:04}"), succeeded)).collect();
    let told = steps_of(&wide(|_| {}), &pods);
    let status = "status 0/0/0 1200+0 done:0-1199 SuccessCriteriaMet(CompletionsReached)";
    assert_eq!(only(told.clone(), "status"), [status]);
    assert_eq!(only(told.clone(), "untrack").len(), 500);
    assert_eq!(only(told, "again"), [""; 0]);
    let rest = steps_of(
        &wide(|job| {
            job.status.completed_indexes = "0-1199".into();
            job.status.succeeded = 1200;
            job.status.conditions = vec![condition("SuccessCriteriaMet", "True", "CompletionsReached")];
        }),
        &pods[500..],
    );
    assert_eq!(only(rest.clone(), "untrack").len(), 700);
    let is_complete =
        |line: &String| line.contains(" Complete(CompletionsReached)") && line.ends_with(" ended");
    assert!(rest.iter().any(is_complete), "{:?}", rest.last());
}

#[test]
fn a_failed_pod_of_an_index_waits_for_its_replacement() {
    let limited = indexed(|job| {
        job.spec.backoff_limit = Some(i32::MAX);
        job.spec.backoff_limit_per_index = Some(3);
        job.spec.parallelism = Some(1);
        job.status.failed_indexes = Some("".into());
    });
    let earlier = pod_of(0, "a", failed);
    let later = pod_of(0, "b", |pod| {
        failed(pod);
        failed_before(pod, 1, 0);
    });
    // The one that has seen more is kept, for its replacement to inherit from.
    let told = steps_of(&limited, &[Arc::clone(&earlier), Arc::clone(&later)]);
    assert_eq!(
        told,
        ["create 0 after 2/0", "status 1/0/0 0+0 [|a] failed:", "untrack a", "again 1/0/0 0+1 failed:"]
    );
    let replacement = pod_of(0, "c", |pod| failed_before(pod, 2, 0));
    let told = steps_of(&limited, &[later, replacement]);
    assert_eq!(only(told, "untrack"), ["untrack b"]);
}

#[test]
fn pods_of_a_job_that_is_deleted_are_let_go() {
    let going = job(|job| job.metadata.deletion_timestamp = ago(1));
    let pods = [pod("a", succeeded), pod("b", |_| {}), pod("c", deleting)];
    assert_eq!(
        steps_of(&going, &pods),
        ["status 1/1/1 0+0 [a|c]", "untrack a", "untrack b", "untrack c", "again 1/1/1 1+1"]
    );
}

/// The garbage collector deletes the pods of a Job that is deleted in the foreground, sometimes before the Job's reconcile.
#[test]
fn pods_deleted_with_their_job_are_no_failures() {
    let deleted_in = |grace: i64, at: i64| {
        move |pod: &mut Pod| {
            pod.metadata.deletion_timestamp = ago(at - grace);
            pod.metadata.deletion_grace_period_seconds = Some(grace);
        }
    };
    let going = |finalizer: &str| {
        job(|job| {
            job.spec.backoff_limit = Some(0);
            job.status.active = 3;
            job.metadata.deletion_timestamp = ago(10);
            job.metadata.finalizers = vec![finalizer.into()];
        })
    };
    let foreground = going("foregroundDeletion");
    // The clocks of two API servers may differ.
    let told = steps_of(&foreground, &[pod("a", deleted_in(30, 11)), pod("b", deleted_in(0, 9))]);
    assert_eq!(told, ["status 0/0/2 0+0", "untrack a", "untrack b"]);
    // A pod whose phase is Failed counts, and so does a deleted pod of a Job that is not deleted in the foreground.
    let failed = pod("c", |pod: &mut Pod| pod.status.phase = "Failed".into());
    for (job, pod) in [(&foreground, failed), (&going("example.com/held"), pod("c", deleted_in(30, 9)))] {
        let told = steps_of(job, &[pod]);
        assert!(told[0].contains("[|c] FailureTarget(BackoffLimitExceeded)"), "{told:?}");
    }
}

#[test]
fn a_start_alone_is_not_told() {
    let with = |change: fn(&mut coxswain_machinery::api::batch::Job)| {
        job(|job| {
            job.spec.parallelism = Some(0);
            job.status.start_time = None;
            job.status.uncounted_terminated_pods = None;
            change(job);
        })
    };
    assert_eq!(steps_of(&with(|_| {}), &[]), [""; 0]);
    assert_eq!(steps_of(&with(|job| job.status.ready = None), &[]), ["status 0/0/0 0+0"]);
}

#[test]
fn suspending_takes_the_start_away_and_resuming_sets_it_anew() {
    let running = [pod("a", |_| {})];
    let suspended = job(|job| job.spec.suspend = true);
    assert_eq!(
        steps_of(&suspended, &running),
        ["untrack a", "delete a", "emit Suspended", "status 0/0/1 0+0 Suspended(JobSuspended) unstarted"]
    );
    let mut kept = view(&suspended, &running);
    kept.gates.drops_start_time = false;
    assert_eq!(only(steps(&kept), "status"), ["status 0/0/1 0+0 Suspended(JobSuspended)"]);
    let resumed = job(|job| {
        job.status.conditions = vec![condition("Suspended", "True", "JobSuspended")];
        job.status.start_time = None;
    });
    assert_eq!(
        steps_of(&resumed, &[]),
        ["create", "create", "emit Resumed", "status 2/0/0 0+0 !Suspended(JobResumed)"]
    );
    // It is not said of one that never was.
    assert_eq!(only(steps_of(&job(|_| {}), &[]), "status"), ["status 2/0/0 0+0"]);
}

/// What is planned once the first of the writes that `is_meant` has failed, and those before it have not.
fn after_failure(view: &View, is_meant: impl Fn(&Write) -> bool, written: Written) -> Vec<String> {
    let plan = planned(view);
    let write = plan.writes().find(|write| is_meant(write)).expect("such a write");
    steps(&after(view, Written { failures: vec![refused(write)], ..written }))
}

#[test]
fn a_create_that_failed_keeps_nobody_from_being_counted() {
    let view = view(&job(|job| job.spec.parallelism = Some(3)), &[pod("a", succeeded)]);
    let is_create = |write: &Write| matches!(write.verb, Verb::Create(_));
    let told = after_failure(&view, is_create, Written { created: 1, ..Written::default() });
    assert_eq!(told, ["status 1/0/0 0+0 [a|]", "untrack a", "again 1/0/0 1+0"]);
}

#[test]
fn an_end_is_not_declared_while_a_delete_fails() {
    let view = view(&job(|job| job.spec.backoff_limit = Some(0)), &[pod("a", failed), pod("b", |_| {})]);
    let is_delete = |write: &Write| matches!(write.verb, Verb::Delete { .. });
    let told = after_failure(&view, is_delete, Written::default());
    assert_eq!(told, ["status 1/1/0 0+0 [|a]", "untrack a", "again 1/1/0 0+1"]);
}

#[test]
fn what_lost_its_finalizer_is_counted_though_another_could_not() {
    let job = job(|job| {
        job.status.active = 2;
        job.status.ready = Some(2);
        uncounted(job, &["a", "b"], &[]);
    });
    let pods = [pod("a", succeeded), pod("b", succeeded), pod("c", |_| {}), pod("d", |_| {})];
    let view = view(&job, &pods);
    let is_of_b = |write: &Write| write.kind == &PODS && write.key.name == "b";
    let released = std::iter::once(Uid::from("a-uid")).collect();
    let told = after_failure(&view, is_of_b, Written { released, ..Written::default() });
    assert_eq!(told, ["status 2/2/0 1+0 [b|]"]);
}

#[test]
fn a_status_that_was_refused_leaves_everything_to_the_next_try() {
    let view = view(&job(|_| {}), &[pod("a", succeeded)]);
    let is_status = |write: &Write| write.subresource == "status";
    assert_eq!(after_failure(&view, is_status, Written::default()), [""; 0]);
}
