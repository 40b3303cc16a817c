//! Who limits what there may be in a namespace, so that controllers are refused what they want to make.

use serde_json::{Map, Value as Json, json};

use super::users::{NAMESPACES, edit};
use crate::invariants::KEEPSAKE;
use apiserver_model::dice::Dice;
use apiserver_model::{CPU, Deletion, Model, Place, Refusal, spelt};

/// What is limited, and to how much at least and at most. A pod asks for ten thousandths of a CPU.
const LIMITED: &[(&str, i64, i64)] = &[
    ("pods", 2, 20),
    (CPU, 20, 200),
    ("count/pods", 4, 30),
    ("count/replicasets.apps", 1, 8),
    ("count/jobs.batch", 1, 6),
    ("count/controllerrevisions.apps", 2, 10),
    ("persistentvolumeclaims", 0, 6),
    ("configmaps", 0, 4),
    ("secrets", 2, 10),
];
/// So many stay at a time in a namespace.
const NAMES: &[&str] = &["few", "fewer"];
/// More than anybody wants.
const ENOUGH: &str = "1000";

fn limits(dice: &mut Dice) -> Json {
    let mut hard = Map::new();
    for _ in 0..dice.within(1, 3) {
        let (name, least, most) = LIMITED[dice.below(LIMITED.len())];
        hard.insert(name.to_owned(), json!(spelt(name, dice.within(least, most))));
    }
    Json::Object(hard)
}

/// A quota is made, or says something else.
pub(super) fn set(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some((&namespace, &name)) = dice.pick(NAMESPACES).zip(dice.pick(NAMES)) else { return Ok(()) };
    let hard = limits(dice);
    let place = Place::new("resourcequotas", namespace, name);
    if model.get(&place).is_some() {
        return edit(model, &place, |quota| quota["spec"]["hard"] = hard);
    }
    let quota =
        json!({ "metadata": { "name": name, "annotations": { KEEPSAKE: name } }, "spec": { "hard": hard } });
    model.create("user", place.resource, namespace, quota).map(drop)
}

fn all(model: &Model) -> Vec<Place> {
    model.all("resourcequotas", "").map(|quota| quota.place.clone()).collect()
}

pub(super) fn delete(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&all(model)).cloned() else { return Ok(()) };
    model.delete("user", &place, &Deletion::default()).map(drop)
}

/// Nobody is limited any more: quotas go, or allow enough.
pub(super) fn relent(model: &mut Model, dice: &mut Dice) {
    for place in all(model) {
        if dice.permille(400) {
            drop(model.delete("user", &place, &Deletion::default()));
            continue;
        }
        drop(edit(model, &place, |quota| {
            for amount in quota["spec"]["hard"].as_object_mut().into_iter().flat_map(Map::values_mut) {
                *amount = json!(ENOUGH);
            }
        }));
    }
}
