//! Between the protobuf that is sent and the JSON that the model stores. Strings are stored in text form, so that they can have any
//! bytes.
//!
//! What upstream's definitions do not have is dropped, as the real server drops it. A zero that its types do not tell from
//! nothing is dropped too, so that equal objects are equal here.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use coxswain_machinery::wire::json::schema::{Cardinality, Field, FieldType, SCHEMA};
use coxswain_machinery::wire::splice::{put_bytes, put_text, put_varint_field};
use coxswain_machinery::wire::{Reader, Value, WireError};

/// The JSON of a message.
pub fn decode(message: usize, bytes: &[u8]) -> Result<Json, WireError> {
    let mut members = Map::new();
    decode_into(message, bytes, &mut members)?;
    Ok(Json::Object(members))
}

fn decode_into(message: usize, bytes: &[u8], members: &mut Map<String, Json>) -> Result<(), WireError> {
    let fields = SCHEMA.fields(message);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next_field()? {
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        match field.cardinality {
            Cardinality::One => {
                let json = decode_value(field.holds, value)?;
                // A number or a string is a pointer wherever nothing differs from zero.
                if is_zero(&json) && !field.pointer && field.holds != FieldType::IntOrString {
                    members.shift_remove(field.name);
                } else {
                    members.insert(field.name.to_owned(), json);
                }
            }
            Cardinality::List => {
                let json = decode_value(field.holds, value)?;
                match members.entry(field.name).or_insert_with(|| Json::Array(Vec::new())) {
                    Json::Array(items) => items.push(json),
                    _ => unreachable!("a list"),
                }
            }
            Cardinality::Map => {
                let (key, json) = decode_entry(field, value.bytes()?)?;
                match members.entry(field.name).or_insert_with(|| Json::Object(Map::new())) {
                    Json::Object(entries) => entries.insert(key, json),
                    _ => unreachable!("a map"),
                };
            }
            Cardinality::Flat => {
                let FieldType::Message(inner) = field.holds else { unreachable!("a message") };
                decode_into(inner, value.bytes()?, members)?;
            }
        }
    }
    Ok(())
}

fn decode_entry(field: &Field, bytes: &[u8]) -> Result<(String, Json), WireError> {
    let (mut key, mut json) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => key = value.text()?.into_owned(),
            2 => json = Some(decode_value(field.holds, value)?),
            _ => {}
        }
    }
    Ok((key, json.unwrap_or_else(|| Json::from(""))))
}

fn decode_value(holds: FieldType, value: Value<'_>) -> Result<Json, WireError> {
    Ok(match holds {
        FieldType::Text => Json::from(value.text()?),
        FieldType::Int | FieldType::Long => Json::from(value.varint()? as i64),
        FieldType::Bool => Json::from(value.varint()? != 0),
        FieldType::Bytes => Json::from(BASE64_STANDARD.encode(value.bytes()?)),
        FieldType::Quantity => Json::from(first(value)?.map_or(Ok(Cow::Borrowed("")), Value::text)?),
        FieldType::Time => time(numbers(value)?, false),
        FieldType::MicroTime => time(numbers(value)?, true),
        FieldType::IntOrString => int_or_string(value)?,
        FieldType::Texts => {
            let mut texts = Vec::new();
            let mut reader = Reader::new(value.bytes()?);
            while let Some((_, text)) = reader.next_field()? {
                texts.push(Json::from(text.text()?));
            }
            Json::Array(texts)
        }
        FieldType::Json => {
            let raw = first(value)?.map_or(Ok(&[][..]), Value::bytes)?;
            serde_json::from_slice(raw).unwrap_or(Json::Null)
        }
        FieldType::Message(inner) => decode(inner, value.bytes()?)?,
    })
}

/// The first field of a message.
fn first(value: Value<'_>) -> Result<Option<Value<'_>>, WireError> {
    let mut reader = Reader::new(value.bytes()?);
    while let Some((number, value)) = reader.next_field()? {
        if number == 1 {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Seconds and nanoseconds.
fn numbers(value: Value<'_>) -> Result<(i64, i32), WireError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut reader = Reader::new(value.bytes()?);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => seconds = value.varint()? as i64,
            2 => nanoseconds = value.varint()? as i32,
            _ => {}
        }
    }
    Ok((seconds, nanoseconds))
}

fn time((seconds, nanoseconds): (i64, i32), micro: bool) -> Json {
    if seconds == 0 && nanoseconds == 0 {
        return Json::Null;
    }
    let at = Timestamp::new(seconds, if micro { nanoseconds } else { 0 }).unwrap_or_default();
    Json::from(if micro { format!("{at:.6}") } else { at.to_string() })
}

fn int_or_string(value: Value<'_>) -> Result<Json, WireError> {
    let (mut is_text, mut number, mut text) = (false, 0, Cow::Borrowed(""));
    let mut reader = Reader::new(value.bytes()?);
    while let Some((field, value)) = reader.next_field()? {
        match field {
            1 => is_text = value.varint()? != 0,
            2 => number = value.varint()? as i64,
            3 => text = value.text()?,
            _ => {}
        }
    }
    Ok(if is_text { Json::from(text) } else { Json::from(number) })
}

fn is_zero(json: &Json) -> bool {
    match json {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(_) | Json::Object(_) => false,
    }
}

/// The encoding of JSON as a message.
pub fn encode(message: usize, json: &Json) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for field in SCHEMA.fields(message) {
        let held = json.get(field.name);
        match (field.cardinality, held) {
            (Cardinality::Flat, _) => {
                let FieldType::Message(inner) = field.holds else { unreachable!("a message") };
                let body = encode(inner, json);
                if !body.is_empty() {
                    put_bytes(&mut out, field.number, &body);
                }
            }
            (_, None | Some(Json::Null)) => {}
            (Cardinality::List, Some(Json::Array(items))) => {
                for item in items {
                    encode_value(field.number, field.holds, item, &mut out);
                }
            }
            (Cardinality::Map, Some(Json::Object(entries))) => {
                for (key, value) in entries {
                    encode_entry(field, key, value, &mut out);
                }
            }
            (_, Some(value)) => encode_value(field.number, field.holds, value, &mut out),
        }
    }
    out
}

fn encode_entry(field: &Field, key: &str, value: &Json, out: &mut Vec<u8>) {
    let mut entry = Vec::new();
    put_text(&mut entry, 1, key);
    encode_value(2, field.holds, value, &mut entry);
    put_bytes(out, field.number, &entry);
}

fn encode_value(number: u32, holds: FieldType, json: &Json, out: &mut Vec<u8>) {
    let text = || json.as_str().unwrap_or_default();
    match holds {
        FieldType::Text => put_text(out, number, text()),
        FieldType::Int | FieldType::Long => {
            put_varint_field(out, number, json.as_i64().unwrap_or_default() as u64);
        }
        FieldType::Bool => put_varint_field(out, number, u64::from(json.as_bool().unwrap_or_default())),
        FieldType::Bytes => put_bytes(out, number, &BASE64_STANDARD.decode(text()).unwrap_or_default()),
        FieldType::Quantity => {
            let spelt = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
            nested(number, out, |body| put_text(body, 1, &spelt));
        }
        FieldType::Time | FieldType::MicroTime => {
            let at: Timestamp = text().parse().unwrap_or_default();
            nested(number, out, |body| {
                put_varint_field(body, 1, at.as_second() as u64);
                if holds == FieldType::MicroTime {
                    put_varint_field(body, 2, u64::from(at.subsec_nanosecond().unsigned_abs()));
                }
            });
        }
        FieldType::IntOrString => nested(number, out, |body| match json {
            Json::String(spelt) => {
                put_varint_field(body, 1, 1);
                put_text(body, 3, spelt);
            }
            other => {
                put_varint_field(body, 1, 0);
                put_varint_field(body, 2, other.as_i64().unwrap_or_default() as u64);
            }
        }),
        FieldType::Texts => nested(number, out, |body| {
            let texts = json.as_array().into_iter().flatten().filter_map(Json::as_str);
            texts.for_each(|text| put_text(body, 1, text));
        }),
        FieldType::Json => nested(number, out, |body| put_bytes(body, 1, json.to_string().as_bytes())),
        FieldType::Message(inner) => put_bytes(out, number, &encode(inner, json)),
    }
}

fn nested(number: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    put_bytes(out, number, &body);
}
