//! The names of members in the table next to those of Kubernetes' types: every field of every kind is written in JSON, read by Go, and
//! must be there again in what Go writes in protobuf. And metadata whose members occur several times, in objects of any kind, next to Go's
//! reading.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::differential::{asked, kind_of, seen_in_envelope, understood};
use super::from_json::stated;
use super::merged::Members;
use super::schema::{Cardinality, FieldType, MessageId, SCHEMA, TABLE};
use super::{lossy_json, metadata_from_json, object_to_json};
use crate::api::kinds;
use crate::oracle::{Comparison, KnownRefusal, Oracle, Random, Translation};
use crate::wire::text::raw_bytes;
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

/// Members of metadata that are merged differently, and values of each.
const MEMBERS: &[(&str, &[&str])] = &[
    ("name", &[r#""a""#, r#""b""#, "null", "7"]),
    ("namespace", &[r#""x""#, r#""y""#, "null"]),
    ("uid", &[r#""u""#, r#""""#, "null"]),
    ("generation", &["5", "6", "null"]),
    ("creationTimestamp", &[r#""2026-01-01T00:00:00Z""#, r#""2027-01-01T00:00:00Z""#, "null"]),
    ("deletionTimestamp", &[r#""2026-01-01T00:00:00Z""#, r#""yesterday""#, "null"]),
    ("deletionGracePeriodSeconds", &["0", "30", "null"]),
    ("labels", &[r#"{"a":"b"}"#, r#"{"a":"c","a":null}"#, r#"{"d":"e"}"#, "{}", "null"]),
    ("annotations", &[r#"{"a":"b","a":"c"}"#, r#"{"d":""}"#, "{}", "null", "[]"]),
    ("finalizers", &[r#"["a","b"]"#, r#"["c"]"#, "[null]", "[null,null,null]", "[]", "null"]),
    (
        "ownerReferences",
        &[
            r#"[{"uid":"u","name":"n","controller":true}]"#,
            r#"[{"kind":"K"},{"uid":"v","uid":"w","blockOwnerDeletion":false}]"#,
            r#"[{"controller":null,"apiVersion":"v1","uid":null}]"#,
            "[{},null,{}]",
            "[null]",
            "[]",
            "null",
            "{}",
        ],
    ),
    ("managedFields", &[r#"[{"manager":"m","fieldsV1":{}}]"#, "[{}]", "null"]),
];

/// Returns an object in which `metadata` and its members occur several times.
fn generate_repeated(random: &mut Random) -> String {
    let mut text = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata""#.to_owned();
    for _ in 0..=random.below(3) {
        text.push_str(r#","metadata":"#);
        if random.one_in(6) {
            text.push_str(random.one_of(&["null", "{}", "null", "7"]));
            continue;
        }
        text.push_str(if random.one_in(8) { r#"{"unknown":1"# } else { r#"{"name":"n""# });
        for _ in 0..random.below(8) {
            let (name, values) = MEMBERS[random.below(MEMBERS.len())];
            let _ = write!(text, ",\"{name}\":{}", random.one_of(values));
        }
        text.push('}');
    }
    text.push('}');
    text
}

const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// Returns what controllers see of a text that is metadata. Objects of other kinds are read whole elsewhere.
fn read_metadata(text: &str) -> Option<Value> {
    let bytes = raw_bytes(text);
    let json = lossy_json(&bytes);
    let members: Members<'_> = serde_json::from_str(&json).ok()?;
    let kind = (stated(&members, "apiVersion").ok()?, stated(&members, "kind").ok()?);
    if (kind.0.as_str(), kind.1.as_str()) != METADATA {
        return None;
    }
    seen_in_envelope(&metadata_from_json(&bytes).ok()?.into())
}

/// Returns the reason why metadata is refused.
fn refusal(text: &str) -> String {
    metadata_from_json(&raw_bytes(text)).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn metadata_that_occurs_several_times_is_never_read_differently() {
    Comparison {
        question: "object-json",
        seeds: &[
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"x","ownerReferences":[{"uid":"u"}]},"metadata":{}}"#,
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a"},"metadata":null}"#,
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"generation":5}}"#,
            r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","generation":-0}}"#,
        ],
        words: &[
            "null", "0", "\"\"", "{}", "[]", "[null]", "{\"a\":null}", "\"name\":\"a\",", "\"metadata\":{},", ",", "\u{10ff80}",
        ],
        generate: generate_repeated,
        read: read_metadata,
        refusals: &[
            KnownRefusal {
                reason: "other kinds are read as whole objects. Differs: no",
                covers: |_, reading| kind_of(reading).is_some_and(|kind| kind != METADATA),
            },
            KnownRefusal {
                reason: "an object has a kind, metadata and a name. Differs: strict-encodings",
                covers: |text, _| refusal(text).ends_with("missing member"),
            },
            KnownRefusal {
                reason: "API servers write no negative zero. Differs: strict-encodings",
                covers: |text, _| refusal(text).ends_with("unexpected type") && text.contains("-0"),
            },
        ],
        differences: &[],
    }
    .run_translated(Translation { ask: asked, understand: understood });
}
