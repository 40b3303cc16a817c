//! Since which version of a budget each of its entries of `disruptedPods` is there. Decides nothing.
//!
//! An entry is made by an eviction, before the pod is deleted. Pods and budgets come by watches of their own, so the cache of
//! pods may show them as they were before: without the pod, if it is new, or with another one of its name that goes. Who drops
//! the entry then counts the pod as healthy when it is seen, and lets one go too many. So entries are judged only by a cache of
//! pods that has come as far as the budget had when the entry appeared. (Where pods and budgets are kept in stores of their own,
//! versions say nothing of each other. Then an entry goes as early as in the original, or with its two minutes at the latest.)

use parking_lot::Mutex;

use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// See the module. It knows budgets that have entries.
#[derive(Debug, Default)]
pub(super) struct Granted(Mutex<HashMap<Key, HashMap<Str, u64>>>);

impl Granted {
    /// A budget has become another one, as its cache tells.
    pub(super) fn note(&self, before: Option<&PodDisruptionBudget>, now: Option<&PodDisruptionBudget>) {
        let Some(latest) = now.or(before) else { return };
        let has_entries = |budget: Option<&PodDisruptionBudget>| {
            budget.is_some_and(|held| !held.status.disrupted_pods.is_empty())
        };
        if !has_entries(before) && !has_entries(now) {
            return;
        }
        let key = Key::of(&latest.metadata);
        let mut all = self.0.lock();
        let mut held = all.remove(&key).unwrap_or_default();
        let mut next = HashMap::default();
        for (name, time) in now.iter().flat_map(|budget| budget.status.disrupted_pods.iter()) {
            let stays = before.is_some_and(|before| before.status.disrupted_pods.get(name) == Some(time));
            // Of a version that is no number nothing can be known: the entry stays until its time is over.
            let since = held.remove(name).filter(|_| stays).or(latest.metadata.version());
            next.extend(since.map(|since| (name.clone(), since)));
        }
        if !next.is_empty() {
            all.insert(key, next);
        }
    }

    /// The version in which a budget has had this entry first, as far as is known.
    pub(super) fn since(&self, budget: &Key, pod: &str) -> Option<u64> {
        self.0.lock().get(budget)?.get(pod).copied()
    }
}
