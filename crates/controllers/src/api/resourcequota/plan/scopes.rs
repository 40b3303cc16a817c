//! Whether an object is in all the scopes of a quota. Each sort of object knows some scopes and is in none of the others, so
//! that a quota with scopes counts nothing of what knows none.

use std::collections::BTreeSet;

use super::super::view::View;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::{ResourceQuota, ScopeRequirement};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::wire::Str;

/// The scopes of a quota.
pub(super) struct Scopes<'a> {
    quota: &'a ResourceQuota,
    /// Whether `VolumeAttributesClass` is one.
    attributes_classes: bool,
}

impl<'a> Scopes<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        Self { quota: &view.quota, attributes_classes: view.gates.attributes_classes }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.quota.spec.scopes.is_empty() && self.requirements().next().is_none()
    }

    fn requirements(&self) -> impl Iterator<Item = &'a ScopeRequirement> {
        self.quota.spec.scope_selector.iter().flat_map(|selector| &selector.match_expressions)
    }

    pub(super) fn hold_pod(&self, pod: &Pod) -> bool {
        let charge = &pod.charge;
        let classes: BTreeSet<&Str> =
            [&charge.priority_class].into_iter().filter(|name| !name.is_empty()).collect();
        // Of the others, only that they are named matters.
        let is_in = |scope: &str, operator: &str, values: &[Str]| match scope {
            "Terminating" => charge.terminating,
            "NotTerminating" => !charge.terminating,
            "BestEffort" => !charge.asks,
            "NotBestEffort" => charge.asks,
            "CrossNamespacePodAffinity" => charge.crosses_namespaces,
            "PriorityClass" => is_selected(&classes, operator, values),
            _ => false,
        };
        self.hold(is_in)
    }

    pub(super) fn hold_volume_claim(&self, claim: &PersistentVolumeClaim) -> bool {
        let classes = volume_attributes_classes(claim);
        self.hold(|scope, operator, values| {
            self.attributes_classes
                && scope == "VolumeAttributesClass"
                && is_selected(&classes, operator, values)
        })
    }

    fn hold(&self, is_in: impl Fn(&str, &str, &[Str]) -> bool) -> bool {
        self.quota.spec.scopes.iter().all(|scope| is_in(scope, "Exists", &[]))
            && self.requirements().all(|held| is_in(&held.scope_name, &held.operator, &held.values))
    }
}

/// Whether one of the classes is selected, or their absence is.
fn is_selected(classes: &BTreeSet<&Str>, operator: &str, values: &[Str]) -> bool {
    // Linear: a claim has three classes at most, and administrators write quotas.
    match operator {
        "In" => classes.iter().any(|class| values.contains(class)),
        "NotIn" => classes.is_empty() || classes.iter().any(|class| !values.contains(class)),
        "Exists" => !classes.is_empty(),
        "DoesNotExist" => classes.is_empty(),
        _ => false,
    }
}

/// The classes of attributes that a claim's volume should have, has, or is about to have.
pub(in super::super) fn volume_attributes_classes(claim: &PersistentVolumeClaim) -> BTreeSet<&Str> {
    let change = claim.status.modify_volume_status.as_ref();
    let names = [
        Some(&claim.spec.volume_attributes_class_name),
        Some(&claim.status.current_volume_attributes_class_name),
        change.map(|change| &change.target_volume_attributes_class_name),
    ];
    names.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}
