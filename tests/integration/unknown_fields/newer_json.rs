//! The newer API server, to whom JSON is spoken: puts unknown members into whatever it serves, and looks for them in whatever
//! is written.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::harness::Tamper;

/// The member of tomorrow.
const TOMORROW: &str = "tomorrow";
/// The objects of which each is tampered with, by pointers; those that are lists, in each item.
const PLACES: [&str; 12] = [
    "",
    "/metadata",
    "/metadata/ownerReferences",
    "/spec",
    "/spec/selector",
    "/spec/strategy",
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/spec",
    "/spec/template/spec/containers",
    "/spec/template/spec/initContainers",
    "/status",
];
const KINDS: [&str; 7] =
    ["ReplicaSet", "Deployment", "ServiceAccount", "Lease", "ConfigMap", "Secret", "ResourceQuota"];

/// See the module.
#[derive(Default)]
pub(super) struct NewerJson {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Writes that were checked, by method and what they write.
    checked: BTreeMap<String, usize>,
    lost: Vec<String>,
}

impl NewerJson {
    /// What was checked how often. Fails when a write has lost something.
    pub(super) fn checked(&self) -> BTreeMap<String, usize> {
        let state = self.state.lock();
        assert!(state.lost.is_empty(), "{}", state.lost.join("\n"));
        state.checked.clone()
    }
}

impl Tamper for NewerJson {
    fn json_request(&self, method: &Method, path: &str, body: &Value) {
        let kind = body["kind"].as_str().unwrap_or_default();
        let status = if path.ends_with("/status") { "/status" } else { "" };
        let lost = match *method {
            Method::PUT if KINDS.contains(&kind) => lost_of(body, kind, body),
            // What is made from a template has the template's.
            Method::POST if kind == "Pod" && body["metadata"].get("ownerReferences").is_some() => {
                let template = json!({ "spec": { "template": body } });
                lost_of(&template, "ReplicaSet", &body["metadata"]["ownerReferences"][0])
                    .into_iter()
                    .filter(|place| {
                        place.starts_with("/spec/template/spec") || place == "/spec/template/metadata"
                    })
                    .collect()
            }
            Method::POST if kind == "ReplicaSet" => {
                lost_of(body, "Deployment", &body["metadata"]["ownerReferences"][0])
                    .into_iter()
                    .filter(|place| place.starts_with("/spec/template"))
                    .collect()
            }
            _ => return,
        };
        let mut state = self.state.lock();
        *state.checked.entry(format!("{method} {kind}{status}")).or_default() += 1;
        if !lost.is_empty() {
            state.lost.push(format!("{method} {path}: {lost:?} of {body}"));
        }
    }

    fn json_answer(&self, mut body: Value) -> Value {
        let kind = body["kind"].as_str().unwrap_or_default().to_owned();
        match kind.strip_suffix("List") {
            Some(kind) => {
                let items = body["items"].as_array_mut().into_iter().flatten();
                items.for_each(|item| tamper(item, kind));
            }
            None => tamper(&mut body, &kind),
        }
        body
    }

    fn json_event(&self, mut event: Value) -> Value {
        let kind = event["object"]["kind"].as_str().unwrap_or_default().to_owned();
        tamper(&mut event["object"], &kind);
        event
    }
}

/// What stands in an object at a place, to be told from what stands anywhere else.
fn mark(kind: &str, place: &str) -> Value {
    json!({ "of": format!("{kind}{place}"), "is": [1.50, null, "<"] })
}

fn tamper(object: &mut Value, kind: &str) {
    if !KINDS.contains(&kind) {
        return;
    }
    for place in PLACES {
        let mark =
            |members: &mut Map<String, Value>| drop(members.insert(TOMORROW.to_owned(), mark(kind, place)));
        match object.pointer_mut(place) {
            Some(Value::Object(members)) => mark(members),
            Some(Value::Array(items)) => items.iter_mut().filter_map(Value::as_object_mut).for_each(mark),
            _ => {}
        }
    }
}

/// The places of `object` that lack what an object of this kind had there, if an API server has served it.
fn lost_of(object: &Value, kind: &str, served: &Value) -> Vec<String> {
    if served.get("uid").or(served["metadata"].get("uid")).is_none() {
        return Vec::new();
    }
    let has = |held: &Value, place: &str| {
        held.get(TOMORROW)
            .is_some_and(|found| found["of"] == mark(kind, place)["of"] && *found == mark(kind, place))
    };
    let lacks = |place: &&&str| match object.pointer(place) {
        Some(Value::Object(members)) => !has(&Value::Object(members.clone()), place),
        Some(Value::Array(items)) => !items.iter().all(|item| has(item, place)),
        _ => false,
    };
    PLACES.iter().filter(lacks).map(|place| (*place).to_owned()).collect()
}
