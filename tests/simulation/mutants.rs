//! Planted bugs: switches by which a manager, as the API server sees it, breaks one rule. Each must be found.
//!
//! They change what is on the line, not the manager, so that the manager under test is always the one that ships.

use std::time::Duration;

use http::Method;
use serde_json::{Value as Json, json};

use crate::invariants::{KEEPSAKE, controller_of, is_active};
use crate::model::http::{Answer, Asked};
use crate::model::{Deletion, Model, Place, Query, Refusal, items, text};

/// A planted bug.
#[derive(Clone, Copy)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// Changes a request of this controller before it arrives.
    send: fn(&str, &mut Asked),
    /// Answers in the server's place.
    answer: fn(&mut Model, &str, &Asked) -> Option<Result<Answer, Refusal>>,
    /// Does something more, in the same name.
    after: fn(&mut Model, &str, &Asked),
    /// For how long writes hang that arrive in the end.
    pub(crate) held_up: Duration,
    /// Whether nobody is told of deletions.
    pub(crate) deaf: bool,
}

const NONE: Mutant = Mutant {
    name: "",
    send: |_, _| {},
    answer: |_, _, _| None,
    after: |_, _, _| {},
    held_up: Duration::ZERO,
    deaf: false,
};

/// All of them.
pub(crate) static MUTANTS: &[Mutant] = &[
    Mutant { name: "expectations are off: a pod is made twice", after: make_twice, ..NONE },
    Mutant { name: "a pod too many is deleted", after: delete_one_more, ..NONE },
    Mutant { name: "a Deployment scales beyond its surge", send: scale_beyond, ..NONE },
    Mutant { name: "a StatefulSet starts with a later pod", send: start_late, ..NONE },
    Mutant { name: "a Job counts a success twice", send: count_twice, ..NONE },
    Mutant { name: "what was not decoded is not written back", send: lose_annotation, ..NONE },
    Mutant { name: "finalizers of others are dropped", after: drop_finalizers, ..NONE },
    Mutant { name: "the live look at an owner is skipped", answer: no_owner, ..NONE },
    Mutant { name: "a namespace ends before what is in it", answer: seems_empty, ..NONE },
    Mutant { name: "writes go on after the Lease is lost", held_up: Duration::from_secs(45), ..NONE },
    Mutant { name: "deletions are not told to caches", deaf: true, ..NONE },
    Mutant { name: "all nodes get the same range of addresses", send: same_range, ..NONE },
    Mutant { name: "a node that lives is given up", after: give_up, ..NONE },
    Mutant { name: "pods leave a node as soon as it is tainted", after: drive_away, ..NONE },
];

impl Mutant {
    pub(crate) fn send(&self, controller: &str, asked: &mut Asked) {
        (self.send)(controller, asked);
    }

    pub(crate) fn answer(
        &self,
        model: &mut Model,
        controller: &str,
        asked: &Asked,
    ) -> Option<Result<Answer, Refusal>> {
        (self.answer)(model, controller, asked)
    }

    pub(crate) fn after(&self, model: &mut Model, by: &str, asked: &Asked) {
        (self.after)(model, by, asked);
    }
}

fn is(asked: &Asked, method: &Method, resource: &str) -> bool {
    asked.method == *method && asked.kind.is_some_and(|kind| kind.resource == resource)
}

fn make_twice(model: &mut Model, by: &str, asked: &Asked) {
    let is_set = by.ends_with("replicaset-controller") || by.ends_with("daemonset-controller");
    if is_set && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

fn delete_one_more(model: &mut Model, by: &str, asked: &Asked) {
    if !(by.ends_with("/replicaset-controller") && is(asked, &Method::POST, "pods")) {
        return;
    }
    let own = |pod: &&std::sync::Arc<crate::model::Stored>| {
        is_active(&pod.json) && text(controller_of(&pod.json), "/kind") == "ReplicaSet"
    };
    let place = model.all("pods", &asked.namespace).find(own).map(|pod| pod.place.clone());
    if let Some(place) = place {
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

fn same_range(controller: &str, asked: &mut Asked) {
    if controller == "node-ipam-controller" && is(asked, &Method::PATCH, "nodes") {
        let range = "10.128.0.0/26";
        let patch = json!({ "spec": { "podCIDR": range, "podCIDRs": [range] } });
        asked.body = patch.to_string().into();
    }
}

fn give_up(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-ipam-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let tainted = |held: &Json| {
        let mut node = held.clone();
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
        Ok(node)
    };
    let place = Place::new("nodes", "", &asked.name);
    drop(model.update(&format!("{manager}/node-lifecycle-controller"), &place, "", tainted));
}

fn drive_away(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-lifecycle-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes")
        || items(model.look("nodes", "", &asked.name), "/spec/taints").is_empty()
    {
        return;
    }
    let tolerates = |pod: &&std::sync::Arc<crate::model::Stored>| {
        text(&pod.json, "/spec/nodeName") == asked.name && is_active(&pod.json)
    };
    let places: Vec<Place> = model.all("pods", "").filter(tolerates).map(|pod| pod.place.clone()).collect();
    for place in places {
        drop(model.delete(&format!("{manager}/taint-eviction-controller"), &place, &Deletion::default()));
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

fn count_twice(controller: &str, asked: &mut Asked) {
    if controller == "job-controller" && is(asked, &Method::PUT, "jobs") {
        asked.edit(|job| {
            if let Some(count) = job["status"]["succeeded"].as_i64().filter(|count| *count > 0) {
                job["status"]["succeeded"] = json!(count + 1);
            }
        });
    }
}

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
    let without = |held: &Json| {
        let mut pod = held.clone();
        pod["metadata"]["finalizers"] = json!([]);
        Ok(pod)
    };
    drop(model.update(by, &place, "", without));
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
