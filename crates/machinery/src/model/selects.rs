//! Objects that select others of their namespace by labels, and how they are found by the labels of one. Pure.

use crate::api::apps::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use crate::api::batch::Job;
use crate::api::core::{ReplicationController, Service};
use crate::api::meta::{LabelSelector, ObjectMeta};
use crate::api::policy::PodDisruptionBudget;
use crate::api::{IndexKeys, Object};
use crate::wire::{Labels, Str};

use super::names::{is_label_key, is_label_value};

/// An object that selects others of its namespace by their labels.
pub trait Selects: Object {
    /// Whether it selects what has these labels. One whose selector is unusable selects nothing, nor does one whose selector is
    /// empty, where its kind does not say otherwise.
    fn selects(&self, labels: &Labels) -> bool;

    /// What everything that it selects has in common.
    fn common(&self) -> Common<'_>;
}

/// What everything that an object selects has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common<'a> {
    /// It selects nothing.
    Nothing,
    /// A label.
    Label(&'a Str, &'a Str),
    /// Nothing that an index could file by: it selects by expressions alone.
    Unknown,
}

impl Selects for Service {
    fn selects(&self, labels: &Labels) -> bool {
        has_all(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        last(&self.spec.selector).unwrap_or(Common::Nothing)
    }
}

impl Selects for ReplicaSet {
    fn selects(&self, labels: &Labels) -> bool {
        matches(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        common(&self.spec.selector)
    }
}

impl Selects for DaemonSet {
    fn selects(&self, labels: &Labels) -> bool {
        matches(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        common(&self.spec.selector)
    }
}

impl Selects for ReplicationController {
    fn selects(&self, labels: &Labels) -> bool {
        has_all(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        last(&self.spec.selector).unwrap_or(Common::Nothing)
    }
}

impl Selects for Job {
    fn selects(&self, labels: &Labels) -> bool {
        matches(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        common(&self.spec.selector)
    }
}

impl Selects for Deployment {
    fn selects(&self, labels: &Labels) -> bool {
        matches(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        common(&self.spec.selector)
    }
}

impl Selects for StatefulSet {
    fn selects(&self, labels: &Labels) -> bool {
        matches(&self.spec.selector, labels)
    }

    fn common(&self) -> Common<'_> {
        common(&self.spec.selector)
    }
}

/// One without a selector selects nothing, an empty selector everything.
impl Selects for PodDisruptionBudget {
    fn selects(&self, labels: &Labels) -> bool {
        let selector = self.spec.selector.as_deref();
        selector.is_some_and(|selector| is_empty(selector) || matches(selector, labels))
    }

    fn common(&self) -> Common<'_> {
        match self.spec.selector.as_deref() {
            None => Common::Nothing,
            Some(selector) if is_empty(selector) => Common::Unknown,
            Some(selector) => common(selector),
        }
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

/// Whether `labels` have all pairs of a selector that is not empty.
pub fn has_all(selector: &Labels, labels: &Labels) -> bool {
    !selector.is_empty() && selector.iter().all(|(label, value)| labels.get(label) == Some(value))
}

/// Whether a selector is usable and not empty, and selects what has these labels.
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let LabelSelector { match_labels, match_expressions } = selector;
    // Most miss by their labels, so the expressions are matched last.
    !is_empty(selector)
        && match_labels.iter().all(|(label, value)| labels.get(label) == Some(value))
        && match_labels.iter().all(|(label, value)| is_label_key(label) && is_label_value(value))
        && match_expressions.matches(labels)
}

/// What everything that a label selector selects has in common.
pub fn common(selector: &LabelSelector) -> Common<'_> {
    match last(&selector.match_labels) {
        Some(common) => common,
        None if selector.match_expressions.is_empty() => Common::Nothing,
        None => Common::Unknown,
    }
}

/// The last label: of several the last in the alphabet mostly tells more (`app`, `statefulset.kubernetes.io/pod-name`).
fn last(labels: &Labels) -> Option<Common<'_>> {
    labels.as_slice().last().map(|(label, value)| Common::Label(label, value))
}

/// The value under which an object of this namespace is filed that selects what has this label.
fn label_value(namespace: &str, label: &str, value: &str) -> Str {
    Str::from(format!("{namespace}/{label}={value}"))
}

/// The value under which those of a namespace are filed that select by expressions alone. No label is empty.
fn unknown_value(namespace: &str) -> Str {
    label_value(namespace, "", "")
}

/// The index function for objects of type `T`.
pub fn filed_under<T: Selects>(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(selecting) = any.downcast_ref::<T>() else { return IndexKeys::new() };
    let namespace = &object.meta().namespace;
    match selecting.common() {
        Common::Nothing => IndexKeys::new(),
        Common::Label(label, value) => IndexKeys::from_elem(label_value(namespace, label, value), 1),
        Common::Unknown => IndexKeys::from_elem(unknown_value(namespace), 1),
    }
}

/// The values under which all those are filed that may select an object with this metadata.
pub fn looked_up_under(meta: &ObjectMeta) -> impl Iterator<Item = Str> {
    let labels = meta.labels.iter().map(|(label, value)| label_value(&meta.namespace, label, value));
    labels.chain([unknown_value(&meta.namespace)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::api::AnyObject;
    use crate::api::kinds::REPLICA_SETS;
    use crate::api::meta::LabelSelectorRequirement;
    use crate::framework::Selecting;
    use crate::informer::Store;
    use crate::model::selector::{COMPILED, Selector};

    fn labels(pairs: &[(u8, u8)]) -> Labels {
        let text = |letter: char, number: &u8| Str::from(format!("{letter}{number}"));
        pairs.iter().map(|(label, value)| (text('l', label), text('v', value))).collect()
    }

    fn set(selector: LabelSelector) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        set.metadata.namespace = "ns".into();
        set.spec.selector = selector;
        set
    }

    #[test]
    fn what_selects_nothing_is_not_filed() {
        let filed = |set: ReplicaSet| filed_under::<ReplicaSet>(&set).to_vec();
        assert_eq!(filed(set(LabelSelector::default())), [""; 0]);
        let match_labels = labels(&[(1, 1), (2, 2)]);
        assert_eq!(filed(set(LabelSelector { match_labels, ..LabelSelector::default() })), ["ns/l2=v2"]);
        let exists = LabelSelectorRequirement {
            key: "l1".into(),
            operator: "Exists".into(),
            ..LabelSelectorRequirement::default()
        };
        let match_expressions = vec![exists].into();
        assert_eq!(filed(set(LabelSelector { match_expressions, ..LabelSelector::default() })), ["ns/="]);
        let mut service = Service::default();
        assert!(filed_under::<Service>(&service).is_empty() && !service.selects(&labels(&[(1, 1)])));
        service.spec.selector = labels(&[(1, 1)]);
        assert!(service.selects(&labels(&[(1, 1), (2, 1)])) && !service.selects(&labels(&[(1, 2)])));
    }

    #[test]
    fn a_budget_without_a_selector_selects_nothing_and_an_empty_one_everything() {
        let mut budget = PodDisruptionBudget::default();
        budget.metadata.namespace = "ns".into();
        assert!(
            filed_under::<PodDisruptionBudget>(&budget).is_empty() && !budget.selects(&labels(&[(1, 1)]))
        );
        budget.spec.selector = Some(Box::default());
        let filed = filed_under::<PodDisruptionBudget>(&budget);
        for pod in [&[][..], &[(1, 1)]].map(labels) {
            let meta = ObjectMeta { namespace: "ns".into(), labels: pod, ..ObjectMeta::default() };
            assert!(
                budget.selects(&meta.labels) && looked_up_under(&meta).any(|value| filed.contains(&value))
            );
        }
        let match_labels = labels(&[(1, 1)]);
        budget.spec.selector = Some(Box::new(LabelSelector { match_labels, ..LabelSelector::default() }));
        assert_eq!(filed_under::<PodDisruptionBudget>(&budget).to_vec(), ["ns/l1=v1"]);
        assert!(budget.selects(&labels(&[(1, 1), (2, 1)])) && !budget.selects(&labels(&[(1, 2)])));
    }

    #[test]
    fn a_selector_of_expressions_is_compiled_once_for_each_version_of_its_object() {
        let store = Arc::new(Store::new(&REPLICA_SETS));
        let selecting = Selecting::<ReplicaSet>::new(&store);
        let update = |version: &str| {
            let absent = |number: u8| LabelSelectorRequirement {
                key: Str::from(format!("a{number}")),
                operator: "DoesNotExist".into(),
                ..LabelSelectorRequirement::default()
            };
            let match_expressions = (0..100).map(absent).collect::<Vec<_>>().into();
            let mut held = set(LabelSelector { match_expressions, ..LabelSelector::default() });
            held.metadata.name = "web".into();
            held.metadata.resource_version = version.into();
            let held: AnyObject = Arc::new(held);
            store.upsert(&held);
        };
        let mut found = 0;
        let before = COMPILED.get();
        for version in ["1", "2"] {
            update(version);
            for pod in 0..50 {
                let labels = labels(&[(0, pod)]);
                let meta = ObjectMeta { namespace: "ns".into(), labels, ..ObjectMeta::default() };
                selecting.keys(&meta, &mut |_| found += 1);
            }
        }
        assert_eq!((found, COMPILED.get() - before), (100, 200));
    }

    proptest! {
        /// The index never misses one that selects.
        #[test]
        fn whatever_selects_is_found(
            selector in prop::collection::vec((0_u8..3, 0_u8..2), 0..3),
            expressions in prop::collection::vec((0_u8..3, 0_usize..4, 0_u8..2), 0..6),
            object in prop::collection::vec((0_u8..3, 0_u8..2), 0..4),
        ) {
            let match_expressions = expressions.iter().map(|(label, operator, value)| {
                let values = if *operator < 2 { vec![Str::from(format!("v{value}"))] } else { Vec::new() };
                let operator = ["In", "NotIn", "Exists", "DoesNotExist"][*operator].into();
                LabelSelectorRequirement { key: Str::from(format!("l{label}")), operator, values }
            });
            let match_expressions = match_expressions.collect::<Vec<_>>().into();
            let set = set(LabelSelector { match_labels: labels(&selector), match_expressions });
            let meta = ObjectMeta { namespace: "ns".into(), labels: labels(&object), ..ObjectMeta::default() };
            let compiled = Selector::compile(&set.spec.selector).unwrap();
            let selects = !compiled.is_empty() && compiled.matches(&meta.labels);
            prop_assert_eq!(set.selects(&meta.labels), selects);
            let any: AnyObject = Arc::new(set);
            let filed = filed_under::<ReplicaSet>(any.as_ref());
            prop_assert!(!selects || looked_up_under(&meta).any(|value| filed.contains(&value)));
        }
    }
}
