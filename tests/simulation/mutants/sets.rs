//! Planted bugs of what keeps pods at a number.

use http::Method;
use serde_json::json;

use super::{change, delete_one_of, is};
use crate::invariants::{controller_of, is_active, partition};
use crate::model::http::Asked;
use crate::model::{Deletion, Model, Place, text};

pub(super) fn make_twice(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/replicationcontroller-controller") && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

pub(super) fn delete_one_more(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/replicationcontroller-controller") && is(asked, &Method::POST, "pods") {
        delete_one_of(model, by, asked, "ReplicationController");
    }
}

pub(super) fn make_twice_on_a_node(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/daemonset-controller") && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

/// With a daemon all that are made by the same.
pub(super) fn roll_all(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/daemonset-controller") && is(asked, &Method::DELETE, "pods") {
        for _ in 0..3 {
            delete_one_of(model, by, asked, "DaemonSet");
        }
    }
}

pub(super) fn go_beyond(controller: &str, asked: &mut Asked) {
    if controller == "statefulset-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if let Some((set, _)) = text(pod, "/metadata/name").rsplit_once('-') {
                pod["metadata"]["name"] = json!(format!("{set}-9"));
            }
        });
    }
}

/// Any pod of a StatefulSet, whatever its strategy says of it.
pub(super) fn pass_over_strategy(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/statefulset-controller") && is(asked, &Method::POST, "pods") {
        delete_one_of(model, by, asked, "StatefulSet");
    }
}

/// With a pod the one before it, which is to wait until that one is back.
pub(super) fn roll_two(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/statefulset-controller") || !is(asked, &Method::DELETE, "pods") {
        return;
    }
    let number =
        asked.name.rsplit_once('-').and_then(|(set, number)| Some((set, number.parse::<i64>().ok()?)));
    let Some((set, number)) = number else { return };
    if number > partition(model.look("statefulsets", &asked.namespace, set)) {
        let place = Place::new("pods", &asked.namespace, &format!("{set}-{}", number - 1));
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

/// With a pod all that are not held back.
pub(super) fn roll_replicas(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/statefulset-controller") || !is(asked, &Method::DELETE, "pods") {
        return;
    }
    let Some((set, _)) = asked.name.rsplit_once('-') else { return };
    let from = partition(model.look("statefulsets", &asked.namespace, set));
    for number in from..7 {
        let place = Place::new("pods", &asked.namespace, &format!("{set}-{number}"));
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

pub(super) fn forget_history(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/deployment-controller") || !is(asked, &Method::PUT, "replicasets") {
        return;
    }
    let sets = model.all("replicasets", &asked.namespace);
    let full = sets
        .filter(|set| set.json["spec"]["replicas"].as_i64() > Some(0))
        .map(|set| set.place.clone())
        .next();
    if let Some(place) = full {
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

/// A pod of another owner becomes a pod of the one whose pod is made.
pub(super) fn take_over(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/replicaset-controller") || !is(asked, &Method::POST, "pods") {
        return;
    }
    let pods = model.all("pods", &asked.namespace).filter(|pod| is_active(&pod.json));
    let owned: Vec<(Place, serde_json::Value)> = pods
        .filter(|pod| controller_of(&pod.json).is_object())
        .map(|pod| (pod.place.clone(), controller_of(&pod.json).clone()))
        .collect();
    let Some((_, owner)) = owned.first() else { return };
    if let Some((place, _)) = owned.iter().find(|(_, other)| other["uid"] != owner["uid"]) {
        change(model, by, place, |pod| pod["metadata"]["ownerReferences"] = json!([owner]));
    }
}

/// A pod of a ReplicaSet is deleted as if the ReplicaSet were gone.
pub(super) fn collect(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/replicaset-controller") else { return };
    if is(asked, &Method::POST, "pods") {
        delete_one_of(model, &format!("{manager}/garbage-collector-controller"), asked, "ReplicaSet");
    }
}
