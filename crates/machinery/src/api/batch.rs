//! `batch/v1`, trimmed. Jobs and CronJobs are rewritten, so their bytes are kept in `raw`.

use super::core::{ObjectReference, PodTemplateSpec};
use super::kind::{ApiVersion, kinds, objects};
use super::meta::{LabelSelector, ObjectMeta};
use crate::wire::{Raw, Str, Time, Uid, message};

const BATCH: ApiVersion = ApiVersion { group: "batch", version: "v1" };

kinds! {
    /// Jobs.
    JOBS = BATCH.namespaced::<Job>("Job", "jobs");
    /// CronJobs.
    CRON_JOBS = BATCH.namespaced::<CronJob>("CronJob", "cronjobs");
}

objects! {
    Job + raw;
    CronJob + raw;
}

message! {
    schema SCHEMA;

    /// A Job.
    pub struct Job + raw = "k8s.io.api.batch.v1.Job" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: JobSpec,
        /// Observed state.
        3 => status: JobStatus,
    }

    /// Desired state of a Job.
    pub struct JobSpec = "k8s.io.api.batch.v1.JobSpec" {
        /// Pods that may run at the same time.
        1 => parallelism: Option<i32>,
        /// Pods that must succeed; any one if absent.
        2 => completions: Option<i32>,
        /// Seconds after its start when it fails.
        3 => active_deadline_seconds: Option<i64>,
        /// Which pods belong to it.
        4 => selector: LabelSelector,
        /// The pods' template, unparsed.
        6 => template: Raw as PodTemplateSpec,
        /// Failed pods that are accepted.
        7 => backoff_limit: Option<i32>,
        /// Seconds after its end when it is deleted.
        8 => ttl_seconds_after_finished: Option<i32>,
        /// `NonIndexed` or `Indexed`.
        9 => completion_mode: Str [interned],
        /// Whether no pods are to run.
        10 => suspend: bool,
        /// What the failure of a pod means.
        11 => pod_failure_policy: Option<Box<PodFailurePolicy>>,
        /// Failures of one index that are accepted.
        12 => backoff_limit_per_index: Option<i32>,
        /// Failed indexes that are accepted.
        13 => max_failed_indexes: Option<i32>,
        /// `TerminatingOrFailed` or `Failed`: when a pod is replaced.
        14 => pod_replacement_policy: Str [interned],
        /// Who runs it; the Job controller if empty.
        15 => managed_by: Str [interned],
        /// When it has succeeded before all indexes have.
        16 => success_policy: Option<Box<SuccessPolicy>>,
    }

    /// What the failure of a pod means: the first rule that matches.
    pub struct PodFailurePolicy = "k8s.io.api.batch.v1.PodFailurePolicy" {
        /// The rules.
        1 => rules: Vec<PodFailurePolicyRule>,
    }

    /// One rule about failed pods.
    pub struct PodFailurePolicyRule = "k8s.io.api.batch.v1.PodFailurePolicyRule" {
        /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
        1 => action: Str [interned],
        /// Exit codes that match.
        2 => on_exit_codes: Option<Box<OnExitCodes>>,
        /// Conditions that match.
        3 => on_pod_conditions: Vec<OnPodCondition>,
    }

    /// Exit codes that match a rule.
    pub struct OnExitCodes = "k8s.io.api.batch.v1.PodFailurePolicyOnExitCodesRequirement" {
        /// Name of the container; any if absent.
        1 => container_name: Option<Str> [interned],
        /// `In` or `NotIn`.
        2 => operator: Str [interned],
        /// The codes.
        3 => values: Vec<i32>,
    }

    /// A condition that matches a rule.
    pub struct OnPodCondition = "k8s.io.api.batch.v1.PodFailurePolicyOnPodConditionsPattern" {
        /// Its type.
        1 => r#type: Str [interned],
        /// Its status; `True` if empty.
        2 => status: Str [interned],
    }

    /// When an Indexed Job has succeeded early.
    pub struct SuccessPolicy = "k8s.io.api.batch.v1.SuccessPolicy" {
        /// Any of these suffices.
        1 => rules: Vec<SuccessPolicyRule>,
    }

    /// One rule about succeeded indexes.
    pub struct SuccessPolicyRule = "k8s.io.api.batch.v1.SuccessPolicyRule" {
        /// The indexes that count, see [`crate::model::indexes`].
        1 => succeeded_indexes: Option<Str>,
        /// How many of them must have succeeded.
        2 => succeeded_count: Option<i32>,
    }

    /// Observed state of a Job.
    pub struct JobStatus = "k8s.io.api.batch.v1.JobStatus" {
        /// Conditions.
        1 => conditions: Vec<JobCondition>,
        /// When it was started, or resumed, last.
        2 => start_time: Option<Time>,
        /// When it was complete.
        3 => completion_time: Option<Time>,
        /// Pods that run, or are about to.
        4 => active: i32,
        /// Pods that succeeded.
        5 => succeeded: i32,
        /// Pods that failed.
        6 => failed: i32,
        /// Indexes that succeeded, see [`crate::model::indexes`].
        7 => completed_indexes: Str,
        /// Ended pods that still have their finalizer.
        8 => uncounted_terminated_pods: Option<Box<UncountedTerminatedPods>>,
        /// Pods that are ready.
        9 => ready: Option<i32>,
        /// Indexes that failed.
        10 => failed_indexes: Option<Str>,
        /// Pods that are being deleted.
        11 => terminating: Option<i32>,
    }

    /// Ended pods that are not in the counters yet, by UID.
    pub struct UncountedTerminatedPods = "k8s.io.api.batch.v1.UncountedTerminatedPods" {
        /// Those that succeeded.
        1 => succeeded: Vec<Uid>,
        /// Those that failed.
        2 => failed: Vec<Uid>,
    }

    /// A condition of a Job.
    pub struct JobCondition = "k8s.io.api.batch.v1.JobCondition" {
        /// `Complete`, `Failed`, `Suspended` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When it was looked at last.
        3 => last_probe_time: Option<Time>,
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
        /// For people.
        6 => message: Str,
    }

    /// A CronJob.
    pub struct CronJob + raw = "k8s.io.api.batch.v1.CronJob" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: CronJobSpec,
        /// Observed state.
        3 => status: CronJobStatus,
    }

    /// Desired state of a CronJob.
    pub struct CronJobSpec = "k8s.io.api.batch.v1.CronJobSpec" {
        /// When Jobs are made.
        1 => schedule: Str,
        /// Seconds by which a Job may be late.
        2 => starting_deadline_seconds: Option<i64>,
        /// `Allow`, `Forbid` or `Replace`.
        3 => concurrency_policy: Str [interned],
        /// Whether no Jobs are made.
        4 => suspend: bool,
        /// The Jobs' template, unparsed.
        5 => job_template: Raw as JobTemplateSpec,
        /// Successful Jobs to keep.
        6 => successful_jobs_history_limit: Option<i32>,
        /// Failed Jobs to keep.
        7 => failed_jobs_history_limit: Option<i32>,
        /// The zone of `schedule`.
        8 => time_zone: Option<Str> [interned],
    }

    /// What Jobs of a CronJob are made from.
    pub struct JobTemplateSpec = "k8s.io.api.batch.v1.JobTemplateSpec" {
        /// Labels and annotations.
        1 => metadata: ObjectMeta,
        /// The Jobs' spec, unparsed.
        2 => spec: Raw as JobSpec,
    }

    /// Observed state of a CronJob.
    pub struct CronJobStatus = "k8s.io.api.batch.v1.CronJobStatus" {
        /// Jobs that run.
        1 => active: Vec<ObjectReference>,
        /// The activation of the Job made last.
        4 => last_schedule_time: Option<Time>,
        /// When a Job succeeded last.
        5 => last_successful_time: Option<Time>,
    }
}

impl Job {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&JobCondition> {
        self.status.conditions.iter().find(|condition| condition.r#type == kind)
    }

    /// The condition that tells its end, `Complete` or `Failed`, if it has ended. Since when it holds is when the Job ended.
    pub fn end(&self) -> Option<&JobCondition> {
        let tells_end = |condition: &&JobCondition| {
            (condition.r#type == "Complete" || condition.r#type == "Failed") && condition.status == "True"
        };
        self.status.conditions.iter().find(tells_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_true_complete_or_failed_is_an_end() {
        let condition = |kind: &str, status: &str| JobCondition {
            r#type: kind.into(),
            status: status.into(),
            ..JobCondition::default()
        };
        let end_of = |conditions: &[(&str, &str)]| {
            let conditions = conditions.iter().map(|(kind, status)| condition(kind, status)).collect();
            let job = Job { status: JobStatus { conditions, ..JobStatus::default() }, ..Job::default() };
            job.end().map(|end| end.r#type.to_string())
        };
        assert_eq!(end_of(&[]), None);
        assert_eq!(end_of(&[("FailureTarget", "True"), ("Suspended", "True")]), None);
        assert_eq!(end_of(&[("Complete", "False"), ("Failed", "Unknown")]), None);
        assert_eq!(end_of(&[("SuccessCriteriaMet", "True"), ("Complete", "True")]), Some("Complete".into()));
        assert_eq!(end_of(&[("Failed", "True")]), Some("Failed".into()));
    }
}
