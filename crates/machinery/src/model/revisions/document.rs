//! The document of a revision: the JSON of a pod template, byte for byte as the original writes it.
//!
//! `{"spec":{"template":T}}`, where `T` has one member more than the API's JSON of the template, `"$patch":"replace"`. Which
//! members there are follows from the encoded template and the table of [`shapes`]. Fields that are not in the table are
//! left out, as the original leaves them out, which never sees them.

use serde_json::{Map, Number, Value as Json, json};

use crate::model::template::shapes::{self, FieldShape, Holds, Presence, Shape};
use crate::wire::json::read_json;
use crate::wire::text::lossy_utf8;
use crate::wire::{Reader, Time, Value, WireError};

/// How large integers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// As they are: in a DaemonSet's revisions.
    Exact,
    /// As the nearest double: in a StatefulSet's revisions.
    Doubles,
}

/// The document of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateDocument(String);

impl TemplateDocument {
    /// That of an encoded `PodTemplateSpec`.
    ///
    /// # Errors
    /// The template is malformed.
    pub fn of(template: &[u8], numbers: Numbers) -> Result<Self, WireError> {
        let mut tree = tree(template)?;
        tree.insert("$patch".to_owned(), json!("replace"));
        let mut out = String::with_capacity(template.len() * 2);
        write(&json!({"spec": {"template": tree}}), numbers, &mut out);
        Ok(Self(out))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The members of an encoded template.
pub(super) fn tree(template: &[u8]) -> Result<Map<String, Json>, WireError> {
    let mut tree = Map::new();
    put_members(template, shapes::POD_TEMPLATE, &mut tree)?;
    Ok(tree)
}

fn put_members(message: &[u8], shape: &Shape, into: &mut Map<String, Json>) -> Result<(), WireError> {
    let mut held: Vec<(u32, Value<'_>)> = Vec::with_capacity(16);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field()? {
        held.push(field);
    }
    for field in shape.fields {
        let values: Vec<Value<'_>> =
            held.iter().filter(|(number, _)| *number == field.number).map(|(_, value)| *value).collect();
        if let Holds::Flattened(inner) = field.holds {
            put_members(&merged(&values)?, inner, into)?;
        } else if let Some(member) = member(field, &values)? {
            into.insert(field.name.to_owned(), member);
        }
    }
    Ok(())
}

/// What a field with these occurrences is in JSON, if anything.
fn member(field: &FieldShape, values: &[Value<'_>]) -> Result<Option<Json>, WireError> {
    let value = if values.is_empty() { None } else { value(field.holds, values)? };
    Ok(match (field.presence, value) {
        (Presence::NotEmpty, value) => value.filter(|value| !is_empty(field.holds, value)),
        (Presence::Pointer, value) => value,
        (Presence::Nullable, value) => Some(value.unwrap_or(Json::Null)),
        (Presence::Always, Some(value)) => Some(value),
        (Presence::Always, None) => Some(empty(field.holds)?),
    })
}

/// What stands where something is always there and not set.
fn empty(holds: Holds) -> Result<Json, WireError> {
    Ok(match holds {
        Holds::Message(shape) => {
            let mut object = Map::new();
            put_members(&[], shape, &mut object)?;
            Json::Object(object)
        }
        Holds::Text => json!(""),
        Holds::Bool => json!(false),
        Holds::Int | Holds::IntOrString => json!(0),
        Holds::Quantity => json!("0"),
        Holds::Texts
        | Holds::Ints
        | Holds::Labels
        | Holds::Amounts
        | Holds::Time
        | Holds::Json
        | Holds::Messages(_)
        | Holds::Flattened(_) => Json::Null,
    })
}

fn is_empty(holds: Holds, value: &Json) -> bool {
    match holds {
        // Held by a pointer.
        Holds::Message(_) | Holds::Quantity | Holds::Time | Holds::IntOrString | Holds::Json => false,
        _ => match value {
            Json::Null => true,
            Json::Bool(value) => !value,
            Json::Number(number) => number.as_i64() == Some(0),
            Json::String(text) => text.is_empty(),
            Json::Array(items) => items.is_empty(),
            Json::Object(members) => members.is_empty(),
        },
    }
}

/// What the occurrences of a field amount to; there is one at least.
fn value(holds: Holds, values: &[Value<'_>]) -> Result<Option<Json>, WireError> {
    let Some(last) = values.last().copied() else { return Ok(None) };
    Ok(Some(match holds {
        Holds::Text => Json::String(text(last.bytes()?)),
        Holds::Int => json!(last.varint()? as i64),
        Holds::Bool => json!(last.varint()? != 0),
        Holds::Texts => {
            values.iter().map(|value| Ok(text(value.bytes()?))).collect::<Result<Vec<_>, _>>()?.into()
        }
        Holds::Ints => {
            values.iter().map(|value| Ok(value.varint()? as i64)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Holds::Labels | Holds::Amounts => {
            let mut members = Map::new();
            for entry in values {
                let [key, value] = strings(entry.bytes()?)?;
                let value = if matches!(holds, Holds::Amounts) { quantity(value)? } else { text(value) };
                members.insert(text(key), Json::String(value));
            }
            Json::Object(members)
        }
        Holds::Quantity => Json::String(quantity(&merged(values)?)?),
        Holds::Time => {
            let Some(time) = Time::of_message(&merged(values)?)? else { return Ok(None) };
            Json::String(time.to_string())
        }
        Holds::IntOrString => int_or_string(&merged(values)?)?,
        Holds::Json => {
            let [raw, _] = strings(last.bytes()?)?;
            read_json(raw).unwrap_or(Json::Null)
        }
        Holds::Message(shape) | Holds::Flattened(shape) => {
            let mut members = Map::new();
            put_members(&merged(values)?, shape, &mut members)?;
            Json::Object(members)
        }
        Holds::Messages(shape) => {
            let mut items = Vec::with_capacity(values.len());
            for item in values {
                let mut members = Map::new();
                put_members(item.bytes()?, shape, &mut members)?;
                items.push(Json::Object(members));
            }
            Json::Array(items)
        }
    }))
}

/// A message that occurs several times is, by protobuf's rules, the concatenation.
fn merged(values: &[Value<'_>]) -> Result<Vec<u8>, WireError> {
    let mut merged = Vec::new();
    for value in values {
        merged.extend_from_slice(value.bytes()?);
    }
    Ok(merged)
}

/// The byte strings in fields 1 and 2 of a message: an entry of a map, among others.
fn strings(message: &[u8]) -> Result<[&[u8]; 2], WireError> {
    let mut found: [&[u8]; 2] = [&[], &[]];
    let mut reader = Reader::new(message);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => found[0] = value.bytes()?,
            2 => found[1] = value.bytes()?,
            _ => {}
        }
    }
    Ok(found)
}

fn quantity(message: &[u8]) -> Result<String, WireError> {
    let [written, _] = strings(message)?;
    Ok(if written.is_empty() { "0".to_owned() } else { text(written) })
}

fn int_or_string(message: &[u8]) -> Result<Json, WireError> {
    let (mut is_text, mut number_held, mut text_held) = (false, 0, String::new());
    let mut reader = Reader::new(message);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => is_text = value.varint()? == 1,
            2 => number_held = value.varint()? as i64,
            3 => text_held = text(value.bytes()?),
            _ => {}
        }
    }
    Ok(if is_text { Json::String(text_held) } else { json!(number_held) })
}

fn text(bytes: &[u8]) -> String {
    lossy_utf8(bytes).into_owned()
}

/// Without white space, members in the order of their keys' bytes.
fn write(value: &Json, numbers: Numbers, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(&written(number, numbers)),
        Json::String(text) => write_text(text, out),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, numbers, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                write(value, numbers, out);
            }
            out.push('}');
        }
    }
}

fn written(number: &Number, numbers: Numbers) -> String {
    match (numbers, number.as_f64()) {
        // The fewest digits that read back as the same double, then zeros.
        (Numbers::Doubles, Some(double)) => double.to_string(),
        _ => number.to_string(),
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.push_str("\\u");
                let digit = |at: u32| char::from(DIGITS[(u32::from(char) >> at & 15) as usize]);
                out.extend([12, 8, 4, 0].map(digit));
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}
