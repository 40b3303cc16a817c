//! From protobuf to JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::schema::{Cardinality, Field, FieldType, MessageId, SCHEMA};
use super::{ASIDE, JsonError};
use crate::wire::envelope::Envelope;
use crate::wire::splice::get;
use crate::wire::text::lossy_utf8;
use crate::wire::{Reader, Value, WallTime, WireError, path, unwrap_envelope};

/// The object in an envelope, in JSON. Fields that are neither in the table nor set aside are refused: they would be lost.
pub fn object_to_json(envelope: &Bytes) -> Result<String, JsonError> {
    let head = |path| {
        let rest = envelope.get(4..).unwrap_or_default();
        get(rest, path)?.map_or(Ok(Cow::Borrowed("")), text)
    };
    let object = unwrap_envelope(envelope)?;
    let (api_version, kind) =
        (head(path!(Envelope, typeMeta.apiVersion))?, head(path!(Envelope, typeMeta.kind))?);
    let message = SCHEMA
        .of_kind(&api_version, &kind)
        .ok_or_else(|| JsonError::new(format!("unknown kind {kind} of {api_version}")))?;
    let mut out = Members::new();
    out.put("apiVersion", &quoted(&api_version));
    out.put("kind", &quoted(&kind));
    decode(message, &object, &mut out)?;
    Ok(out.end())
}

/// The text of an object in JSON, member by member.
struct Members(String);

impl Members {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn put(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A string as it is in JSON, which has characters and no bytes.
fn text(value: Value<'_>) -> Result<Cow<'_, str>, WireError> {
    Ok(lossy_utf8(value.bytes()?))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Puts the members of a message.
fn decode(message: MessageId, bytes: &[u8], out: &mut Members) -> Result<(), JsonError> {
    let fields = SCHEMA.fields(message);
    let mut found: Vec<Vec<Value<'_>>> = fields.iter().map(|_| Vec::new()).collect();
    let mut aside = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next_field()? {
        match fields.iter().position(|field| field.number == number) {
            Some(at) => found[at].push(value),
            None if number == ASIDE => aside = Some(value.bytes()?),
            None => return Err(JsonError::new(format!("field {number} has no name"))),
        }
    }
    for (field, values) in fields.iter().zip(found) {
        let Some(last) = values.last() else { continue };
        if let (Cardinality::Flat, FieldType::Message(inner)) = (field.cardinality, field.holds) {
            decode(inner, last.bytes()?, out)?;
        } else {
            let text = spelt(field, &values, *last).map_err(|error| error.within(field.name))?;
            out.put(field.name, &text);
        }
    }
    if let Some(aside) = aside {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(aside)?;
        for (name, value) in &members {
            out.put(name, value.get());
        }
    }
    Ok(())
}

/// What is in a field, by all its occurrences.
fn spelt(field: &Field, values: &[Value<'_>], last: Value<'_>) -> Result<String, JsonError> {
    match field.cardinality {
        Cardinality::One | Cardinality::Flat => one(field.holds, last),
        Cardinality::List => {
            let items: Result<Vec<String>, JsonError> =
                values.iter().map(|value| one(field.holds, *value)).collect();
            Ok(format!("[{}]", items?.join(",")))
        }
        Cardinality::Map => {
            let mut entries = Members::new();
            for value in values {
                let (mut key, mut held) = (Cow::Borrowed(""), None);
                let mut reader = Reader::new(value.bytes()?);
                while let Some((number, value)) = reader.next_field()? {
                    match number {
                        1 => key = text(value)?,
                        2 => held = Some(value),
                        _ => {}
                    }
                }
                let held = held.unwrap_or(Value::Bytes(&[]));
                entries.put(&key, &one(field.holds, held).map_err(|error| error.within(&key))?);
            }
            Ok(entries.end())
        }
    }
}

fn one(holds: FieldType, value: Value<'_>) -> Result<String, JsonError> {
    Ok(match holds {
        FieldType::Text => quoted(&text(value)?),
        FieldType::Int | FieldType::Long => (value.varint()? as i64).to_string(),
        FieldType::Bool => (value.varint()? != 0).to_string(),
        FieldType::Bytes => quoted(&BASE64_STANDARD.encode(value.bytes()?)),
        FieldType::Quantity => quoted(&get(value.bytes()?, &[1])?.map_or(Ok(Cow::Borrowed("")), text)?),
        FieldType::Time => time(value, 0)?,
        FieldType::MicroTime => time(value, 6)?,
        FieldType::IntOrString => int_or_string(value.bytes()?)?,
        FieldType::Texts => {
            let mut items = Vec::new();
            let mut reader = Reader::new(value.bytes()?);
            while let Some((_, item)) = reader.next_field()? {
                items.push(quoted(&text(item)?));
            }
            format!("[{}]", items.join(","))
        }
        FieldType::Json => match get(value.bytes()?, &[1])?.map(text).transpose()?.as_deref() {
            None | Some("") => "null".to_owned(),
            // Whatever made it: what is no JSON would make the whole no JSON.
            Some(json) => serde_json::from_str::<&RawValue>(json)?.get().to_owned(),
        },
        FieldType::Message(inner) => {
            let mut members = Members::new();
            decode(inner, value.bytes()?, &mut members)?;
            members.end()
        }
    })
}

/// A time, with so many digits of a second; the zero time is `null`.
fn time(value: Value<'_>, digits: u8) -> Result<String, JsonError> {
    let bytes = value.bytes()?;
    let number = |path| get(bytes, path)?.map_or(Ok(0), Value::varint);
    let at = WallTime::new(number(&[1])? as i64, number(&[2])? as i32);
    if bytes.is_empty() || at.is_unset() {
        return Ok("null".to_owned());
    }
    Ok(quoted(&format!("{at:.*}", usize::from(digits))))
}

fn int_or_string(bytes: &[u8]) -> Result<String, JsonError> {
    let is_text = get(bytes, &[1])?.map_or(Ok(0), Value::varint)? != 0;
    Ok(if is_text {
        quoted(&get(bytes, &[3])?.map_or(Ok(Cow::Borrowed("")), text)?)
    } else {
        (get(bytes, &[2])?.map_or(Ok(0), Value::varint)? as i64).to_string()
    })
}
