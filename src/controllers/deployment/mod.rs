//! Deployments: one ReplicaSet per version of a pod template, and the passage from one version to the next.
//!
//! The room observes a Deployment with the ReplicaSets that it manages or could adopt ([`view`]), and decides on
//! adoption and release, on the sizes of the ReplicaSets, on the one to make for a new template, on those to forget and
//! on the status ([`plan`]). Which keys a change concerns:
//!
//! | change of | keys |
//! |---|---|
//! | a Deployment | its own |
//! | a ReplicaSet with a managing Deployment, its deletion included | that Deployment's |
//! | a ReplicaSet whose managing Deployment changed | the old and the new one's |
//! | a ReplicaSet without a controller that appeared, was relabelled or released | every Deployment's that selects it |
//! | a pod that is gone | the `Recreate` Deployment's that manages it through a ReplicaSet |
//!
//! What it rests on: a key is planned again only when the caches hold all that its last plan wrote. So each object is
//! written at most once per plan, from the bytes in the cache, and the Deployment itself last: what the original writes
//! to a Deployment in several updates of one pass (a condition, the revision, the counts) is one update here. After an
//! adoption the plan ends, since what was adopted can only be written once it is seen again.
//!
//! It never writes a Deployment's spec, never decodes a pod template's spec, never writes a pod, and reads nothing
//! live but the Deployment itself before an adoption.

use std::sync::Arc;

use jiff::Timestamp;

use crate::api::Kind;
use crate::api::apps::{Deployment, ReplicaSet};
use crate::api::core::Pod;
use crate::api::kinds::{DEPLOYMENTS, PODS, REPLICA_SETS};
use crate::api::meta::ObjectMeta;
use crate::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, ObserveError, Room, RoomAdapter,
    Watch,
};
use crate::informer::{Delta, Lister};
use crate::model::selector::Selector;
use crate::model::{Failure, Key, Plan};
use crate::options::Config;

mod cleanup;
mod conditions;
mod draft;
mod fenceposts;
mod plan;
mod recreate;
mod rolling;
mod scale;
mod status;
mod sync_new_rs;
#[cfg(test)]
mod tests;
mod view;
mod write;

use view::View;

/// What this room rolls out.
const KIND: &Kind = &DEPLOYMENTS;

/// The strategy that stops all old pods before it starts new ones.
const RECREATE: &str = "Recreate";
/// The strategy that replaces old pods by new ones little by little.
const ROLLING_UPDATE: &str = "RollingUpdate";

/// The Deployment controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "deployment-controller",
    aliases: &["deployment"],
    description: "Rolls a Deployment's pod template out, by way of one ReplicaSet per version of it.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("deployment-controller"),
    writes: &[
        Grant { group: "apps", resource: "deployments", verbs: &["get", "list", "watch"] },
        Grant { group: "apps", resource: "deployments/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): ReplicaSets block their owner's deletion.
        Grant { group: "apps", resource: "deployments/finalizers", verbs: &["update"] },
        Grant {
            group: "apps",
            resource: "replicasets",
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let deployments = Lister::new((build.store)(&DEPLOYMENTS, None));
    let replica_sets = Lister::new((build.store)(&REPLICA_SETS, None));
    let pods = Lister::new((build.store)(&PODS, None));
    let watches = vec![
        Watch { kind: &DEPLOYMENTS, field_selector: None, keys: deployment_keys() },
        Watch { kind: &REPLICA_SETS, field_selector: None, keys: replica_set_keys(deployments.clone()) },
        Watch {
            kind: &PODS,
            field_selector: None,
            keys: pod_keys(deployments.clone(), replica_sets.clone()),
        },
    ];
    let terminating_replicas = (build.gate)("DeploymentReplicaSetTerminatingReplicas");
    let room = Controller { deployments, replica_sets, pods, terminating_replicas };
    Ok(Built {
        loops: vec![Loop {
            queue: "deployment",
            workers: workers(build.config),
            watches,
            reconcile: Arc::new(RoomAdapter(room)),
        }],
    })
}

/// Deployments that are reconciled at the same time.
// WIRE: `config.flags.concurrent_deployment_syncs`, whose default this is, once `Config` holds the flags.
fn workers(_config: &Config) -> usize {
    5
}

/// The room: what it reads, and what is switched on.
struct Controller {
    deployments: Lister<Deployment>,
    replica_sets: Lister<ReplicaSet>,
    pods: Lister<Pod>,
    /// The gate `DeploymentReplicaSetTerminatingReplicas`.
    terminating_replicas: bool,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure]) -> Result<Option<View>, ObserveError> {
        view::observe(self, key, failures)
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }
}

fn deployment_keys() -> KeyMap {
    Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if let Some(deployment) = delta.latest() {
            emit(Key::of(deployment.meta()));
        }
    })
}

fn replica_set_keys(deployments: Lister<Deployment>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        // What is there at the start, and at a resync, is told of Deployments too, and each of those looks at its
        // ReplicaSets.
        if delta.initial || delta.resync {
            return;
        }
        let (old, new) = delta.typed::<ReplicaSet>();
        let owner_before = old.and_then(|set| set.metadata.controller());
        let owner_now = new.and_then(|set| set.metadata.controller());
        if let Some(old) = old
            && (new.is_none() || owner_before != owner_now)
        {
            managing_key(&deployments, &old.metadata).into_iter().for_each(&mut *emit);
        }
        let Some(new) = new else { return };
        if owner_now.is_some() {
            managing_key(&deployments, &new.metadata).into_iter().for_each(emit);
            return;
        }
        let relabelled = old.is_none_or(|old| old.metadata.labels != new.metadata.labels);
        if (relabelled || owner_before.is_some()) && !new.metadata.is_deleting() {
            for deployment in deployments.list_namespace(&new.metadata.namespace) {
                if selects(&deployment, new) {
                    emit(Key::of(&deployment.metadata));
                }
            }
        }
    })
}

fn pod_keys(deployments: Lister<Deployment>, replica_sets: Lister<ReplicaSet>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        let (Some(gone), None) = delta.typed::<Pod>() else { return };
        let Some(owner) = gone.metadata.controller().filter(|owner| owner.kind == REPLICA_SETS.kind) else {
            return;
        };
        let key = Key::new(gone.metadata.namespace.clone(), owner.name.clone());
        let replica_set = replica_sets.get(&key).filter(|found| found.metadata.uid == owner.uid);
        let key = replica_set.and_then(|set| managing_key(&deployments, &set.metadata));
        let recreates = |key: &Key| {
            deployments.get(key).is_some_and(|deployment| deployment.spec.strategy.r#type == RECREATE)
        };
        key.filter(recreates).into_iter().for_each(emit);
    })
}

/// The key of the Deployment that manages `replica_set`, if one does and we know it. One that we don't know yet brings
/// its own key when it arrives.
fn managing_key(deployments: &Lister<Deployment>, replica_set: &ObjectMeta) -> Option<Key> {
    let owner = replica_set.controller().filter(|owner| owner.kind == KIND.kind)?;
    let key = Key::new(replica_set.namespace.clone(), owner.name.clone());
    deployments.get(&key).filter(|found| found.metadata.uid == owner.uid)?;
    Some(key)
}

/// Whether the Deployment's selector is usable and selects the ReplicaSet.
fn selects(deployment: &Deployment, replica_set: &ReplicaSet) -> bool {
    Selector::compile(&deployment.spec.selector)
        .is_ok_and(|selector| !selector.is_empty() && selector.matches(&replica_set.metadata.labels))
}
