//! How many pods the controllers of some pods should have: from the caches where they hold the controller, else by its scale.
//! Decides nothing.

use std::sync::Arc;

use crate::live_reads::{BUDGET_DISCOVERY, BUDGET_SCALE};
use coxswain_machinery::api::apps::{Deployment, ReplicaSet, StatefulSet};
use coxswain_machinery::api::core::ReplicationController;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::scales::{self, ScaleError, ScaleLookup, ScaleReads};
use coxswain_machinery::framework::{DeclaredRead, Reads};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, Uid};

/// The controllers that are cached, by which it is known how many pods they should have.
pub(super) struct Sizes {
    pub(super) deployments: Lister<Deployment>,
    pub(super) replica_sets: Lister<ReplicaSet>,
    pub(super) stateful_sets: Lister<StatefulSet>,
    pub(super) replication_controllers: Lister<ReplicationController>,
}

/// A controller of some pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Managed {
    /// The first of them.
    pub(super) pod: Str,
    /// How many it should have; `None` if it is gone.
    pub(super) replicas: Result<Option<i32>, ScaleError>,
}

const SCALE_READS: ScaleReads = ScaleReads { discovery: &BUDGET_DISCOVERY, scale: &BUDGET_SCALE };

impl Sizes {
    /// The controllers of `pods`, once each and in their order, as far as they have any; or what must still be read. A Deployment
    /// with several `ReplicaSets` is one.
    pub(super) fn of(&self, pods: &[Arc<Pod>], read: &Reads) -> Result<Vec<Managed>, Vec<DeclaredRead>> {
        let (mut seen, mut counted) = (HashSet::default(), HashSet::default());
        let (mut known, mut needs) = (Vec::new(), Vec::new());
        for pod in pods {
            let Some(reference) = pod.metadata.controller().filter(|owner| seen.insert(owner.uid.clone()))
            else {
                continue;
            };
            let key = Key::new(pod.metadata.namespace.clone(), reference.name.clone());
            let replicas = match self.cached(reference, &key) {
                Some((uid, replicas)) => {
                    if !counted.insert(uid) {
                        continue;
                    }
                    Ok(Some(replicas))
                }
                None => {
                    match scales::find(SCALE_READS, read, &reference.api_version, &reference.kind, &key) {
                        ScaleLookup::Needs(read) => {
                            needs.push(read);
                            continue;
                        }
                        // Another one of its name is not it.
                        ScaleLookup::Found(scale) => {
                            Ok((scale.metadata.uid == reference.uid).then_some(scale.spec.replicas))
                        }
                        ScaleLookup::Gone => Ok(None),
                        ScaleLookup::Failed(error) => Err(error),
                    }
                }
            };
            known.push(Managed { pod: pod.metadata.name.clone(), replicas });
        }
        if needs.is_empty() { Ok(known) } else { Err(needs) }
    }

    /// What the caches say: whose number it is, and the number. Of a `ReplicaSet` of a Deployment it is the Deployment's.
    fn cached(&self, reference: &OwnerReference, key: &Key) -> Option<(Uid, i32)> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_it = |meta: &ObjectMeta| meta.uid == reference.uid;
        match (group, reference.kind.as_str()) {
            ("", "ReplicationController") => {
                let found = self.replication_controllers.get(key).filter(|held| is_it(&held.metadata))?;
                Some((reference.uid.clone(), found.spec.replicas.unwrap_or(1)))
            }
            ("apps" | "extensions", "ReplicaSet") => {
                let found = self.replica_sets.get(key).filter(|held| is_it(&held.metadata))?;
                if !is_of_deployment(&found.metadata) {
                    return Some((reference.uid.clone(), found.spec.replicas.unwrap_or(1)));
                }
                let owner = found.metadata.controller()?;
                let key = Key::new(key.namespace.clone(), owner.name.clone());
                let deployment = self.deployments.get(&key).filter(|held| held.metadata.uid == owner.uid)?;
                Some((owner.uid.clone(), deployment.spec.replicas.unwrap_or(1)))
            }
            ("apps", "StatefulSet") => {
                let found = self.stateful_sets.get(key).filter(|held| is_it(&held.metadata))?;
                Some((reference.uid.clone(), found.spec.replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }
}

/// Whether the controller of a `ReplicaSet` is a Deployment.
pub(super) fn is_of_deployment(set: &ObjectMeta) -> bool {
    set.controller().is_some_and(|owner| owner.kind == "Deployment")
}
