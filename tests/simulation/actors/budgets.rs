//! PodDisruptionBudgets, and who evicts pods against them.

use serde_json::json;

use super::users::{edit, workloads};
use crate::invariants::{EVICTION, KEEPSAKE, budget_of, is_healthy};
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, Refusal, Stored, text};

/// A workload gets a budget, or another one than it had.
pub(super) fn set(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    if !matches!(place.resource, "deployments" | "replicasets" | "statefulsets" | "replicationcontrollers") {
        return Ok(());
    }
    let least = dice.within(0, 4);
    let held = Place::new("poddisruptionbudgets", &place.namespace, &place.name);
    if model.get(&held).is_some() {
        return edit(model, &held, |budget| budget["spec"]["minAvailable"] = json!(least));
    }
    let budget = json!({
        "metadata": { "name": place.name, "annotations": { KEEPSAKE: place.name } },
        "spec": { "minAvailable": least, "selector": { "matchLabels": { "app": place.name } } },
    });
    model.create("user", held.resource, &held.namespace, budget).map(drop)
}

pub(super) fn delete(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let all: Vec<Place> = model.all("poddisruptionbudgets", "").map(|held| held.place.clone()).collect();
    let Some(place) = dice.pick(&all) else { return Ok(()) };
    model.delete("user", place, &Deletion::default()).map(drop)
}

/// An eviction of a healthy pod, as the API server decides it: by the budget's status alone.
pub(super) fn evict(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let guarded =
        |pod: &&std::sync::Arc<Stored>| is_healthy(&pod.json) && budget_of(model, &pod.json).is_some();
    let pods: Vec<_> = model.all("pods", "").filter(guarded).cloned().collect();
    let Some(pod) = dice.pick(&pods) else { return Ok(()) };
    let Some(budget) = budget_of(model, &pod.json).cloned() else { return Ok(()) };
    let status = &budget.json["status"];
    let is_known = status["observedGeneration"].as_i64() >= budget.json["metadata"]["generation"].as_i64();
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if !is_known || allowed <= 0 {
        return Err(Refusal::later(1));
    }
    let now = model.seconds().to_string();
    let name = pod.place.name.clone();
    let granted = |held: &serde_json::Value| {
        let mut budget = held.clone();
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        if !budget["status"]["disruptedPods"].is_object() {
            budget["status"]["disruptedPods"] = json!({});
        }
        budget["status"]["disruptedPods"][name.as_str()] = json!(now);
        Ok(budget)
    };
    model.update(EVICTION, &budget.place, "status", granted)?;
    // The API server may end between the two: the pod stays, and is waited for.
    if dice.permille(100) {
        return Ok(());
    }
    let uid = text(&pod.json, "/metadata/uid").to_owned();
    model.delete(EVICTION, &pod.place, &Deletion { uid, ..Deletion::default() }).map(drop)
}
