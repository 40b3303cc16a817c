//! Who has workloads scaled by metrics: autoscalers with workloads of their own, which other users leave alone, and metrics that
//! move, fail and say nothing.
//!
//! An autoscaler, its target and its metric bear the same name, and nothing else is scaled by that name. A metric's target is one
//! on average, so that it says itself how many replicas there are to be.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::Calm;
use super::users::{Act, act, edit};
use super::wishes::workload;
use crate::faults::Muted;
use crate::invariants::KEEPSAKE;
use crate::server::Server;
use apiserver_model::dice::Dice;
use apiserver_model::metrics::Reading;
use apiserver_model::{Deletion, Model, Place, Refusal};

const AUTOSCALERS: &str = "horizontalpodautoscalers";
const NAMESPACE: &str = "default";
/// What is scaled: kinds, resources and names.
const TARGETS: &[(&str, &str, &str)] = &[
    ("Deployment", "deployments", "auto-deployment"),
    ("StatefulSet", "statefulsets", "auto-stateful"),
    ("ReplicaSet", "replicasets", "auto-replicas"),
];

/// What happens, and how often.
pub(super) const ACTS: &[(u32, &str, Act)] = &[
    (12, "an autoscaler is created", create),
    (40, "a metric moves", move_metric),
    (6, "a metric fails", fail),
    (5, "an autoscaler is changed", alter),
    (4, "an autoscaled workload is scaled", scale),
    (1, "an autoscaler is deleted", delete),
    (1, "an autoscaled workload is deleted", delete_target),
];

/// Whether a workload is scaled here, so that others leave it alone.
pub(super) fn is_scaled(place: &Place) -> bool {
    TARGETS.iter().any(|(_, _, name)| place.namespace == NAMESPACE && place.name == *name)
}

/// Acts until it is calm. Then metrics rest.
pub(crate) async fn autoscalers(server: Arc<Server>, seed: u64, calm: Calm, muted: Muted) {
    let mut dice = Dice::new(seed, "autoscalers");
    let longest = *dice.pick(&[6_000, 15_000, 40_000]).unwrap_or(&15_000);
    server.with(|model| drop(create(model, &mut dice)));
    act(&server, &mut dice, ACTS, longest, &calm, &muted).await;
    server.with(|model| {
        for (_, _, name) in TARGETS {
            if !matches!(model.metrics.get(NAMESPACE, name), Reading::Value(_)) {
                model.metrics.set(NAMESPACE, name, Reading::Value(dice.within(0, 6000)));
            }
        }
    });
    std::future::pending::<()>().await;
}

fn of(dice: &mut Dice) -> (&'static str, Place) {
    let (kind, resource, name) = TARGETS[dice.below(TARGETS.len())];
    (kind, Place::new(resource, NAMESPACE, name))
}

fn of_autoscaler(dice: &mut Dice) -> Place {
    Place::new(AUTOSCALERS, NAMESPACE, &of(dice).1.name)
}

/// A target, where there is none, and an autoscaler for it.
fn create(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let (kind, target) = of(dice);
    let name = target.name.as_str();
    if model.get(&target).is_none() {
        let mut object = workload(target.resource, name, dice);
        object["spec"]["replicas"] = json!(dice.within(1, 4));
        model.create("user", target.resource, NAMESPACE, object)?;
    }
    model.metrics.set(NAMESPACE, name, Reading::Value(dice.within(500, 6000)));
    let metric =
        json!({ "metric": { "name": name }, "target": { "type": "AverageValue", "averageValue": "1" } });
    let mut autoscaler = json!({
        "metadata": { "name": name, "annotations": { KEEPSAKE: name } },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": name },
            "metrics": [{ "type": "External", "external": metric }],
        },
    });
    bound(&mut autoscaler, dice);
    behave(&mut autoscaler, dice);
    model.create("user", AUTOSCALERS, NAMESPACE, autoscaler).map(drop)
}

fn bound(autoscaler: &mut Json, dice: &mut Dice) {
    autoscaler["spec"]["minReplicas"] = json!(dice.within(1, 3));
    autoscaler["spec"]["maxReplicas"] = json!(dice.within(3, 8));
}

/// How fast it may go: as the flags say, or as it says itself.
fn behave(autoscaler: &mut Json, dice: &mut Dice) {
    if dice.permille(300) {
        autoscaler["spec"]["behavior"] = Json::Null;
        return;
    }
    let mut behavior = json!({});
    for way in ["scaleUp", "scaleDown"] {
        if dice.permille(750) {
            behavior[way] = rules(dice);
        }
    }
    autoscaler["spec"]["behavior"] = behavior;
}

fn rules(dice: &mut Dice) -> Json {
    let mut rules = json!({ "selectPolicy": dice.pick(&["Max", "Max", "Max", "Min", "Min", "Disabled"]) });
    if dice.permille(700) {
        rules["stabilizationWindowSeconds"] = json!(dice.pick(&[0, 0, 30, 90]));
    }
    if dice.permille(300) {
        rules["tolerance"] = json!(dice.pick(&["0", "50m", "250m"]));
    }
    let policies = (0..dice.within(1, 2)).map(|_| {
        let (kind, value) = if dice.permille(600) {
            ("Pods", dice.within(1, 3))
        } else {
            ("Percent", *dice.pick(&[25, 50, 100]).unwrap_or(&50))
        };
        json!({ "type": kind, "value": value, "periodSeconds": dice.pick(&[15, 40, 90]) })
    });
    rules["policies"] = policies.collect();
    rules
}

/// Somebody gives the metric of an autoscaler that there is another value, or takes it away.
fn measure(
    model: &mut Model,
    dice: &mut Dice,
    next: impl FnOnce(Reading, &mut Dice) -> Reading,
) -> Result<(), Refusal> {
    let place = of_autoscaler(dice);
    model.get(&place).ok_or_else(|| Refusal::not_found(&place))?;
    let reading = next(model.metrics.get(NAMESPACE, &place.name), dice);
    model.metrics.set(NAMESPACE, &place.name, reading);
    Ok(())
}

fn move_metric(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    measure(model, dice, |held, dice| match held {
        Reading::Value(value) if dice.permille(500) => {
            Reading::Value((value + dice.within(-1500, 1500)).max(0))
        }
        _ => Reading::Value(dice.within(0, 9000)),
    })
}

fn fail(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    measure(model, dice, |_, dice| if dice.permille(500) { Reading::Away } else { Reading::Empty })
}

fn alter(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let place = of_autoscaler(dice);
    let is_bound = dice.permille(500);
    edit(model, &place, |held| if is_bound { bound(held, dice) } else { behave(held, dice) })
}

fn scale(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let (_, place) = of(dice);
    let replicas = dice.within(0, 9);
    edit(model, &place, |held| held["spec"]["replicas"] = json!(replicas))
}

fn delete(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    model.delete("user", &of_autoscaler(dice), &Deletion::default()).map(drop)
}

fn delete_target(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let (_, place) = of(dice);
    let how = Deletion { propagation: "Background".to_owned(), ..Deletion::default() };
    model.delete("user", &place, &how).map(drop)
}
