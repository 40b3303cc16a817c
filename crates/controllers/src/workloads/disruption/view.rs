//! What a decision about one budget rests on, read from the stores and, of controllers that are not cached, live. Decides
//! nothing.

use std::sync::Arc;

use super::Controller;
use super::memory::Overlaps;
use super::replicas::Managed;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use coxswain_machinery::framework::{Observation, Reads};
use coxswain_machinery::informer::Awaited;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{IntOrString, Str};

/// A budget and what concerns it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) budget: Arc<PodDisruptionBudget>,
    /// The pods that it selects, by name; what is wrong with its selector if that is unusable.
    pub(super) pods: Result<Vec<Arc<Pod>>, String>,
    /// Entries of `disruptedPods` that the cache of pods is too old to judge.
    pub(super) unjudged: HashSet<Str>,
    /// The controllers of the pods, in their order; none where the budget does not ask for their replicas.
    pub(super) controllers: Vec<Managed>,
    /// The pods that other budgets select, too, of which this one is to speak.
    pub(super) overlaps: Overlaps,
    /// Those of them of which that was not said yet.
    pub(super) untold: Vec<Arc<Pod>>,
    /// What the first pass's plan met; empty on the first pass.
    pub(super) failures: Vec<Failure>,
}

pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure], read: &Reads) -> Observation<View> {
    let Some(budget) = room.budgets.get(key) else { return Observation::Nothing };
    // How far the cache of pods has come is looked up before the pods: they may be later than that, and not earlier.
    let unjudged = unjudged(room, key, &budget);
    let pods = selected(room, key, &budget.spec);
    let found = pods.as_deref().unwrap_or_default();
    let asked = if asks_for_replicas(&budget.spec) { found } else { &[] };
    let controllers = match room.sizes.of(asked, read) {
        Ok(controllers) => controllers,
        Err(needs) => return Observation::Needs(needs),
    };
    let shared = shared(room, key, found);
    let overlap = |pod: &Arc<Pod>| (pod.metadata.uid.clone(), pod.metadata.resource_version.clone());
    let overlaps = shared.iter().map(overlap).collect();
    let untold = shared.into_iter().filter(|pod| !room.told.has(key, &overlap(pod))).collect();
    let failures = failures.to_vec();
    Observation::View(View { budget, pods, unjudged, controllers, overlaps, untold, failures })
}

/// The entries of `disruptedPods` that may be of pods which the cache of pods has not seen, or not as they are.
fn unjudged(room: &Controller, key: &Key, budget: &PodDisruptionBudget) -> HashSet<Str> {
    let is_judged = |name: &Str| {
        let since = room.granted.since(key, name);
        since.is_some_and(|since| room.pods.store().shows(&Awaited::Version(since)))
    };
    let names = budget.status.disrupted_pods.iter().map(|(name, _)| name);
    names.filter(|name| !is_judged(name)).cloned().collect()
}

/// The pods that a budget selects, by name.
fn selected(room: &Controller, key: &Key, spec: &PodDisruptionBudgetSpec) -> Result<Vec<Arc<Pod>>, String> {
    let Some(selector) = spec.selector.as_deref() else { return Ok(Vec::new()) };
    let selector = Selector::compile(selector).map_err(|error| error.to_string())?;
    let mut pods = room.pods.select(&key.namespace, &selector);
    pods.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(pods)
}

/// Whether the replicas of controllers count, and not the pods.
pub(super) fn asks_for_replicas(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::Str(_)))
}

/// Those of the pods that other budgets select, too, if this is the first of them by name.
fn shared(room: &Controller, key: &Key, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    // Pods of one template have the same labels.
    let mut remembered = HashMap::<&[(Str, Str)], bool>::default();
    let mut shared = Vec::new();
    for pod in pods {
        let labels = pod.metadata.labels.as_slice();
        if *remembered.entry(labels).or_insert_with(|| speaks_of(room, key, pod)) {
            shared.push(Arc::clone(pod));
        }
    }
    shared
}

/// Whether several budgets select a pod, of which this is the first.
fn speaks_of(room: &Controller, key: &Key, pod: &Pod) -> bool {
    let (mut is_first, mut others) = (true, false);
    room.selecting.keys(&pod.metadata, &mut |other| {
        is_first &= *key <= other;
        others |= *key != other;
    });
    is_first && others
}
