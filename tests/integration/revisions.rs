//! The document of a ControllerRevision holds the API's JSON of its template. The API server tells that JSON of every PodTemplate,
//! so it is the judge of every field that a template may have, the alpha ones included.

use std::collections::BTreeSet;

use bytes::Bytes;
use coxswain_machinery::model::revisions::{Numbers, TemplateDocument, template_of};
use coxswain_machinery::model::template::shapes::{self, Holds, Shape};
use coxswain_machinery::wire::{Reader, unwrap_envelope};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::harness::ControlPlane;

const TEMPLATES: &str = include_str!("../data/templates.yaml");
/// Field of a PodTemplate that holds the template.
const TEMPLATE: u32 = 2;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The bytes of a PodTemplate as the API server tells them to who accepts this.
async fn told(client: &kube::Client, path: &str, accepts: &str) -> Bytes {
    let request = http::Request::get(path).header("Accept", accepts).body(kube::client::Body::empty());
    let answer = client.send(request.expect("a request")).await.expect("an answer");
    assert_eq!(answer.status(), 200, "{path}");
    answer.into_body().collect().await.expect("a body").to_bytes()
}

/// The template in an encoded PodTemplate.
fn template(object: &Bytes) -> Vec<u8> {
    let object = unwrap_envelope(object).expect("an envelope");
    let mut fields = Reader::new(&object);
    while let Some((number, value)) = fields.next_field().expect("an object") {
        if number == TEMPLATE {
            return value.bytes().expect("a message").to_vec();
        }
    }
    panic!("there is no template");
}

/// With the members of each object in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, member)| (name.clone(), sorted(member))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// JSON as revisions have it: members in order, and what means something in HTML or ends a line in JavaScript escaped.
fn canonical(value: &Value) -> String {
    let escapes = [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ];
    escapes.iter().fold(sorted(value).to_string(), |text, (plain, escaped)| text.replace(plain, escaped))
}

/// Notes which fields of a message are members of its JSON.
fn note(value: &Value, shape: &'static Shape, seen: &mut BTreeSet<(&'static str, &'static str)>) {
    for field in shape.fields {
        if let Holds::Flattened(inner) = field.holds {
            seen.insert((shape.name, field.name));
            note(value, inner, seen);
        } else if let Some(member) = value.get(field.name) {
            seen.insert((shape.name, field.name));
            match (field.holds, member) {
                (Holds::Message(inner), member) => note(member, inner, seen),
                (Holds::Messages(inner), Value::Array(items)) => {
                    for item in items {
                        note(item, inner, seen);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Fields that no template has: the API server refuses ephemeral containers in one.
fn is_refused(message: &str, field: &str) -> bool {
    message.starts_with("EphemeralContainer") || (message, field) == ("PodSpec", "ephemeralContainers")
}

#[tokio::test]
async fn documents_hold_the_api_servers_json_of_every_field() {
    let plane = ControlPlane::gated();
    let namespace = plane.cluster().await.namespace("documents").await;
    let templates: Vec<Value> = serde_yaml_ng::from_str(TEMPLATES).expect("YAML");
    let mut seen = BTreeSet::new();
    for (number, wanted) in templates.into_iter().enumerate() {
        let name = format!("template-{number}");
        let object = json!({ "metadata": { "name": name }, "template": wanted });
        let path = format!("/api/v1/namespaces/{}/podtemplates", namespace.name);
        let body = serde_json::to_vec(&object).expect("JSON");
        let request = http::Request::post(&path).header("Content-Type", "application/json").body(body);
        let created: Result<Value, _> = namespace.client.request(request.expect("a request")).await;
        created.unwrap_or_else(|error| panic!("{name}: {error}"));

        let path = format!("{path}/{name}");
        let told_json: Value =
            serde_json::from_slice(&told(&namespace.client, &path, "application/json").await).expect("JSON");
        let encoded = template(&told(&namespace.client, &path, PROTOBUF).await);
        let mut expected = told_json["template"].clone();
        note(&expected, shapes::POD_TEMPLATE, &mut seen);
        expected["$patch"] = json!("replace");
        let expected = canonical(&json!({ "spec": { "template": expected } }));
        let document = TemplateDocument::of(&encoded, Numbers::Exact).expect("a document");
        assert_eq!(document.as_str(), expected, "{name}");
        // And back: the template in a revision is the one that was written.
        let back = template_of(document.as_bytes()).expect("a template");
        let again = TemplateDocument::of(&back, Numbers::Exact).expect("a document");
        assert_eq!(again, document, "{name}");
    }
    let fields =
        shapes::ALL.iter().flat_map(|shape| shape.fields.iter().map(|field| (shape.name, field.name)));
    let unseen: Vec<_> = fields
        .filter(|(message, field)| !is_refused(message, field) && !seen.contains(&(*message, *field)))
        .collect();
    assert_eq!(unseen, [], "no template has these fields");
}
