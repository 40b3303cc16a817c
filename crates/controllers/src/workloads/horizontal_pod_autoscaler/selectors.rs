//! Which pods the target of each autoscaler selects, filed so that those who share pods are found without a look at all of them.
//! Decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// A namespace, and a label that all have that are selected; without one where they have none in common.
type Filed = (Str, Option<(Str, Str)>);

/// The selectors of all autoscalers, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    of: HashMap<Key, Arc<Selector>>,
    filed: HashMap<Filed, BTreeSet<Str>>,
}

impl Selectors {
    /// The target of an autoscaler selects this now.
    pub(super) fn set(&mut self, key: &Key, selector: &Arc<Selector>) {
        if self.of.get(key).is_some_and(|held| held == selector) {
            return;
        }
        self.remove(key);
        self.of.insert(key.clone(), Arc::clone(selector));
        self.filed.entry(filed(key, selector)).or_default().insert(key.name.clone());
    }

    /// An autoscaler selects nothing any more.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some(selector) = self.of.remove(key) else { return };
        let place = filed(key, &selector);
        if let Some(names) = self.filed.get_mut(&place) {
            names.remove(&key.name);
            if names.is_empty() {
                self.filed.remove(&place);
            }
        }
    }

    /// The names of the other autoscalers of the namespace that select some of `pods`.
    pub(super) fn sharers(&self, key: &Key, pods: &[Arc<Pod>]) -> Vec<Str> {
        let mut names = BTreeSet::new();
        let mut last = None;
        for labels in pods.iter().map(|pod| &pod.metadata.labels) {
            // Pods of one template have the same labels, and mostly come one after the other.
            if last.replace(labels) == Some(labels) {
                continue;
            }
            let common = labels.iter().map(|(label, value)| Some((label.clone(), value.clone())));
            for place in common.chain([None]) {
                let filed = self.filed.get(&(key.namespace.clone(), place));
                names.extend(filed.into_iter().flatten().filter(|name| {
                    let other = Key::new(key.namespace.clone(), (*name).clone());
                    other != *key && self.of.get(&other).is_some_and(|selector| selector.matches(labels))
                }));
            }
        }
        names.into_iter().cloned().collect()
    }
}

/// Where a selector is filed: under one label, for that is enough to find it by.
fn filed(key: &Key, selector: &Selector) -> Filed {
    let common = selector.common().last().map(|(label, value)| (label.clone(), value.clone()));
    (key.namespace.clone(), common)
}
