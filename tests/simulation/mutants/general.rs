//! Planted bugs that concern no kind of object in particular.

use std::time::Duration;

use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, change, delete_one_of, is};
use crate::invariants::{KEEPSAKE, controller_of, is_active};
use crate::run::{ENDS, RESTS, SETTLES};
use apiserver_model::http::{Answer, Asked};
use apiserver_model::{Model, Place, Query, Refusal};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "what was not decoded is not written back",
        breaks: "what users have written stays",
        send: lose_annotation,
        ..NONE
    },
    Mutant {
        name: "finalizers of others are dropped",
        breaks: "a finalizer is dropped only by its own controller",
        after: drop_finalizers,
        ..NONE
    },
    Mutant { name: "the live look at an owner is skipped", breaks: SETTLES, answer: no_owner, ..NONE },
    Mutant {
        name: "a pod is taken for garbage that has its owner",
        breaks: "nothing is deleted that has an owner",
        after: collect,
        ..NONE
    },
    Mutant {
        name: "a namespace ends before what is in it",
        breaks: "nothing is deleted but what ends with its namespace",
        answer: seems_empty,
        ..NONE
    },
    Mutant {
        name: "writes go on after the Lease is lost",
        breaks: "only the leader writes",
        held_up: Duration::from_secs(45),
        ..NONE
    },
    Mutant { name: "deletions are not told to caches", breaks: SETTLES, deaf: true, ..NONE },
    Mutant {
        name: "with each renewal of the Lease something is written",
        breaks: RESTS,
        after: write_for_ever,
        ..NONE
    },
    Mutant { name: "a manager does not hear that it is to end", breaks: ENDS, stubborn: true, ..NONE },
    Mutant {
        name: "a pod is taken from its owner",
        breaks: "an owner is never taken from another",
        after: take_over,
        ..NONE
    },
];

fn lose_annotation(_: &str, asked: &mut Asked) {
    if asked.method == Method::PUT {
        asked.edit(|object| {
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.shift_remove(KEEPSAKE);
            }
        });
    }
}

fn drop_finalizers(model: &mut Model, by: &str, asked: &Asked) {
    if !(by.ends_with("garbage-collector-controller") && is(asked, &Method::DELETE, "pods")) {
        return;
    }
    let place = Place::new("pods", &asked.namespace, &asked.name);
    let without = |pod: &mut Json| {
        pod["metadata"]["finalizers"] = json!([]);
    };
    drop(model.change(by, &place, "", without));
}

fn no_owner(_: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    let is_look = asked.method == Method::GET && !asked.name.is_empty();
    let kind = asked.kind.filter(|_| is_look && controller == "garbage-collector-controller")?;
    matches!(kind.resource, "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "jobs")
        .then(|| Err(Refusal::not_found(&Place::new(kind.resource, &asked.namespace, &asked.name))))
}

fn seems_empty(model: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    let kind = asked.kind.filter(|_| controller == "namespace-controller" && asked.name.is_empty())?;
    if asked.is_watch || asked.namespace.is_empty() {
        return None;
    }
    let nothing = Query::new(kind, false, "nowhere", "", "");
    Some(model.list(&nothing, None, None).map(|list| Answer::Body(list, false)))
}

/// A namespace is touched again and again.
fn write_for_ever(model: &mut Model, by: &str, asked: &Asked) {
    if asked.name == "kube-controller-manager" && is(asked, &Method::PUT, "leases") {
        let touched =
            model.look("leases", &asked.namespace, &asked.name)["metadata"]["resourceVersion"].clone();
        change(model, by, &Place::new("namespaces", "", "kube-system"), |namespace| {
            namespace["metadata"]["annotations"] = json!({ "simulation/touched": touched });
        });
    }
}

/// A pod of another owner becomes a pod of the one whose pod is made.
fn take_over(model: &mut Model, by: &str, asked: &Asked) {
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
fn collect(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/replicaset-controller") else { return };
    if is(asked, &Method::POST, "pods") {
        delete_one_of(model, &format!("{manager}/garbage-collector-controller"), asked, "ReplicaSet");
    }
}
