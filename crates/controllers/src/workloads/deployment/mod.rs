//! Deployments: a template of pods, rolled out step by step by way of ReplicaSets, one for each revision of the template.
//!
//! The room observes a Deployment with its ReplicaSets and those it could adopt ([`view`]), and decides on adoption and
//! release, on the ReplicaSet of the present template, on the sizes of all of them, on the history to keep and on the
//! status ([`plan`]). Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | a Deployment | its own |
//! | a ReplicaSet with a managing Deployment, its deletion included | that Deployment's |
//! | a ReplicaSet whose managing Deployment changed | the old and the new one's |
//! | a ReplicaSet without a controller that appeared, was relabeled or released | every Deployment's that selects it |
//! | a pod that is gone, of a ReplicaSet of a Deployment that recreates | that Deployment's |
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote.
//!
//! It never writes pods, never decodes a pod template's spec, and reads nothing live but the Deployment itself before an
//! adoption, and the ReplicaSet that bears the name of one it wanted to create.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::{DEPLOYMENTS, PODS, REPLICA_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, Selecting, Tries, wake,
};
use coxswain_machinery::informer::{Delta, Dependents, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::{Gates, RECREATE, View};

/// The Deployment controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "deployment-controller",
    aliases: &["deployment"],
    description: "Rolls out the template of a Deployment in steps by creating and scaling ReplicaSets.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("deployment-controller"),
    event_source: None,
    writes: &[
        Grant { group: "apps", resource: "deployments", verbs: &["get", "list", "update", "watch"] },
        Grant { group: "apps", resource: "deployments/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): ReplicaSets block their owner's deletion.
        Grant { group: "apps", resource: "deployments/finalizers", verbs: &["update"] },
        Grant {
            group: "apps",
            resource: "replicasets",
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Grant { group: "", resource: "pods", verbs: &["get", "list", "update", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let deployments = build.watch::<Deployment>(&DEPLOYMENTS);
    let replica_sets = build.watch::<ReplicaSet>(&REPLICA_SETS);
    let pods = build.watch::<Pod>(&PODS);
    let wake_ups = vec![
        deployments.wakes(wake::own()),
        replica_sets.wakes(replica_set_keys(deployments.lister(), deployments.selecting())),
        pods.wakes(pod_keys(deployments.lister(), replica_sets.lister())),
    ];
    let room = Controller {
        deployments: deployments.lister(),
        replica_sets: replica_sets.dependents(),
        pods: pods.dependents(),
        gates: Gates { terminating_replicas: (build.gate)("DeploymentReplicaSetTerminatingReplicas") },
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "deployment",
            kind: Some(&DEPLOYMENTS),
            settings: LoopSettings {
                tries: Some(Tries::USUAL),
                ..LoopSettings::with_workers(build.config.flags.concurrent_deployment_syncs)
            },
            wake_ups,
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads, and what is switched on.
struct Controller {
    deployments: Lister<Deployment>,
    /// ReplicaSets by their controller.
    replica_sets: Dependents<ReplicaSet>,
    /// Pods by their controller.
    pods: Dependents<Pod>,
    gates: Gates,
}

impl Room for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures, read)?.into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons::reasons(view, now)
    }
}

/// A ReplicaSet concerns the Deployment that manages it; one that nobody manages those that select it.
fn replica_set_keys(deployments: Lister<Deployment>, selecting: Selecting<Deployment>) -> KeyMap {
    wake::claiming(deployments, selecting, |_: &ReplicaSet, _| false)
}

/// A Deployment that recreates waits for the last of its old pods to have ended or to be gone. No ReplicaSet's status tells that of a
/// pod that is being deleted and that a finalizer holds, unless it counts terminating pods. kube-controller-manager waits for the
/// finalizer then.
fn pod_keys(deployments: Lister<Deployment>, replica_sets: Lister<ReplicaSet>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let pod = match delta.typed::<Pod>() {
            (Some(old), None) => old,
            (Some(old), Some(new)) if new.is_finished() && !old.is_finished() => new,
            _ => return,
        };
        let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == REPLICA_SETS.kind) else {
            return;
        };
        let set = replica_sets.get(&Key::new(pod.metadata.namespace.clone(), owner.name.clone()));
        let deployment = set
            .filter(|set| set.metadata.uid == owner.uid)
            .and_then(|set| wake::controller_key(&deployments, &set.metadata))
            .and_then(|key| deployments.get(&key))
            .filter(|deployment| deployment.spec.strategy.r#type == RECREATE);
        if let Some(deployment) = deployment {
            emit(Key::of(&deployment.metadata));
        }
    })
}
