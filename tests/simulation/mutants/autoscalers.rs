//! Planted bugs of autoscalers.

use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, is};
use crate::invariants::CONTROLLER;
use crate::run::SETTLES;
use apiserver_model::http::{Answer, Asked};
use apiserver_model::metrics::Reading;
use apiserver_model::{Model, Place, Refusal};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "an autoscaler goes beyond its bounds",
        breaks: "never outside of the bounds",
        send: go_beyond,
        ..NONE
    },
    Mutant {
        name: "an autoscaler that grows does so at once",
        breaks: "never faster than the policies",
        after: go_at_once,
        ..NONE
    },
    Mutant {
        name: "an autoscaler forgets what was asked for",
        breaks: "never against what was asked for lately",
        after: forget,
        ..NONE
    },
    Mutant { name: "an autoscaler only says that it scales", breaks: SETTLES, answer: only_say_so, ..NONE },
];

const AUTOSCALERS: &str = "horizontalpodautoscalers";

fn is_rescale(controller: &str, asked: &Asked) -> bool {
    controller == CONTROLLER && asked.method == Method::PUT && asked.is_of_scale()
}

/// A target gets more than its autoscaler allows.
fn go_beyond(controller: &str, asked: &mut Asked) {
    if is_rescale(controller, asked) {
        asked.edit(|scale| scale["spec"]["replicas"] = json!(9));
    }
}

/// How many replicas a metric asks for now, within bounds.
fn wanted(model: &Model, asked: &Asked) -> Option<i64> {
    let autoscaler = model.look(AUTOSCALERS, &asked.namespace, &asked.name);
    let bound = |name: &str| autoscaler["spec"][name].as_i64();
    let Reading::Value(usage) = model.metrics.get(&asked.namespace, &asked.name) else { return None };
    Some(((usage + 999) / 1000).clamp(bound("minReplicas")?, bound("maxReplicas")?))
}

/// A target that grows does so at once.
fn go_at_once(model: &mut Model, by: &str, asked: &Asked) {
    let controller = by.rsplit('/').next().unwrap_or_default();
    let Some(kind) = asked.kind.filter(|_| is_rescale(controller, asked)) else { return };
    let place = Place::new(kind.resource, &asked.namespace, &asked.name);
    if let Some(wanted) = wanted(model, asked) {
        scale(model, by, &place, |held| held.max(wanted));
    }
}

fn scale(model: &mut Model, by: &str, place: &Place, edit: impl FnOnce(i64) -> i64) {
    let scaled = |held: &Json| {
        let mut object = held.clone();
        object["spec"]["replicas"] = json!(edit(held["spec"]["replicas"].as_i64().unwrap_or(0)));
        Ok(object)
    };
    drop(model.update(by, place, "scale", scaled));
}

/// A target shrinks to what its metric asks for now, whatever it has asked for lately.
fn forget(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with(CONTROLLER) || !is(asked, &Method::PUT, AUTOSCALERS) {
        return;
    }
    if let Some(wanted) = wanted(model, asked) {
        let place = Place::new("deployments", &asked.namespace, &asked.name);
        scale(model, by, &place, |held| held.min(wanted));
    }
}

/// A target stays as it is although it is said to be scaled.
fn only_say_so(model: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    let mut read = asked.clone();
    read.method = Method::GET;
    is_rescale(controller, asked).then(|| model.answer(controller, &read))
}
