//! Planted bugs of what keeps pods at a number.

use http::Method;
use serde_json::json;

use super::{Mutant, NONE, delete_one_of, is};
use crate::invariants::partition;
use crate::managers::rolls_several;
use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, Place, text};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "expectations are off: a pod is made twice",
        breaks: "replicaset-controller: never more pods than replicas",
        after: |model, by, asked| make_twice(model, by, asked, "replicaset-controller"),
        ..NONE
    },
    Mutant {
        name: "a pod too many is deleted",
        breaks: "replicaset-controller: no pod is deleted that is wanted",
        after: |model, by, asked| delete_one_more(model, by, asked, "replicaset-controller", "ReplicaSet"),
        ..NONE
    },
    Mutant {
        name: "a Deployment scales beyond its surge",
        breaks: "never more replicas than the Deployment and its surge",
        send: scale_beyond,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet starts with a later pod",
        breaks: "pods come one after the other",
        send: start_late,
        ..NONE
    },
    Mutant {
        name: "a ReplicationController makes a pod twice",
        breaks: "replicationcontroller-controller: never more pods than replicas",
        after: |model, by, asked| make_twice(model, by, asked, "replicationcontroller-controller"),
        ..NONE
    },
    Mutant {
        name: "a ReplicationController deletes a pod too many",
        breaks: "replicationcontroller-controller: no pod is deleted that is wanted",
        after: |model, by, asked| {
            delete_one_more(model, by, asked, "replicationcontroller-controller", "ReplicationController");
        },
        ..NONE
    },
    Mutant {
        name: "a StatefulSet makes a pod that nobody wants",
        breaks: "no pod beyond the replicas is made",
        send: go_beyond,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls what is held back",
        breaks: "what is held back is not rolled",
        after: pass_over_strategy,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls two pods at once",
        breaks: "pods are rolled one after the other",
        can_show: |seed| !rolls_several(seed),
        after: roll_two,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls more pods than may be missing",
        breaks: "no more replicas are missing than may be",
        can_show: rolls_several,
        after: roll_replicas,
        ..NONE
    },
    Mutant {
        name: "a DaemonSet makes a pod twice",
        breaks: "one pod on a node",
        after: |model, by, asked| make_twice(model, by, asked, "daemonset-controller"),
        ..NONE
    },
    Mutant {
        name: "a DaemonSet rolls too many pods",
        breaks: "no more daemons are missing than may be",
        after: roll_all,
        ..NONE
    },
    Mutant {
        name: "a ReplicaSet goes that has pods",
        breaks: "no ReplicaSet is deleted that has replicas",
        after: forget_history,
        ..NONE
    },
];

/// A controller makes each pod twice.
fn make_twice(model: &mut Model, by: &str, asked: &Asked, controller: &str) {
    if by.rsplit('/').next() == Some(controller) && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

/// A controller deletes a pod of an owner of this kind when it makes one.
fn delete_one_more(model: &mut Model, by: &str, asked: &Asked, controller: &str, kind: &str) {
    if by.rsplit('/').next() == Some(controller) && is(asked, &Method::POST, "pods") {
        delete_one_of(model, by, asked, kind);
    }
}

fn scale_beyond(controller: &str, asked: &mut Asked) {
    if controller == "deployment-controller"
        && is(asked, &Method::PUT, "replicasets")
        && asked.subresource.is_empty()
    {
        asked.edit(|set| {
            let replicas = set["spec"]["replicas"].as_i64().unwrap_or(0);
            set["spec"]["replicas"] = json!(if replicas > 0 { replicas + 3 } else { 0 });
        });
    }
}

fn start_late(controller: &str, asked: &mut Asked) {
    if controller == "statefulset-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if let Some(set) = text(pod, "/metadata/name").strip_suffix("-0") {
                pod["metadata"]["name"] = json!(format!("{set}-2"));
            }
        });
    }
}

/// With a daemon all that are made by the same.
fn roll_all(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/daemonset-controller") && is(asked, &Method::DELETE, "pods") {
        for _ in 0..3 {
            delete_one_of(model, by, asked, "DaemonSet");
        }
    }
}

fn go_beyond(controller: &str, asked: &mut Asked) {
    if controller == "statefulset-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if let Some((set, _)) = text(pod, "/metadata/name").rsplit_once('-') {
                pod["metadata"]["name"] = json!(format!("{set}-9"));
            }
        });
    }
}

/// Any pod of a StatefulSet, whatever its strategy says of it.
fn pass_over_strategy(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/statefulset-controller") && is(asked, &Method::POST, "pods") {
        delete_one_of(model, by, asked, "StatefulSet");
    }
}

/// With a pod the one before it, which is to wait until that one is back.
fn roll_two(model: &mut Model, by: &str, asked: &Asked) {
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
fn roll_replicas(model: &mut Model, by: &str, asked: &Asked) {
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

fn forget_history(model: &mut Model, by: &str, asked: &Asked) {
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
