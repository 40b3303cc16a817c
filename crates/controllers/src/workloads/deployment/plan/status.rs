//! The status: what the ReplicaSets' statuses add up to.

use super::super::view::View;
use super::draft::Draft;
use super::error::Unplannable;
use super::member::Member;
use super::{bytes, conditions};
use coxswain_machinery::api::apps::{DeploymentStatus, ReplicaSetStatus};
use coxswain_machinery::api::kinds::DEPLOYMENTS;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::{Plan, Step};

/// The status with counts, and with the condition that they make.
pub(super) fn calculated(draft: &Draft<'_>) -> DeploymentStatus {
    let sum = |count: fn(&ReplicaSetStatus) -> i32| {
        draft.members.iter().fold(0_i32, |sum, member| sum.saturating_add(count(&member.object.status)))
    };
    let available = sum(|status| status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: draft.view.deployment.metadata.generation,
        replicas: sum(|status| status.replicas),
        updated_replicas: draft.newest().map_or(0, |new| new.object.status.replicas),
        ready_replicas: sum(|status| status.ready_replicas),
        available_replicas: available,
        // While pods go, there may be more than are wanted.
        unavailable_replicas: draft.certain_total().saturating_sub(available).max(0),
        terminating_replicas: if draft.view.gates.terminating_replicas {
            terminating(&draft.members)
        } else {
            None
        },
        collision_count: draft.status.collision_count,
        conditions: draft.status.conditions.clone(),
    };
    let condition = if available >= draft.bounds.least_available() {
        let message = "Deployment has minimum availability.";
        conditions::new(conditions::AVAILABLE, "True", "MinimumReplicasAvailable", message.into(), draft.now)
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions::new(
            conditions::AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            message.into(),
            draft.now,
        )
    };
    conditions::set(&mut status, condition);
    status
}

/// Terminating pods; `None` if a ReplicaSet doesn't tell, except one that its controller has not seen yet.
fn terminating(members: &[Member]) -> Option<i32> {
    let mut sum = 0_i32;
    for status in members.iter().map(|member| &member.object.status) {
        match status.terminating_replicas {
            Some(count) => sum = sum.saturating_add(count),
            None if status.observed_generation == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// Whether `status` says that all pods are of the present template, available, and that there are no others.
pub(super) fn is_complete(view: &View, status: &DeploymentStatus) -> bool {
    let replicas = view.deployment.spec.replicas.unwrap_or(1);
    status.updated_replicas == replicas
        && status.replicas == replicas
        && status.available_replicas == replicas
        && status.observed_generation >= view.deployment.metadata.generation
}

/// A Deployment that selects everything gets nothing but a warning. (The API server lets none pass today.)
pub(super) fn refuse_to_select_all(view: &View) -> Result<Plan, Unplannable> {
    let deployment = &view.deployment;
    if !view.failures.is_empty() {
        return Ok(Plan::default());
    }
    let mut status = deployment.status.clone();
    status.observed_generation = status.observed_generation.max(deployment.metadata.generation);
    let mut steps = vec![Step::Emit(EventSpec {
        regarding: Regarding::of(&DEPLOYMENTS, &deployment.metadata),
        warning: true,
        reason: "SelectingAll",
        message: "This deployment is selecting all pods. A non-empty selector is required.".to_owned(),
    })];
    steps.extend(bytes::status_update(deployment, &status, None)?.map(Step::Write));
    Ok(Plan { steps, ..Plan::default() })
}
