//! What the Job's policies say: what the failure of a pod means, and when enough indexes have succeeded.

use coxswain_machinery::api::batch::{Job, OnExitCodes, PodFailurePolicy};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::indexes::IndexSet;

/// What the failure of a pod means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The Job fails, for this reason.
    FailJob(String),
    /// The pod's index fails.
    FailIndex,
    /// It is not counted.
    Ignore,
    /// It is counted.
    Count,
}

impl Action {
    /// As rules and metrics name it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::FailJob(_) => "FailJob",
            Self::FailIndex => "FailIndex",
            Self::Ignore => "Ignore",
            Self::Count => "Count",
        }
    }
}

/// What the first rule that matches a failed pod says; `None` if none does, and it is counted.
pub(super) fn action(job: &Job, pod: &Pod) -> Option<Action> {
    let policy: &PodFailurePolicy = job.spec.pod_failure_policy.as_deref()?;
    policy.rules.iter().enumerate().find_map(|(at, rule)| {
        let matched = match &rule.on_exit_codes {
            Some(codes) => by_exit_code(codes, pod),
            None => by_condition(rule, pod),
        }?;
        Some(match rule.action.as_str() {
            "FailJob" => Action::FailJob(format!("{matched} matching FailJob rule at index {at}")),
            "FailIndex" => Action::FailIndex,
            "Ignore" => Action::Ignore,
            _ => Action::Count,
        })
    })
}

/// Regular containers first, then init containers.
fn by_exit_code(codes: &OnExitCodes, pod: &Pod) -> Option<String> {
    let status = &pod.status;
    let statuses = status.container_statuses.iter().chain(status.init_container_statuses.iter());
    let mut failed = statuses.filter_map(|status| {
        let code = status.state.terminated.as_ref()?.exit_code;
        (code != 0).then_some((&status.name, code))
    });
    let is_named = |name| codes.container_name.as_ref().is_none_or(|wanted| wanted == name);
    // Linear: a rule has 255 codes at most.
    let is_listed = |code| codes.values.contains(&code);
    let matches = |code| match codes.operator.as_str() {
        "In" => is_listed(code),
        "NotIn" => !is_listed(code),
        _ => false,
    };
    let (container, code) = failed.find(|(name, code)| is_named(*name) && matches(*code))?;
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"))
}

fn by_condition(rule: &coxswain_machinery::api::batch::PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let is_wanted = |kind: &str, status: &str| {
        let same = |pattern: &coxswain_machinery::api::batch::OnPodCondition| {
            let wanted = if pattern.status.is_empty() { "True" } else { &pattern.status };
            pattern.r#type == kind && wanted == status
        };
        // Linear: a rule has 20 patterns at most.
        rule.on_pod_conditions.iter().any(same)
    };
    let held = pod.status.conditions.iter().find(|held| is_wanted(&held.r#type, &held.status))?;
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    Some(format!("Pod {namespace}/{name} has condition {}", held.r#type))
}

/// The first rule of the success policy that holds for the indexes that have succeeded.
pub(super) fn success(job: &Job, succeeded: &IndexSet, completions: u32) -> Option<usize> {
    let policy = job.spec.success_policy.as_deref()?;
    if succeeded.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| {
        let count = rule.succeeded_count.map(|count| u64::try_from(count).unwrap_or(0));
        match &rule.succeeded_indexes {
            Some(list) => {
                let wanted = IndexSet::parse(list, completions);
                let reached = wanted.intersection(succeeded).len();
                !wanted.is_empty() && reached >= count.unwrap_or(u64::MAX).min(wanted.len())
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    })
}
