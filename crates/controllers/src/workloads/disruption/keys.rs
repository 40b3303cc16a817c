//! Which budgets a change concerns.

use std::sync::Arc;

use coxswain_machinery::api::Object;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet, StatefulSet};
use coxswain_machinery::api::core::ReplicationController;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::framework::{KeyMap, Selecting, wake};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::{Key, pods};
use coxswain_machinery::wire::Raw;

/// A pod concerns every budget that selects it or, when it was relabeled, did. (The original tells one of them, of the present
/// labels.)
/// Differs: overlapping-budgets.
pub(super) fn of_pods(budgets: Selecting<PodDisruptionBudget>) -> KeyMap {
    wake::selecting(budgets, counts_alike)
}

/// Whether budgets count a pod as they did.
fn counts_alike(before: &Pod, now: &Pod) -> bool {
    before.is_ready() == now.is_ready()
        && before.metadata.is_deleting() == now.metadata.is_deleting()
        && before.metadata.uid == now.metadata.uid
        && before.metadata.controller() == now.metadata.controller()
}

/// How many pods an object is to have, and their template.
type Size<T> = fn(&T) -> (i32, &Raw);

/// An object that `counts` and is to have more pods than before concerns the budgets that select its template. It may be seen later than the
/// pods that it got, and a budget that counts more replicas allows less. One that is to have fewer concerns nobody before its
/// pods go: until then its budget would allow more.
pub(super) fn of_growth<T: Object>(
    budgets: Selecting<PodDisruptionBudget>,
    size: Size<T>,
    counts: fn(&T) -> bool,
) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (Some(old), Some(new)) = delta.typed::<T>() else { return };
        let (replicas, template) = size(new);
        if !counts(new) || size(old).0 >= replicas {
            return;
        }
        // A template that can't be read has no pods either.
        let Ok(labeled) = pods::template_metadata(template) else { return };
        let namespace = new.meta().namespace.clone();
        budgets.keys(&ObjectMeta { namespace, labels: labeled.labels, ..ObjectMeta::default() }, add);
    })
}

pub(super) fn size_of_deployment(deployment: &Deployment) -> (i32, &Raw) {
    (deployment.spec.replicas.unwrap_or(1), &deployment.spec.template)
}

pub(super) fn size_of_replica_set(set: &ReplicaSet) -> (i32, &Raw) {
    (set.spec.replicas.unwrap_or(1), &set.spec.template)
}

pub(super) fn size_of_stateful_set(set: &StatefulSet) -> (i32, &Raw) {
    (set.spec.replicas.unwrap_or(1), &set.spec.template)
}

pub(super) fn size_of_replication_controller(controller: &ReplicationController) -> (i32, &Raw) {
    (controller.spec.replicas.unwrap_or(1), &controller.spec.template)
}
