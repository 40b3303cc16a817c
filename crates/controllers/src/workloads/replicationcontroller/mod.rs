//! ReplicationControllers: the predecessors of ReplicaSets, kept by the same room ([`super::replicaset`]).
//!
//! One is seen as the ReplicaSet that asks for the same. What differs is said here: the selector is a map of labels, no
//! pods but its own count when it is decided which are deleted, and its status tells of no terminating pods. See
//! "ReplicationController" in the Kubernetes documentation.
//!
//! There is no gate for what becomes of caches that lag, and the original makes pods again after five minutes without news.
//! Here a key waits for its pods to be seen without end, as that of a ReplicaSet does: a stalled watch makes no duplicates.

use std::sync::Arc;

use bytes::Bytes;

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::apps::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use coxswain_machinery::api::core::{PodTemplateSpec, ReplicationController, ReplicationControllerCondition};
use coxswain_machinery::api::kinds::REPLICATION_CONTROLLERS;
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, LoopSettings,
};
use coxswain_machinery::model::pods;
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Raw, WireError, path};

use super::replicaset::{self, Gates, Metrics, PodSet};

#[cfg(test)]
mod tests;

/// The ReplicationController controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "replicationcontroller-controller",
    aliases: &["replicationcontroller"],
    description: "Runs the desired number of Pods of each ReplicationController.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("replication-controller"),
    event_source: Some("replication-controller"),
    writes: &[
        Grant { group: "", resource: "replicationcontrollers", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "replicationcontrollers/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement), because pods block their owner's deletion.
        Grant { group: "", resource: "replicationcontrollers/finalizers", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch", "watch"] },
        Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
    ],
    build: Some(build),
};

/// Annotations of a template that no pod of it gets: they once told of init containers.
const NOT_COPIED: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
];

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let gates = Gates { deletion_cost: (build.gate)("PodDeletionCost"), terminating_replicas: false };
    let settings = LoopSettings {
        withholds_refused_creates: true,
        ..LoopSettings::with_workers(build.config.flags.concurrent_rc_syncs)
    };
    let metrics = Metrics::register(build.metrics)?;
    Ok(replicaset::keep::<ReplicationController>(build, "replicationmanager", settings, gates, metrics))
}

impl PodSet for ReplicationController {
    const KIND: &'static Kind = &REPLICATION_CONTROLLERS;
    const HAS_SIBLINGS: bool = false;

    fn as_replica_set(self: Arc<Self>) -> Result<Arc<ReplicaSet>, WireError> {
        let (spec, status) = (&self.spec, &self.status);
        let template = without_init_containers(&spec.template)?;
        Ok(Arc::new(ReplicaSet {
            metadata: self.metadata.clone(),
            spec: ReplicaSetSpec {
                replicas: spec.replicas,
                selector: LabelSelector { match_labels: spec.selector.clone(), ..LabelSelector::default() },
                template,
                min_ready_seconds: spec.min_ready_seconds,
            },
            status: ReplicaSetStatus {
                replicas: status.replicas,
                fully_labeled_replicas: status.fully_labeled_replicas,
                observed_generation: status.observed_generation,
                ready_replicas: status.ready_replicas,
                available_replicas: status.available_replicas,
                conditions: status.conditions.iter().map(condition).collect(),
                terminating_replicas: None,
            },
            raw: self.raw.clone(),
        }))
    }
}

fn condition(held: &ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        r#type: held.r#type.clone(),
        status: held.status.clone(),
        last_transition_time: held.last_transition_time,
        reason: held.reason.clone(),
        message: held.message.clone(),
    }
}

/// A template without the annotations that are [`NOT_COPIED`].
fn without_init_containers(template: &Raw) -> Result<Raw, WireError> {
    let annotations = pods::template_metadata(template)?.annotations;
    let held = NOT_COPIED.into_iter().filter(|name| annotations.get(name).is_some());
    let edits: Vec<Edit> = held
        .map(|name| Edit::MapRemove(path!(PodTemplateSpec, metadata.annotations), name.to_owned()))
        .collect();
    if edits.is_empty() {
        return Ok(template.clone());
    }
    Ok(Raw(Bytes::from(edit(&template.0, &edits)?)))
}
