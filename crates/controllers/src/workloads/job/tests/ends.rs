//! How a Job ends.

use std::sync::Arc;
use std::time::Duration;

use super::fixtures::{
    ago, condition, deleting, exited, failed, failed_before, indexed, job, only, planned, pod, pod_of, steps,
    steps_of, succeeded, template, uncounted, view,
};
use coxswain_machinery::api::batch::{
    Job, OnExitCodes, OnPodCondition, PodFailurePolicy, PodFailurePolicyRule, SuccessPolicy,
    SuccessPolicyRule,
};
use coxswain_machinery::api::pod::{ContainerStatus, Pod, PodCondition};

/// The condition that a plan decides on first, and its reason.
fn decided(job: &Arc<Job>, pods: &[Arc<Pod>]) -> String {
    let status = only(steps_of(job, pods), "status").pop().unwrap_or_default();
    let is_decision =
        |word: &&str| word.starts_with("FailureTarget") || word.starts_with("SuccessCriteriaMet");
    status.split(' ').find(is_decision).unwrap_or_default().to_owned()
}

#[test]
fn the_first_reason_that_holds_is_the_end() {
    let fails = |name| pod(name, failed);
    let over_limit = |job: &mut Job| job.spec.backoff_limit = Some(1);
    let too_long = |job: &mut Job| job.spec.active_deadline_seconds = Some(100);
    let two = [fails("a"), fails("b")];
    assert_eq!(decided(&job(|_| {}), &two), "");
    assert_eq!(decided(&job(over_limit), &two), "FailureTarget(BackoffLimitExceeded)");
    assert_eq!(decided(&job(over_limit), &two[..1]), "", "as many as the limit are accepted");
    assert_eq!(decided(&job(too_long), &[]), "FailureTarget(DeadlineExceeded)");
    let both = |job: &mut Job| {
        over_limit(job);
        too_long(job);
    };
    assert_eq!(decided(&job(both), &two), "FailureTarget(BackoffLimitExceeded)");
    // What was decided stays, whatever else holds.
    let met = |job: &mut Job| {
        both(job);
        job.status.conditions = vec![condition("SuccessCriteriaMet", "True", "SuccessPolicy")];
    };
    assert_eq!(decided(&job(met), &two), "SuccessCriteriaMet(SuccessPolicy)");
    let target = |job: &mut Job| {
        both(job);
        job.status.conditions = vec![condition("FailureTarget", "True", "PodFailurePolicy")];
    };
    assert_eq!(decided(&job(target), &two), "FailureTarget(PodFailurePolicy)");
}

#[test]
fn what_waits_to_be_counted_counts_for_the_limit() {
    let counted = |failed_before: i32, waiting: &[&str]| {
        let job = job(|job| {
            job.spec.backoff_limit = Some(3);
            job.status.failed = failed_before;
            uncounted(job, &[], waiting);
        });
        !decided(&job, &[pod("a", failed), pod("b", failed)]).is_empty()
    };
    assert!(!counted(1, &["a", "b"]), "a pod that waits is counted once");
    assert!(!counted(0, &["a"]));
    assert!(counted(2, &["a"]));
    assert!(counted(1, &["gone", "a"]));
}

#[test]
fn job_deadline_is_a_deadline_of_the_plan_until_the_job_ends() {
    let with = |seconds| planned(&view(&job(|job| job.spec.active_deadline_seconds = seconds), &[])).deadline;
    assert_eq!(with(Some(150)), Some(Duration::from_secs(50)));
    assert_eq!((with(Some(100)), with(None)), (None, None));
}

#[test]
fn the_deadline_counts_from_the_start_and_not_while_suspended() {
    let with = |change: fn(&mut Job)| {
        job(|job| {
            job.spec.active_deadline_seconds = Some(150);
            change(job);
        })
    };
    let timer = |change: fn(&mut Job)| planned(&view(&with(change), &[])).requeue_after;
    assert_eq!(timer(|_| {}), Some(Duration::from_secs(50)));
    assert_eq!(timer(|job| job.status.start_time = None), Some(Duration::from_secs(150)));
    assert_eq!(timer(|job| job.spec.suspend = true), None);
    let late = with(|job| {
        job.spec.suspend = true;
        job.status.start_time = ago(1000);
    });
    assert_eq!(decided(&late, &[]), "");
    // One that is resumed starts anew.
    let resumed = with(|job| {
        job.status.start_time = ago(1000);
        job.status.conditions = vec![condition("Suspended", "True", "JobSuspended")];
    });
    assert_eq!(decided(&resumed, &[]), "");
}

#[test]
fn pods_that_restart_in_place_end_the_job_by_restarts() {
    let restarted = |count: i32, phase: &'static str| {
        pod(phase, move |pod: &mut Pod| {
            pod.status.phase = phase.into();
            pod.status.container_statuses =
                vec![ContainerStatus { restart_count: count, ..ContainerStatus::default() }];
            pod.status.init_container_statuses =
                std::iter::once(ContainerStatus { restart_count: 1, ..ContainerStatus::default() }).collect();
        })
    };
    let in_place = |limit: i32| {
        job(|job| {
            job.spec.template = template("OnFailure");
            job.spec.backoff_limit = Some(limit);
        })
    };
    let pods = [restarted(1, "Running"), restarted(2, "Pending")];
    assert_eq!(decided(&in_place(5), &pods), "FailureTarget(BackoffLimitExceeded)");
    assert_eq!(decided(&in_place(6), &pods), "");
    assert_eq!(decided(&in_place(0), &[pod("a", |_| {})]), "", "not without a restart");
    assert_eq!(decided(&in_place(0), &pods[..1]), "FailureTarget(BackoffLimitExceeded)");
    let never = job(|job| job.spec.backoff_limit = Some(1));
    assert_eq!(decided(&never, &pods), "", "others end by failed pods");
}

#[test]
fn pods_of_a_job_that_failed_go_and_count_as_failed() {
    let job = job(|job| job.spec.backoff_limit = Some(0));
    let pods = [pod("a", failed), pod("b", |_| {})];
    let decision = "0/0/1 0+0 [|a b] FailureTarget(BackoffLimitExceeded)";
    assert_eq!(
        steps_of(&job, &pods),
        [
            "delete b",
            &format!("status {decision}"),
            "untrack a",
            "untrack b",
            // It has not failed before that one is gone.
            "again 0/0/1 0+2 FailureTarget(BackoffLimitExceeded)",
        ]
    );
    assert_eq!(
        steps_of(&job, &pods[..1]),
        [
            "status 0/0/0 0+0 [|a] FailureTarget(BackoffLimitExceeded)",
            "untrack a",
            "again 0/0/0 0+1 FailureTarget(BackoffLimitExceeded) Failed(BackoffLimitExceeded)",
            "emit BackoffLimitExceeded",
        ]
    );
}

#[test]
fn enough_successes_complete_the_job_once_no_pod_runs() {
    let done = |name| pod(name, succeeded);
    let four = [done("a"), done("b"), done("c"), done("d")];
    let job_of = |completions| job(|job| job.spec.completions = completions);
    let told = steps_of(&job_of(Some(4)), &four);
    assert_eq!(
        only(told, "again"),
        ["again 0/0/0 4+0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached) ended"]
    );
    assert_eq!(decided(&job_of(Some(5)), &four), "");
    assert_eq!(decided(&job_of(None), &four), "SuccessCriteriaMet(CompletionsReached)");
    let with_another = [done("a"), pod("b", |_| {})];
    assert_eq!(decided(&job_of(None), &with_another), "", "one runs");
    // One that is on its way out holds up the end, and not the decision.
    let terminating = [done("a"), pod("b", deleting)];
    let strict = job(|job| {
        job.spec.completions = Some(1);
        job.spec.pod_replacement_policy = "Failed".into();
    });
    assert_eq!(
        only(steps_of(&strict, &terminating), "again"),
        ["again 0/0/1 1+0 SuccessCriteriaMet(CompletionsReached)"]
    );
    let too_many = steps_of(&job_of(Some(3)), &four);
    assert_eq!(only(too_many, "emit"), ["emit TooManySucceededPods", "emit Completed"]);
    let nothing = job(|job| job.spec.completions = Some(0));
    assert_eq!(
        steps_of(&nothing, &[]),
        [
            "status 0/0/0 0+0 SuccessCriteriaMet(CompletionsReached)",
            "again 0/0/0 0+0 SuccessCriteriaMet(CompletionsReached) Complete(CompletionsReached) ended",
            "emit Completed",
        ]
    );
}

fn rule(action: &str, change: impl FnOnce(&mut PodFailurePolicyRule)) -> PodFailurePolicyRule {
    let mut rule = PodFailurePolicyRule { action: action.into(), ..PodFailurePolicyRule::default() };
    change(&mut rule);
    rule
}

fn codes(operator: &str, values: &[i32]) -> OnExitCodes {
    OnExitCodes { container_name: None, operator: operator.into(), values: values.to_vec() }
}

fn with_rules(job: &mut Job, rules: Vec<PodFailurePolicyRule>) {
    job.spec.pod_failure_policy = Some(Box::new(PodFailurePolicy { rules }));
}

/// The policy decides on the pods, too, that run or are on their way out when the Job fails.
#[test]
fn failure_policy_of_a_failing_job_judges_pods_that_have_not_failed() {
    let disrupted = |pod: &mut Pod| {
        let condition = PodCondition {
            r#type: "DisruptionTarget".into(),
            status: "True".into(),
            ..PodCondition::default()
        };
        pod.status.conditions.push(condition);
    };
    // One of two containers has ended with a code that a rule names.
    let half = |pod: &mut Pod| {
        exited(pod, 7, 10);
        pod.status.phase = "Running".into();
    };
    for (action, failures) in [("Ignore", 1), ("Count", 2), ("FailJob", 2)] {
        let job = job(|job| {
            job.spec.backoff_limit = Some(0);
            let rules = vec![
                rule(action, |rule| {
                    rule.on_pod_conditions =
                        vec![OnPodCondition { r#type: "DisruptionTarget".into(), status: "True".into() }];
                }),
                rule(action, |rule| rule.on_exit_codes = Some(Box::new(codes("In", &[7])))),
            ];
            with_rules(job, rules);
        });
        let leaving = |pod: &mut Pod| {
            disrupted(pod);
            deleting(pod);
        };
        let sorts = [
            ("runs", pod("b", disrupted)),
            ("is being deleted", pod("b", leaving)),
            ("runs in part", pod("b", half)),
        ];
        for (what, other) in sorts {
            let plan = planned(&view(&job, &[pod("a", failed), Arc::clone(&other)]));
            assert_eq!(plan.note.items[0].actions, [action], "{action}: {what}");
            let steps = steps_of(&job, &[pod("a", failed), other]);
            let counted = steps.iter().find(|step| step.starts_with("again")).unwrap();
            assert!(counted.contains(&format!(" 0+{failures} ")), "{action}: {what}: {counted}");
            assert!(steps.contains(&"untrack b".to_owned()), "{action}: {what}: {steps:?}");
        }
        // Nothing is judged of a Job that goes on.
        let plan = planned(&view(&job, &[pod("b", disrupted)]));
        assert!(plan.note.items[0].actions.is_empty(), "{action}");
    }
}

#[test]
fn the_first_rule_that_matches_a_failed_pod_says_what_it_means() {
    let rules = || {
        vec![
            rule("Ignore", |rule| {
                rule.on_pod_conditions =
                    vec![OnPodCondition { r#type: "DisruptionTarget".into(), status: "True".into() }];
            }),
            rule("Count", |rule| rule.on_exit_codes = Some(Box::new(codes("In", &[3])))),
            rule("FailJob", |rule| {
                let mut codes = codes("NotIn", &[3, 4]);
                codes.container_name = Some("main".into());
                rule.on_exit_codes = Some(Box::new(codes));
            }),
        ]
    };
    let job = job(|job| with_rules(job, rules()));
    let says = |pod: &Arc<Pod>| {
        let plan = planned(&view(&job, std::slice::from_ref(pod)));
        let actions = plan.note.items[0].actions.join(" ");
        let message = plan.writes().find_map(|write| match &write.verb {
            coxswain_machinery::model::plan::Verb::Update(body) => {
                let job: Arc<Job> = super::fixtures::decoded(write.kind, body.to_vec());
                job.condition("FailureTarget").map(|held| held.message.to_string())
            }
            _ => None,
        });
        (actions, message.unwrap_or_default())
    };
    let exits = |code| pod("a", move |pod| exited(pod, code, 10_000));
    assert_eq!(says(&exits(3)), ("Count".into(), String::new()));
    assert_eq!(says(&exits(4)), (String::new(), String::new()), "no rule matches: it counts");
    let message = "Container main for pod default/a failed with exit code 5 matching FailJob rule at index 2";
    assert_eq!(says(&exits(5)), ("FailJob".into(), message.into()));
    let disrupted = pod("a", |pod| {
        exited(pod, 5, 10_000);
        let mut condition = super::fixtures::ready(true, ago(1));
        condition.r#type = "DisruptionTarget".into();
        pod.status.conditions = vec![condition];
    });
    assert_eq!(says(&disrupted), ("Ignore".into(), String::new()));
    // It is not counted, and loses its finalizer all the same.
    let told = steps_of(&job, &[disrupted]);
    assert_eq!(only(told.clone(), "untrack"), ["untrack a"]);
    assert_eq!(only(told, "status"), ["status 2/0/0 0+0"]);
}

#[test]
fn job_that_fails_for_a_reason_of_another_component_has_an_event_with_a_fixed_reason() {
    let target = job(|job| job.status.conditions = vec![condition("FailureTarget", "True", "MyReason")]);
    let told = steps_of(&target, &[]);
    assert_eq!(only(told.clone(), "emit"), ["emit Failed"]);
    assert!(told.iter().any(|line| line.contains(" Failed(MyReason)")), "{told:?}");
}

#[test]
fn a_rule_may_name_a_condition() {
    let broken = job(|job| {
        let pattern = OnPodCondition { r#type: "Broken".into(), status: "False".into() };
        with_rules(job, vec![rule("FailJob", |rule| rule.on_pod_conditions = vec![pattern])]);
    });
    let with = |status: &'static str| {
        pod("a", move |pod| {
            failed(pod);
            let mut condition = super::fixtures::ready(true, ago(1));
            condition.r#type = "Broken".into();
            condition.status = status.into();
            pod.status.conditions = vec![condition];
        })
    };
    assert_eq!(decided(&broken, &[with("True")]), "");
    assert_eq!(decided(&broken, &[with("False")]), "FailureTarget(PodFailurePolicy)");
}

fn limited(most: Option<i32>, told: &str, done: &str) -> Arc<Job> {
    indexed(|job| {
        job.spec.backoff_limit = Some(i32::MAX);
        job.spec.backoff_limit_per_index = Some(1);
        job.spec.max_failed_indexes = most;
        job.status.failed_indexes = Some(told.into());
        job.status.completed_indexes = done.into();
    })
}

#[test]
fn failed_indexes_end_a_job() {
    assert_eq!(decided(&limited(None, "0", "1"), &[]), "");
    assert_eq!(decided(&limited(None, "0", "1-3"), &[]), "FailureTarget(FailedIndexes)");
    assert_eq!(decided(&limited(Some(1), "0", ""), &[]), "");
    assert_eq!(decided(&limited(Some(1), "0,2", ""), &[]), "FailureTarget(MaxFailedIndexesExceeded)");
    let last = pod_of(3, "a", |pod| {
        failed(pod);
        failed_before(pod, 1, 0);
    });
    assert_eq!(decided(&limited(None, "", "0-2"), &[last]), "FailureTarget(FailedIndexes)");
    assert_eq!(decided(&limited(None, "", "0-3"), &[]), "SuccessCriteriaMet(CompletionsReached)");
}

#[test]
fn a_success_policy_ends_a_job_early() {
    let rules = |rules: &[(Option<&str>, Option<i32>)]| {
        let rules = rules.iter().map(|(indexes, count)| SuccessPolicyRule {
            succeeded_indexes: indexes.map(Into::into),
            succeeded_count: *count,
        });
        Some(Box::new(SuccessPolicy { rules: rules.collect() }))
    };
    for (policy, done, expected) in [
        (rules(&[(Some("0,3"), None)]), "0", false),
        (rules(&[(Some("0,3"), None)]), "0,3", true),
        (rules(&[(Some("0,3"), Some(1))]), "3", true),
        (rules(&[(Some("0,1"), Some(1))]), "3", false),
        (rules(&[(None, Some(2))]), "1", false),
        (rules(&[(None, Some(2))]), "1,2", true),
        (rules(&[(Some("7"), None)]), "1,2", false),
        (rules(&[(Some("7"), None), (None, Some(1))]), "1,2", true),
        (rules(&[(None, Some(0))]), "", false),
    ] {
        let job = indexed(|job| {
            job.spec.success_policy = policy.clone();
            job.status.completed_indexes = done.into();
        });
        let is_met = decided(&job, &[]) == "SuccessCriteriaMet(SuccessPolicy)";
        assert_eq!(is_met, expected, "{policy:?} {done}");
    }
}

#[test]
fn pods_that_go_after_a_success_do_not_count() {
    let job = indexed(|job| {
        job.spec.success_policy = Some(Box::new(SuccessPolicy {
            rules: vec![SuccessPolicyRule { succeeded_indexes: None, succeeded_count: Some(1) }],
        }));
    });
    let pods = [pod_of(0, "a", succeeded), pod_of(1, "b", |_| {})];
    assert_eq!(
        steps_of(&job, &pods),
        ["delete b", "status 0/0/1 1+0 done:0 SuccessCriteriaMet(SuccessPolicy)", "untrack a", "untrack b",]
    );
}

#[test]
fn a_job_that_has_ended_or_is_run_by_another_is_left_alone() {
    let pods = [pod("a", succeeded)];
    for change in [
        (|job| job.status.conditions = vec![condition("Failed", "True", "")]) as fn(&mut Job),
        |job| job.status.conditions = vec![condition("Complete", "True", "")],
        |job| job.spec.managed_by = "example.com/another".into(),
    ] {
        assert_eq!(steps_of(&job(change), &pods), [""; 0]);
    }
    let ours = job(|job| job.spec.managed_by = "kubernetes.io/job-controller".into());
    assert_ne!(steps_of(&ours, &pods), [""; 0]);
    let unknown = job(|job| job.spec.completion_mode = "Sorted".into());
    assert_eq!(steps(&view(&unknown, &pods)), ["emit UnknownCompletionMode"]);
}
