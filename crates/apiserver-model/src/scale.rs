//! The subresource `scale` of workloads: `autoscaling/v1`, in JSON. A write of it changes `spec.replicas` and nothing else.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use coxswain_machinery::api::Kind;

use super::http::Asked;
use super::{Model, PatchType, Place, Refusal, Stored};

/// Whether objects of a kind have one.
pub(super) fn has_scale(kind: &Kind) -> bool {
    matches!(
        (kind.group, kind.resource),
        ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers")
    )
}

/// What discovery says of it.
pub(super) fn subresources() -> Json {
    let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    json!([{ "subresource": "scale", "responseKind": kind, "verbs": ["get", "patch", "update"] }])
}

/// The scale of an object.
fn scale_of(stored: &Stored) -> Json {
    let Json::Object(spec) = &stored.json["spec"] else { return Json::Null };
    // The old kind has the labels where others have a selector.
    let labels = spec.get("selector").map(|selector| selector.get("matchLabels").unwrap_or(selector));
    let labels = labels.and_then(Json::as_object).into_iter().flatten();
    let labels: BTreeMap<&str, &str> =
        labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let metadata = &stored.json["metadata"];
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<String, Json> =
        kept.iter().map(|name| ((*name).to_owned(), metadata[*name].clone())).collect();
    let replicas = stored.json["status"]["replicas"].as_i64().unwrap_or(0);
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": { "replicas": stored.json["spec"]["replicas"] },
        "status": { "replicas": replicas, "selector": selector.join(",") },
    })
}

impl Model {
    /// Reads or writes a scale.
    pub(super) fn scale(&mut self, by: &str, kind: &'static Kind, asked: &Asked) -> Result<Json, Refusal> {
        let place = Place::new(kind.resource, &asked.namespace, &asked.name);
        let stored = match asked.method.as_str() {
            "GET" => self.get(&place).cloned().ok_or_else(|| Refusal::not_found(&place))?,
            "PUT" | "PATCH" => {
                let mut scale = asked.object(kind)?;
                if asked.method == http::Method::PATCH {
                    let held = self.get(&place).ok_or_else(|| Refusal::not_found(&place))?;
                    scale = PatchType::Merge.apply(&place, &scale_of(held), &scale)?;
                }
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
                if replicas < 0 {
                    return Err(Refusal::invalid(&place, "cannot have fewer replicas than none"));
                }
                self.update(by, &place, "scale", |held| {
                    let mut object = held.clone();
                    for checked in ["uid", "resourceVersion"] {
                        object["metadata"][checked] = scale["metadata"][checked].clone();
                    }
                    object["spec"]["replicas"] = json!(replicas);
                    Ok(object)
                })?
            }
            _ => {
                let why = format!("{} of scales is not modeled", asked.method);
                return Err(Refusal::new(405, "MethodNotAllowed", why));
            }
        };
        Ok(scale_of(&stored))
    }
}
