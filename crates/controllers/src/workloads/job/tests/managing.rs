//! How many pods are made or deleted, and which.

use std::sync::Arc;
use std::time::Duration;

use super::super::backoff::Record;
use super::super::view::{View, Written};
use super::fixtures::{
    after, ago, annotate, deleting, exited, failed, failed_before, indexed, job, only, planned, pod, pod_of,
    refused, steps, steps_of, succeeded, unready, view,
};
use coxswain_machinery::api::batch::{Job, PodFailurePolicy, PodFailurePolicyRule};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Failure, Write};
use coxswain_machinery::wire::Uid;

fn creates(job: &Arc<Job>, pods: &[Arc<Pod>]) -> usize {
    only(steps_of(job, pods), "create").len()
}

fn deleted(job: &Arc<Job>, pods: &[Arc<Pod>]) -> Vec<String> {
    only(steps_of(job, pods), "delete").iter().map(|line| line.replace("delete ", "")).collect()
}

#[test]
fn as_many_pods_are_made_as_are_wanted() {
    let with = |parallelism, completions: Option<i32>, done| {
        job(|job| {
            job.spec.parallelism = Some(parallelism);
            job.spec.completions = completions;
            job.status.succeeded = done;
        })
    };
    for (parallelism, completions, done, active, expected) in [
        (2, Some(4), 0, 0, 2),
        (2, Some(4), 0, 1, 1),
        (3, Some(4), 2, 0, 2),
        (0, Some(4), 0, 0, 0),
        (5, Some(4), 4, 0, 0),
        (5, Some(2), 4, 0, 0),
        (900, Some(900), 0, 0, 500),
        // Without a number of completions: until the first success.
        (3, None, 0, 1, 2),
        (3, None, 1, 1, 0),
    ] {
        let pods: Vec<_> = (0..active).map(|at| pod(&format!("p{at}"), |_| {})).collect();
        let job = with(parallelism, completions, done);
        assert_eq!(creates(&job, &pods), expected, "{parallelism} {completions:?} {done} {active}");
    }
}

/// In kube-controller-manager a Job counts a refused pod as active until the next sync.
#[test]
fn status_counts_no_pod_that_is_withheld() {
    let job = job(|job| {
        job.spec.parallelism = Some(2);
        job.spec.completions = Some(2);
        job.status.active = 1;
    });
    for (withholds_creates, status) in [(false, "status 2/"), (true, "status 0/")] {
        let view = View { withholds_creates, ..view(&job, &[]) };
        assert_eq!(only(steps(&view), status).len(), 1, "{:?}", steps(&view));
        assert_eq!(only(steps(&view), "create").len(), 2);
    }
}

#[test]
fn a_pod_on_its_way_out_is_replaced_at_once_or_when_it_has_failed() {
    let pods = [pod("a", deleting), pod("b", |_| {})];
    let strict = |job: &mut Job| job.spec.pod_replacement_policy = "Failed".into();
    assert_eq!(creates(&job(|_| {}), &pods), 1);
    assert_eq!(creates(&job(strict), &pods), 0);
    let policy = |job: &mut Job| job.spec.pod_failure_policy = Some(Box::default());
    assert_eq!(creates(&job(policy), &pods), 0, "a policy judges pods when they have failed");
    let indexed_pods = [pod_of(0, "a", deleting), pod_of(1, "b", |_| {})];
    let of_indexes = only(steps_of(&indexed(|_| {}), &indexed_pods), "create");
    assert_eq!(of_indexes, ["create 0"]);
    assert_eq!(creates(&indexed(strict), &indexed_pods), 0);
}

#[test]
fn the_least_useful_go_first() {
    let pods = [
        pod("ready-long", |_| {}),
        pod("ready-short", |pod| pod.status.conditions[0].last_transition_time = ago(10)),
        pod("unready", unready),
        pod("unknown", |pod| {
            unready(pod);
            pod.status.phase = "Unknown".into();
        }),
        pod("pending", |pod| {
            unready(pod);
            pod.status.phase = "Pending".into();
        }),
        pod("unbound", |pod| {
            unready(pod);
            pod.status.phase = "Pending".into();
            pod.spec.node_name = "".into();
        }),
        pod("unready-young", |pod| {
            unready(pod);
            pod.metadata.creation_timestamp = ago(1);
        }),
    ];
    let order = ["unbound", "pending", "unknown", "unready-young", "unready", "ready-short", "ready-long"];
    for stay in 0..=pods.len() {
        let job = job(|job| {
            job.spec.parallelism = Some(stay as i32);
            job.spec.completions = Some(20);
        });
        assert_eq!(deleted(&job, &pods), order[..pods.len() - stay], "{stay} stay");
    }
}

#[test]
fn restarts_break_a_tie() {
    let restarted = |count| {
        move |pod: &mut Pod| {
            exited(pod, 0, 1);
            pod.status.phase = "Running".into();
            pod.status.container_statuses[0].restart_count = count;
        }
    };
    let pods = [pod("a", restarted(1)), pod("b", restarted(3)), pod("c", restarted(0))];
    assert_eq!(deleted(&job(|job| job.spec.parallelism = Some(1)), &pods), ["b", "a"]);
}

#[test]
fn nothing_is_made_where_something_is_deleted() {
    let pods =
        [pod_of(0, "a", |_| {}), pod_of(0, "b", unready), pod_of(7, "beyond", |_| {}), pod("none", |_| {})];
    let job = indexed(|job| job.spec.parallelism = Some(4));
    let told = steps_of(&job, &pods);
    // Of two of one index the better stays.
    assert_eq!(only(told.clone(), "delete"), ["delete b", "delete beyond", "delete none"]);
    assert_eq!(only(told.clone(), "create"), [""; 0]);
    // They are not failures: the finalizer goes first.
    assert_eq!(told[..2], ["untrack b", "delete b"]);
    assert_eq!(only(told, "status"), ["status 1/1/3 0+0"]);
}

/// By a cache that is late a pod runs that has succeeded meanwhile. Its success is counted first: without the finalizer nobody would.
#[test]
fn who_is_one_too_many_is_let_go_only_as_it_was_seen() {
    let seen = |name: &str| pod(name, |pod| pod.metadata.resource_version = "41".into());
    let plan = planned(&view(&job(|job| job.spec.parallelism = Some(1)), &[seen("a"), seen("b")]));
    let patches: Vec<_> = plan
        .writes()
        .filter_map(
            |write| if let Verb::Patch(patch) = &write.verb { Some((write, patch.value())) } else { None },
        )
        .collect();
    let [(write, patch)] = patches[..] else { panic!("{patches:?}") };
    assert_eq!((&patch["metadata"]["resourceVersion"], write.tolerate.conflict), (&"41".into(), false));
}

#[test]
fn job_status_counts_a_pod_as_active_whose_deletion_met_a_conflict() {
    let view = view(&job(|job| job.spec.suspend = true), &[pod("a", |_| {}), pod("b", |_| {})]);
    let plan = planned(&view);
    let is_of_b = |write: &&Write| write.key.name == "b" && matches!(write.verb, Verb::Patch(_));
    let conflict = Failure {
        code: 409,
        reason: "Conflict".into(),
        ..refused(plan.writes().find(is_of_b).expect("the patch that untracks it"))
    };
    let uids = || std::iter::once(Uid::from("a-uid")).collect();
    let written = Written { deleted: uids(), released: uids(), failures: vec![conflict], created: 0 };
    assert_eq!(
        steps(&after(&view, written)),
        ["emit Suspended", "status 1/1/1 0+0 Suspended(JobSuspended) unstarted"]
    );
}

#[test]
fn at_most_500_go_at_once_but_all_of_a_suspended_job() {
    let pods: Vec<_> = (0..700).map(|at| pod(&format!("p{at}"), |_| {})).collect();
    assert_eq!(deleted(&job(|job| job.spec.parallelism = Some(0)), &pods).len(), 500);
    assert_eq!(deleted(&job(|job| job.spec.suspend = true), &pods).len(), 700);
}

#[test]
fn the_lowest_free_indexes_are_made() {
    let job = indexed(|job| {
        job.spec.parallelism = Some(3);
        job.spec.completions = Some(6);
        job.status.completed_indexes = "0,2".into();
        job.status.succeeded = 2;
    });
    let pods = [pod_of(1, "a", |_| {}), pod_of(3, "b", succeeded)];
    assert_eq!(only(steps_of(&job, &pods), "create"), ["create 4", "create 5"]);
}

#[test]
fn failures_delay_the_next_pod() {
    let waits = |failures, last| {
        let mut view = view(&job(|_| {}), &[]);
        view.backoff = Record { failures, last: ago(last) };
        let plan = planned(&view);
        (only(steps(&view), "create").len(), plan.requeue_after)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(waits(0, 0), (2, None));
    assert_eq!(waits(1, 3), (0, seconds(7)));
    assert_eq!(waits(1, 10), (2, None));
    assert_eq!(waits(3, 10), (0, seconds(30)));
    assert_eq!(waits(30, 599), (0, seconds(1)));
    assert_eq!(waits(30, 600), (2, None));
}

#[test]
fn a_failure_that_is_new_counts_from_when_the_pod_ended() {
    let running = pod("a", |_| {});
    let view = view(&job(|_| {}), &[running, pod("b", |pod| exited(pod, 1, 4))]);
    let plan = planned(&view);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(6)));
    assert_eq!(plan.note.items[0].backoff, Some(Record { failures: 1, last: ago(4) }));
    // Meanwhile the status is true.
    assert_eq!(steps(&view), ["status 1/1/0 0+0 [|b]", "untrack b", "again 1/1/0 0+1"]);
}

/// A Job with a limit for each index.
fn limited(limit: i32, change: impl FnOnce(&mut Job)) -> Arc<Job> {
    indexed(|job| {
        job.spec.backoff_limit = Some(i32::MAX);
        job.spec.backoff_limit_per_index = Some(limit);
        job.spec.parallelism = Some(1);
        job.status.failed_indexes = Some("".into());
        change(job);
    })
}

#[test]
fn a_replacement_inherits_what_the_index_has_failed() {
    let job = limited(5, |_| {});
    let failed_pod = pod_of(0, "a", |pod| {
        failed(pod);
        failed_before(pod, 2, 1);
    });
    assert_eq!(only(steps_of(&job, &[failed_pod]), "create"), ["create 0 after 3/1"]);
    assert_eq!(only(steps_of(&job, &[]), "create"), ["create 0 after 0/0"]);
    let unreadable = pod_of(0, "a", |pod| {
        failed(pod);
        annotate(pod, super::super::member::FAILURES, "many");
        annotate(pod, super::super::member::IGNORED_FAILURES, "-4");
    });
    assert_eq!(only(steps_of(&job, &[unreadable]), "create"), ["create 0 after 1/0"]);
}

#[test]
fn an_ignored_failure_is_inherited_as_one() {
    let job = limited(0, |job| {
        let rule = PodFailurePolicyRule {
            action: "Ignore".into(),
            on_pod_conditions: vec![coxswain_machinery::api::batch::OnPodCondition {
                r#type: "DisruptionTarget".into(),
                status: "True".into(),
            }],
            ..PodFailurePolicyRule::default()
        };
        job.spec.pod_failure_policy = Some(Box::new(PodFailurePolicy { rules: vec![rule] }));
    });
    let disrupted = pod_of(0, "a", |pod| {
        failed(pod);
        let mut condition = super::fixtures::ready(true, ago(1));
        condition.r#type = "DisruptionTarget".into();
        pod.status.conditions = vec![condition];
    });
    assert_eq!(only(steps_of(&job, &[disrupted]), "create"), ["create 0 after 0/1"]);
}

#[test]
fn an_index_in_backoff_keeps_its_place() {
    let fails = |seconds| {
        move |pod: &mut Pod| {
            exited(pod, 1, seconds);
            failed_before(pod, 1, 0);
        }
    };
    // Two failures: 20 s.
    let job = limited(5, |_| {});
    let view_of = |seconds| view(&job, &[pod_of(0, "a", fails(seconds))]);
    assert_eq!(only(steps(&view_of(5)), "create"), [""; 0]);
    assert_eq!(planned(&view_of(5)).requeue_after, Some(Duration::from_secs(15)));
    assert_eq!(only(steps(&view_of(20)), "create"), ["create 0 after 2/0"]);
    // Others of the chosen ones go on.
    let wider = limited(5, |job| job.spec.parallelism = Some(2));
    let told = steps_of(&wider, &[pod_of(0, "a", fails(5))]);
    assert_eq!(only(told, "create"), ["create 1 after 0/0"]);
}

#[test]
fn a_failed_index_is_not_made_again() {
    let job = limited(1, |job| job.spec.parallelism = Some(2));
    let pods = [pod_of(0, "a", |pod| {
        failed(pod);
        failed_before(pod, 1, 0);
    })];
    let told = steps_of(&job, &pods);
    assert_eq!(only(told.clone(), "create"), ["create 1 after 0/0", "create 2 after 0/0"]);
    assert_eq!(only(told, "status"), ["status 2/0/0 0+0 [|a] failed:0"]);
}
