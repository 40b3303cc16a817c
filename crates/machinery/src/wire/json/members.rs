//! The names of members in the table next to those of Kubernetes' types: every field of every kind is written in JSON, read by Go, and
//! must be there again in what Go writes in protobuf.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::object_to_json;
use super::schema::{Cardinality, FieldType, MessageId, SCHEMA, TABLE};
use crate::api::kinds;
use crate::oracle::Oracle;
use crate::wire::wrap_envelope;

/// Messages with metadata that are no kinds.
const TEMPLATES: &[&str] =
    &["JobTemplateSpec", "PersistentVolumeClaimTemplate", "PodTemplateSpec", "ResourceClaimTemplateSpec"];

/// Returns the group version of a package's kinds.
fn api_version(package: &str, version: &str) -> String {
    let group = match package {
        "core" => return version.to_owned(),
        "meta" => "meta.k8s.io",
        "authentication" => "authentication.k8s.io",
        "apiserverinternal" => "internal.apiserver.k8s.io",
        package => {
            let mut groups = kinds::ALL.iter().map(|row| row.group);
            groups.find(|group| group.split('.').next() == Some(package)).unwrap_or(package)
        }
    };
    format!("{group}/{version}")
}

/// Returns group version, kind and message of each kind of the table.
fn all() -> Vec<(String, &'static str, MessageId)> {
    let names = TABLE.lines().filter_map(|line| line.split('\t').next());
    let kind = |name: &'static str| {
        let message = SCHEMA.named(name)?;
        let (package, rest) = name.split_once('.')?;
        let (version, kind) = rest.split_once('.')?;
        let has_metadata = SCHEMA.fields(message).first().is_some_and(|field| field.name == "metadata");
        (has_metadata && !TEMPLATES.contains(&kind)).then(|| (api_version(package, version), kind, message))
    };
    names.filter_map(kind).collect()
}

fn value(holds: FieldType) -> Value {
    match holds {
        FieldType::Text => json!("text"),
        FieldType::Int | FieldType::IntOrString => json!(7),
        FieldType::Long => json!(3_000_000_000_i64),
        FieldType::Bool => json!(true),
        FieldType::Bytes => json!("aGVsbG8="),
        FieldType::Quantity => json!("5"),
        FieldType::Time => json!("2026-01-01T00:00:00Z"),
        FieldType::MicroTime => json!("2026-01-01T00:00:00.000001Z"),
        FieldType::Texts => json!(["text"]),
        FieldType::Json => json!({"a": 1}),
        FieldType::Message(message) => Value::Object(members(message)),
    }
}

/// Returns a member for each field of a message.
fn members(message: MessageId) -> Map<String, Value> {
    let mut all = Map::new();
    for field in SCHEMA.fields(message) {
        if let (Cardinality::Flat, FieldType::Message(inner)) = (field.cardinality, field.holds) {
            all.extend(members(inner));
            continue;
        }
        let value = value(field.holds);
        let value = match field.cardinality {
            Cardinality::One | Cardinality::Flat => value,
            Cardinality::List => json!([value]),
            Cardinality::Map => json!({"key": value}),
        };
        all.insert(field.name.to_owned(), value);
    }
    all
}

/// Returns an object that Go read, in JSON.
fn written(api_version: &str, kind: &str, answer: &Value) -> Option<Value> {
    let digits = answer["reads"]["object"].as_str()?;
    let object: Option<Vec<u8>> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    let envelope = Bytes::from(wrap_envelope(api_version, kind, &object?));
    serde_json::from_str(&object_to_json(&envelope).ok()?).ok()
}

#[test]
fn members_have_the_names_that_kubernetes_reads() {
    let kinds = all();
    let objects: Vec<Value> = kinds
        .iter()
        .map(|(api_version, kind, message)| {
            let mut object = members(*message);
            object.insert("apiVersion".to_owned(), json!(api_version));
            object.insert("kind".to_owned(), json!(kind));
            object.into()
        })
        .collect();
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    let answers = Oracle::of("object-json").read(&texts);
    for (((api_version, kind, _), object), answer) in kinds.iter().zip(&objects).zip(&answers) {
        let written = written(api_version, kind, answer);
        assert_eq!(written.as_ref(), Some(object), "{kind} of {api_version}: {answer}");
    }
    assert!(kinds.len() > 90, "{}", kinds.len());
}
