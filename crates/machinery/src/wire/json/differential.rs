//! Coxswain's reading of JSON next to that of Go's and Kubernetes' libraries: of any JSON, and of objects of each kind of the table.
//!
//! Texts are in text form, so that they can have any bytes. Objects are compared as `api/differential.rs` does.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::schema::{Cardinality, Field, FieldType, MessageId, SCHEMA};
use super::{object_from_json, read_json};
use crate::api::differential::{any_kind, canonical, is_read, seen, seen_by_go};
use crate::oracle::{Comparison, KnownDifference, KnownRefusal, Random, Translation};
use crate::wire::envelope::Envelope;
use crate::wire::splice::get;
use crate::wire::text::raw_bytes;
use crate::wire::{path, unwrap_envelope};

/// Depth up to which the oracle answers; serde refuses more than 127 levels, Go more than 10000.
const DEEPEST: usize = 100;

pub(super) fn asked(text: &str) -> Vec<u8> {
    raw_bytes(text).into_owned()
}

/// Returns a value in which texts and numbers show their types, as `typed` of `tests/oracle/json.go`.
fn typed(value: &Value, keeps_integers: bool) -> Value {
    match value {
        Value::String(text) => format!("text {text}").into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) if keeps_integers => format!("int {integer}").into(),
            _ => format!("float {:x}", number.as_f64().unwrap_or_default().to_bits()).into(),
        },
        Value::Array(items) => items.iter().map(|item| typed(item, keeps_integers)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), typed(member, keeps_integers)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn read_any(text: &str) -> Option<Value> {
    if depth(text) > DEEPEST {
        return None;
    }
    let value: Value = read_json(&raw_bytes(text)).ok()?;
    Some(json!({ "standard": typed(&value, false), "kubernetes": typed(&value, true) }))
}

fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for char in text.chars() {
        match char {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// Whether two readings are the same but for the last bits of fractions, and the sign of zeros.
fn is_near(ours: &Value, theirs: &Value) -> bool {
    let float = |value: &Value| {
        let bits = value.as_str()?.strip_prefix("float ")?;
        u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
    };
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| is_near(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .all(|(name, ours)| theirs.get(name).is_some_and(|theirs| is_near(ours, theirs)))
        }
        (ours, theirs) => match (float(ours), float(theirs)) {
            (Some(ours), Some(theirs)) => (ours - theirs).abs() <= ours.abs() * 1e-12,
            (Some(ours), None) => ours == 0.0 && theirs == "int 0",
            _ => ours == theirs,
        },
    }
}

const STRINGS: &[&str] = &[
    r#""""#,
    r#""a""#,
    r#""app""#,
    r#""\u0061""#,
    r#""\ud83d\ude00""#,
    r#""\ud800""#,
    r#""\udc00\ud800x""#,
    r#""\ud800\u0041""#,
    r#""\"\\\/\b\f\n\r\t""#,
    "\"\u{10ff80}\"",
    "\"\u{10ffed}\u{10ffa0}\u{10ff80}\"",
    "\"\u{e9}\u{2028}\"",
    "\"\u{7f}\"",
    r#""500m""#,
    r#""25%""#,
    r#""2026-01-01T00:00:00Z""#,
    r#""2026-01-01T00:00:00.000001Z""#,
    r#""aGVsbG8=""#,
];

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "1.0",
    "1.5",
    "0.1",
    "1e2",
    "1E+2",
    "1e-7",
    "1e400",
    "-1e400",
    "2147483647",
    "2147483648",
    "3000000000",
    "-2147483649",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901234567890",
    "5e-324",
    "1.7976931348623157e308",
    "01",
    "+1",
    ".5",
    "1.",
    "NaN",
];

fn any_value(random: &mut Random, depth: usize, out: &mut String) {
    match random.below(if depth > 3 { 2 } else { 5 }) {
        0 => out.push_str(random.one_of(STRINGS)),
        1 | 2 => out.push_str(random.one_of(SCALARS)),
        3 => {
            out.push('[');
            for at in 0..random.below(4) {
                out.push_str(if at > 0 { "," } else { "" });
                any_value(random, depth + 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for at in 0..random.below(4) {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(random.one_of(STRINGS));
                out.push(':');
                any_value(random, depth + 1, out);
            }
            out.push('}');
        }
    }
}

fn generate_any(random: &mut Random) -> String {
    let mut text = String::new();
    if random.one_in(40) {
        let depth = 92 + random.below(16);
        text.push_str(&"[".repeat(depth));
        text.push_str(&"]".repeat(depth));
        return text;
    }
    any_value(random, 0, &mut text);
    text
}

#[test]
fn json_is_never_read_differently() {
    Comparison {
        question: "json",
        seeds: &[
            "{}",
            "[]",
            "null",
            r#"{"a":1,"a":2,"A":3}"#,
            r#"{"a":{"b":1},"a":{"c":2}}"#,
            r#"["\ud800","\u0000"]"#,
            "[1.0, 1e2, -0, 0.1]",
            " [1] ",
            "[1] x",
            "\u{feff}[1]",
            r#"{"\ud800":1,"\udfff":2}"#,
            "[1,]",
            r#"{"a":1,}"#,
            "\"\u{10ff80}\u{10ffff}\"",
        ],
        words: &[
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"",
            "\\u",
            "\\ud800",
            "\\",
            "null",
            "1e",
            ".",
            "-",
            "0",
            "\u{10ff80}",
            "\u{b}",
            "\u{c}",
            "\t",
            "/**/",
        ],
        generate: generate_any,
        read: read_any,
        refusals: &[],
        differences: &[KnownDifference {
            reason: "the last bits of fractions and the sign of zeros differ; no controller reads either. Differs: no",
            fields: &["standard", "kubernetes"],
            covers: |_, ours, theirs| is_near(ours, theirs),
        }],
    }
    .run_translated(Translation { ask: asked, ..Translation::NONE });
}

/// Appends a value for a field, which is sometimes of another type.
fn put_value(holds: FieldType, depth: usize, random: &mut Random, out: &mut String) {
    // Long amounts have an oracle of their own.
    if random.one_in(30) && holds != FieldType::Quantity {
        any_value(random, 3, out);
        return;
    }
    let text = |random: &mut Random| -> &'static str { random.one_of(STRINGS) };
    match holds {
        FieldType::Text => out.push_str(text(random)),
        FieldType::Int | FieldType::Long => match random.below(6) {
            0 => out.push_str(random.one_of(SCALARS)),
            1 => out.push_str(&random.number(12)),
            _ => out.push_str(&random.below(300).to_string()),
        },
        FieldType::Bool => out.push_str(random.one_of(&["true", "false"])),
        FieldType::Bytes => {
            out.push_str(random.one_of(&[
                r#""""#,
                r#""aGVsbG8=""#,
                r#""aGVs\nbG8=""#,
                r#""aG==""#,
                r#""aGVsbG8""#,
            ]));
        }
        FieldType::Quantity => {
            out.push_str(random.one_of(&[
                r#""500m""#,
                r#""1000m""#,
                r#""64Gi""#,
                "1",
                "1.5",
                "1e3",
                r#""x""#,
                r#""""#,
                r#"" 5""#,
                r#""\u0035""#,
            ]));
        }
        FieldType::Time => out.push_str(random.one_of(&[
            r#""2026-01-01T00:00:00Z""#,
            r#""2026-01-01T00:00:00.5+01:00""#,
            r#""0001-01-01T00:00:00Z""#,
            r#""1970-01-01T00:00:00Z""#,
            r#""yesterday""#,
            r#""""#,
            "null",
        ])),
        FieldType::MicroTime => out.push_str(random.one_of(&[
            r#""2026-01-01T00:00:00.000001Z""#,
            r#""2026-01-01T00:00:00.999999Z""#,
            r#""2026-01-01T00:00:00Z""#,
            r#""""#,
            "null",
        ])),
        FieldType::IntOrString => {
            out.push_str(random.one_of(&[
                "0",
                "80",
                r#""25%""#,
                r#""80""#,
                r#""""#,
                "3000000000",
                "1.5",
                "null",
            ]));
        }
        FieldType::Texts => out.push_str(random.one_of(&["[]", r#"["a","b"]"#, "[null]", "null"])),
        FieldType::Json => any_value(random, 2, out),
        FieldType::Message(inner) => put_message(inner, depth + 1, random, out),
    }
}

fn put_members(message: MessageId, depth: usize, random: &mut Random, out: &mut String) {
    let fields = SCHEMA.fields(message);
    for field in fields {
        let is_part = if depth == 0 { !random.one_in(4) } else { random.below(fields.len().max(4)) < 3 };
        if !is_part {
            continue;
        }
        if let (Cardinality::Flat, FieldType::Message(inner)) = (field.cardinality, field.holds) {
            put_members(inner, depth, random, out);
        } else {
            put_member(field, depth, random, out);
        }
        if random.one_in(60) {
            put_member(field, depth, random, out);
        }
    }
    if random.one_in(10) {
        out.push_str(r#""unknownMember":"#);
        any_value(random, 2, out);
        out.push(',');
    }
}

/// Appends a member, and a comma.
fn put_member(field: &Field, depth: usize, random: &mut Random, out: &mut String) {
    let _ = write!(out, "\"{}\":", field.name);
    match field.cardinality {
        Cardinality::One | Cardinality::Flat => put_value(field.holds, depth, random, out),
        Cardinality::List => {
            out.push('[');
            for at in 0..random.below(3) {
                out.push_str(if at > 0 { "," } else { "" });
                put_value(field.holds, depth, random, out);
            }
            out.push(']');
        }
        Cardinality::Map => {
            out.push('{');
            for at in 0..random.below(3) {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(random.one_of(STRINGS));
                out.push(':');
                put_value(field.holds, depth, random, out);
            }
            out.push('}');
        }
    }
    out.push(',');
}

fn put_message(message: MessageId, depth: usize, random: &mut Random, out: &mut String) {
    out.push('{');
    if depth < 7 {
        put_members(message, depth, random, out);
    }
    if out.ends_with(',') {
        let _ = out.pop();
    }
    out.push('}');
}

fn generate_object(random: &mut Random) -> String {
    let (api_version, kind) = any_kind(random);
    let mut text = format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",");
    if let Some(message) = SCHEMA.of_kind(&api_version, kind) {
        put_members(message, 0, random, &mut text);
    }
    let _ = text.pop();
    text.push('}');
    text
}

fn read_object(text: &str) -> Option<Value> {
    seen_in_envelope(&object_from_json(&raw_bytes(text)).ok()?.into())
}

/// Returns all that controllers see of an object in its envelope.
pub(super) fn seen_in_envelope(envelope: &Bytes) -> Option<Value> {
    let head = |path| get(envelope.get(4..)?, path).ok()??.text().ok();
    let api_version = head(path!(Envelope, typeMeta.apiVersion))?;
    let kind = head(path!(Envelope, typeMeta.kind))?;
    let object = canonical(&api_version, &kind, &unwrap_envelope(envelope).ok()?).ok()?;
    seen(&api_version, &kind, &object.into())
}

/// Why Coxswain refuses a text.
fn refusal(text: &str) -> String {
    object_from_json(&raw_bytes(text)).err().map(|error| error.to_string()).unwrap_or_default()
}

/// Whether a text has bytes that are not UTF-8, or halves of surrogates.
fn is_lossy(text: &str) -> bool {
    matches!(raw_bytes(text), Cow::Owned(_)) || text.contains("\\ud") || text.contains("\\uD")
}

/// Returns the kind that Go read.
pub(super) fn kind_of(reading: &Value) -> Option<(&str, &str)> {
    Some((reading["apiVersion"].as_str()?, reading["kind"].as_str()?))
}

pub(super) fn understood(_: &str, reading: Value) -> Value {
    let shown = kind_of(&reading).and_then(|(api_version, kind)| seen_by_go(api_version, kind, &reading));
    shown.unwrap_or(reading)
}

#[test]
fn objects_in_json_are_never_read_differently() {
    Comparison {
        question: "object-json",
        seeds: &[
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"nodeName":"n"}}"#,
            r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"metadata":{"namespace":"b"}}"#,
            r#"{"apiVersion":"v1","kind":"Secret","Metadata":{"name":"a"},"data":{"a":"aGVsbG8="}}"#,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3000000000}}"#,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":null,"paused":null,"selector":null}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":null}}"#,
        ],
        words: &[
            "null", "0", "1.0", "\"\"", "{}", "[]", "[null]", "{\"a\":null}", "\"a\":", ",", "\\ud800", "\u{10ff80}", "true",
        ],
        generate: generate_object,
        read: read_object,
        refusals: &[
            KnownRefusal {
                reason: "no controller reads the kind. Differs: no",
                covers: |_, reading| kind_of(reading).is_some_and(|(api_version, kind)| !is_read(api_version, kind)),
            },
            KnownRefusal {
                reason: "API servers write each member once; Go merges them. Differs: strict-encodings",
                covers: |text, _| refusal(text).contains("duplicate member"),
            },
            KnownRefusal {
                reason: "API servers write apiVersion and kind; Go reads any case of letters. Differs: strict-encodings",
                covers: |text, _| {
                    let refusal = refusal(text);
                    refusal.contains("unexpected spelling of the member") || refusal.ends_with("missing member")
                },
            },
            KnownRefusal {
                reason: "API servers write no null in lists, and no negative zero. Differs: strict-encodings",
                covers: |text, _| {
                    refusal(text).ends_with("unexpected type") && (text.contains("null") || text.contains("-0"))
                },
            },
            KnownRefusal {
                reason: "API servers write bytes in strict base64. Differs: strict-encodings",
                covers: |text, _| {
                    let refusal = refusal(text);
                    let is_list = refusal.contains("in data.") && refusal.ends_with("unexpected type");
                    refusal.contains("Invalid") || is_list
                },
            },
        ],
        differences: &[KnownDifference {
            reason: "bytes of embedded JSON that are not UTF-8 are replaced; API servers write none. Differs: strict-encodings",
            fields: &["object"],
            covers: |text, _, _| is_lossy(text) && text.contains("ControllerRevision"),
        }],
    }
    .run_translated(Translation { ask: asked, understand: understood });
}
