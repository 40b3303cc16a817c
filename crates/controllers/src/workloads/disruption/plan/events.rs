//! What is told of a budget and of its pods.

use std::fmt::Write as _;

use super::super::view::{View, asks_for_replicas};
use super::count::{Count, Unknown, pod_of};
use coxswain_machinery::api::kinds::{POD_DISRUPTION_BUDGETS, PODS};
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{EventSpec, Regarding};

pub(super) fn of(view: &View, counted: &Result<Count, Unknown>) -> Vec<EventSpec> {
    let mut events: Vec<EventSpec> = view.untold.iter().map(|pod| overlap(view, pod)).collect();
    let pods = match &view.pods {
        Ok(pods) => pods,
        Err(error) => {
            events.push(on_budget(view, true, "NoPods", format!("Failed to get pods: {error}")));
            return events;
        }
    };
    if pods.is_empty() {
        events.push(on_budget(view, false, "NoPods", "No matching pods found".to_owned()));
    }
    match counted {
        Ok(count) => {
            let is_unmanaged = |pod: &Pod| pod.metadata.controller().is_none();
            if asks_for_replicas(&view.budget.spec) && pods.iter().any(|pod| is_unmanaged(pod)) {
                events.push(unmanaged(view));
            }
            let overdue = count.overdue.iter().filter_map(|name| pod_of(pods, name));
            events.extend(overdue.map(|pod| not_deleted(view, pod)));
        }
        Err(unknown) => {
            let message = format!("Failed to calculate the number of expected pods: {unknown}");
            events.push(on_budget(view, true, "CalculateExpectedPodCountFailed", message));
        }
    }
    events
}

/// Several budgets select a pod: the API server refuses to evict it.
fn overlap(view: &View, pod: &Pod) -> EventSpec {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let chosen = &view.budget.metadata.name;
    let message = format!(
        "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {chosen:?} arbitrarily."
    );
    on_pod(pod, "MultiplePodDisruptionBudgets", message)
}

/// Names the budget. kube-controller-manager writes the namespace in the place of the name.
/// Differs: budget-in-notdeleted.
fn not_deleted(view: &View, pod: &Pod) -> EventSpec {
    let (namespace, name) = (&view.budget.metadata.namespace, &view.budget.metadata.name);
    let message = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
    on_pod(pod, "NotDeleted", message)
}

fn unmanaged(view: &View) -> EventSpec {
    let selector = view.budget.spec.selector.as_deref().map(shown).unwrap_or_default();
    let message = format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status \
         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value."
    );
    on_budget(view, true, "UnmanagedPods", message)
}

/// A selector as the original writes it.
fn shown(selector: &LabelSelector) -> String {
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in selector.match_labels.iter() {
        let _ = write!(text, "{key}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for held in &selector.match_expressions {
        let values: Vec<&str> = held.values.iter().map(AsRef::as_ref).collect();
        let _ = write!(
            text,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            held.key,
            held.operator,
            values.join(" ")
        );
    }
    text.push_str("},}");
    text
}

fn on_budget(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    let regarding = Regarding::of(&POD_DISRUPTION_BUDGETS, &view.budget.metadata);
    EventSpec { regarding, warning, reason, message }
}

fn on_pod(pod: &Pod, reason: &'static str, message: String) -> EventSpec {
    EventSpec { regarding: Regarding::of(&PODS, &pod.metadata), warning: true, reason, message }
}
