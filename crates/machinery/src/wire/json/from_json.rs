//! From JSON to protobuf.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::merged::{Members, Repeated, put_merged};
use super::read::lossy_json;
use super::schema::{Cardinality, FieldType, MessageId, SCHEMA};
use super::{ASIDE, JsonError};
use crate::wire::envelope::{HeadMeta, RawExtension, WatchEvent};
use crate::wire::splice::{put_bytes, put_varint, put_varint_field};
use crate::wire::{MalformedTime, WallTime, field, wrap_envelope};

/// An event of a watch, as a line of JSON.
#[derive(Deserialize)]
struct Event<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The object in `json`, in protobuf and in its envelope.
///
/// # Errors
/// It is of no kind that is known, or a member is not of its type; items of a list that are so are made into objects that
/// cannot be decoded.
pub fn object_from_json(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    object(serde_json::from_str(&lossy_json(json))?, |message, value| encode_object(message, parse(value)?))
}

/// The event of a watch in a line of JSON, in protobuf: what stands behind the length of a frame.
///
/// # Errors
/// As of an object; one with a member that is not of its type is made into an object that cannot be decoded.
pub fn watch_event_from_json(line: &[u8]) -> Result<Vec<u8>, JsonError> {
    in_protobuf(&serde_json::from_str(&lossy_json(line))?, |_, value| object(value, encode_or_mark))
}

/// The event of a watch in a line of JSON, in protobuf. `encode` makes an object of a type of event into one in its envelope; not the `Status` of
/// an error.
pub(super) fn watch_event(
    line: &[u8],
    encode: impl FnOnce(&str, &RawValue) -> Result<Vec<u8>, JsonError>,
) -> Result<Vec<u8>, JsonError> {
    in_protobuf(&serde_json::from_str(&lossy_json(line))?, |kind, value| match kind {
        "ERROR" => object(value, encode_or_mark),
        _ => encode(kind, value),
    })
}

fn in_protobuf(
    event: &Event<'_>,
    encode: impl FnOnce(&str, &RawValue) -> Result<Vec<u8>, JsonError>,
) -> Result<Vec<u8>, JsonError> {
    let mut extension = Vec::new();
    put_bytes(&mut extension, field!(RawExtension, raw), &encode(&event.r#type, event.object)?);
    let mut out = Vec::with_capacity(extension.len() + 16);
    put_bytes(&mut out, field!(WatchEvent, type), event.r#type.as_bytes());
    put_bytes(&mut out, field!(WatchEvent, object), &extension);
    Ok(out)
}

/// Returns the group version or the kind of an object, by the name of the member.
pub(super) fn stated(members: &Members<'_>, name: &str) -> Result<String, JsonError> {
    match members.get(name) {
        Some(value) => text(value).map_err(|error| error.within(name)),
        None => Err(JsonError::new("missing member").within(name)),
    }
}

/// Refuses an object in which `apiVersion` or `kind` occurs twice or in a second spelling. Go reads these two members, and no others, in any
/// case of letters.
fn states_once(members: &Members<'_>) -> Result<(), JsonError> {
    // Go folds U+212A and U+017F to `k` and `s`.
    let fold = |char: char| match char {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        char => char.to_ascii_lowercase(),
    };
    for name in ["apiVersion", "kind"] {
        let is_spelling = |member: &str| member.chars().map(fold).eq(name.chars().map(fold));
        if members.names().any(|member| member != name && is_spelling(member)) {
            return Err(JsonError::new("unexpected spelling of the member").within(name));
        }
        if members.is_repeated(name) {
            return Err(JsonError::new("duplicate member").within(name));
        }
    }
    Ok(())
}

/// Returns an object of a kind of the table.
fn encode_object(message: MessageId, members: Members<'_>) -> Result<Vec<u8>, JsonError> {
    states_once(&members)?;
    encode(message, members, Repeated::Refused)
}

fn object(
    value: &RawValue,
    encode: impl FnOnce(MessageId, &RawValue) -> Result<Vec<u8>, JsonError>,
) -> Result<Vec<u8>, JsonError> {
    let members: Members<'_> = parse(value)?;
    let (api_version, kind) = (stated(&members, "apiVersion")?, stated(&members, "kind")?);
    let message = SCHEMA
        .of_kind(&api_version, &kind)
        .ok_or_else(|| JsonError::new(format!("unknown kind {kind} of {api_version}")))?;
    Ok(wrap_envelope(&api_version, &kind, &encode(message, value)?))
}

/// An object among others. If a member is not of its type, it is made into an object with the metadata alone, of which what names it
/// is enough, and a field that cannot be decoded: one that nobody can read must not keep others from being seen, as it does not in
/// protobuf.
fn encode_or_mark(message: MessageId, value: &RawValue) -> Result<Vec<u8>, JsonError> {
    let error = match parse(value).and_then(|members| encode_object(message, members)) {
        Ok(encoded) => return Ok(encoded),
        Err(error) => error,
    };
    let members: Members<'_> = parse(value).unwrap_or_default();
    let (place, _) = error.path.split_once('.').unwrap_or((&error.path, ""));
    let fields = SCHEMA.fields(message);
    let Some(metadata) = fields.first() else { return Err(error) };
    let failed = fields.iter().find(|field| field.name == place).unwrap_or(metadata);
    let mut out = Vec::new();
    // Two members `metadata` may name different objects.
    if let Some(held) = members.get(metadata.name)
        && !members.is_repeated(metadata.name)
    {
        let mut whole = Vec::new();
        let at = (metadata.number, metadata.cardinality, metadata.holds);
        if put(at, held, &mut whole).is_ok() {
            out = whole;
        } else {
            let members = parse(held).unwrap_or_default();
            put_bytes(&mut out, metadata.number, &head(&members, Repeated::Refused));
        }
    }
    mark(failed.number, &mut out);
    Ok(out)
}

/// Appends a field of four bytes, which no field of a kind is, so that the object cannot be decoded.
pub(super) fn mark(number: u32, out: &mut Vec<u8>) {
    put_varint(out, u64::from(number) << 3 | 5);
    out.extend([0; 4]);
}

/// Returns the part of metadata that identifies an object. If members that identify it occur twice, the last text of each counts where members
/// are merged; where they are refused, the object has no name.
pub(super) fn head(metadata: &Members<'_>, repeated: Repeated) -> Vec<u8> {
    let named = [
        ("name", field!(HeadMeta, name)),
        ("namespace", field!(HeadMeta, namespace)),
        ("uid", field!(HeadMeta, uid)),
        ("resourceVersion", field!(HeadMeta, resourceVersion)),
    ];
    if repeated == Repeated::Refused && named.iter().any(|(name, _)| metadata.is_repeated(name)) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (name, number) in named {
        if let Some(text) = metadata.all(name).iter().rev().find_map(|value| text(value).ok()) {
            put_bytes(&mut out, number, text.as_bytes());
        }
    }
    out
}

/// Returns a message with these members. Members that the table lacks are kept aside.
pub(super) fn encode(
    message: MessageId,
    mut members: Members<'_>,
    repeated: Repeated,
) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::with_capacity(256);
    take(message, &mut members, repeated, &mut out)?;
    let mut members = members.into_last();
    // Items of lists of metadata say what they are, which the list says already.
    if is_object(message) {
        members.remove("apiVersion");
        members.remove("kind");
    }
    if !members.is_empty() {
        put_bytes(&mut out, ASIDE, &serde_json::to_vec(&members)?);
    }
    Ok(out)
}

/// Whether a message is an object: its first field is its metadata.
fn is_object(message: MessageId) -> bool {
    SCHEMA.fields(message).first().is_some_and(|field| field.name == "metadata")
}

/// Appends the message's fields to `out`, and takes their members away.
fn take(
    message: MessageId,
    members: &mut Members<'_>,
    repeated: Repeated,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    for field in SCHEMA.fields(message) {
        if let (Cardinality::Flat, FieldType::Message(inner)) = (field.cardinality, field.holds) {
            let mut body = Vec::new();
            take(inner, members, repeated, &mut body)?;
            if !body.is_empty() {
                put_bytes(out, field.number, &body);
            }
            continue;
        }
        let done = match repeated {
            Repeated::Merged => put_merged(field, &members.take_all(field.name), out),
            Repeated::Refused => match (members.take_one(field.name), field.holds) {
                (Err(error), _) => Err(error),
                (Ok(None), _) => continue,
                (Ok(Some(value)), FieldType::Message(inner)) if field.name == "items" && is_object(inner) => {
                    put_objects(field.number, inner, value, out)
                }
                (Ok(Some(value)), holds) => put((field.number, field.cardinality, holds), value, out),
            },
        };
        done.map_err(|error| error.within(field.name))?;
    }
    Ok(())
}

/// The objects of a list of objects.
fn put_objects(
    number: u32,
    message: MessageId,
    value: &RawValue,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    for item in parse::<Vec<&RawValue>>(value)? {
        put_bytes(out, number, &encode_or_mark(message, item)?);
    }
    Ok(())
}

fn put(
    (number, cardinality, holds): (u32, Cardinality, FieldType),
    value: &RawValue,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    match cardinality {
        Cardinality::One | Cardinality::Flat => put_value((number, holds), value, out),
        Cardinality::List => {
            let items: Vec<&RawValue> = parse(value)?;
            for (at, item) in items.into_iter().enumerate() {
                put_value((number, holds), item, out).map_err(|error| error.within(&at.to_string()))?;
            }
            Ok(())
        }
        Cardinality::Map => {
            let entries: BTreeMap<String, &RawValue> = parse(value)?;
            for (key, value) in entries {
                put_entry((number, holds), &key, value, out)?;
            }
            Ok(())
        }
    }
}

/// Appends an entry of a map. A null is an entry without a value.
pub(super) fn put_entry(
    (number, holds): (u32, FieldType),
    key: &str,
    value: &RawValue,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, key.as_bytes());
    if !is_null(value) {
        put_value((2, holds), value, &mut entry).map_err(|error| error.within(key))?;
    }
    put_bytes(out, number, &entry);
    Ok(())
}

pub(super) fn put_value(
    (number, holds): (u32, FieldType),
    value: &RawValue,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    match holds {
        FieldType::Text => put_bytes(out, number, text(value)?.as_bytes()),
        FieldType::Int => put_varint_field(out, number, i64::from(parse::<i32>(value)?) as u64),
        FieldType::Long => put_varint_field(out, number, parse::<i64>(value)? as u64),
        FieldType::Bool => put_varint_field(out, number, u64::from(parse::<bool>(value)?)),
        FieldType::Bytes => {
            let bytes =
                BASE64_STANDARD.decode(text(value)?).map_err(|error| JsonError::new(error.to_string()))?;
            put_bytes(out, number, &bytes);
        }
        FieldType::Quantity => {
            // A number is a quantity too. Go refuses a quantity with an escape.
            if value.get().contains('\\') {
                return Err(JsonError::new("a quantity has an escape sequence"));
            }
            let spelt = text(value).unwrap_or_else(|_| value.get().to_owned());
            nested(number, out, |body| put_bytes(body, 1, spelt.trim().as_bytes()));
        }
        FieldType::Time | FieldType::MicroTime => {
            let text = text(value)?;
            let at = if holds == FieldType::Time { text.parse() } else { WallTime::parse_micro(&text) };
            let at = at.map_err(|error: MalformedTime| JsonError::new(error.to_string()))?;
            nested(number, out, |body| {
                if !at.is_unset() {
                    put_varint_field(body, 1, at.seconds() as u64);
                    put_varint_field(body, 2, u64::from(at.subsec_nanoseconds()));
                }
            });
        }
        FieldType::IntOrString => put_int_or_string(number, value, out)?,
        FieldType::Texts => {
            let items: Vec<String> = parse(value)?;
            nested(number, out, |body| {
                for item in &items {
                    put_bytes(body, 1, item.as_bytes());
                }
            });
        }
        FieldType::Json => nested(number, out, |body| put_bytes(body, 1, value.get().as_bytes())),
        FieldType::Message(inner) => {
            put_bytes(out, number, &encode(inner, parse(value)?, Repeated::Refused)?);
        }
    }
    Ok(())
}

fn put_int_or_string(number: u32, value: &RawValue, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut body = Vec::new();
    if value.get().starts_with('"') {
        put_varint_field(&mut body, 1, 1);
        put_varint_field(&mut body, 2, 0);
        put_bytes(&mut body, 3, text(value)?.as_bytes());
    } else {
        put_varint_field(&mut body, 1, 0);
        put_varint_field(&mut body, 2, i64::from(parse::<i32>(value)?) as u64);
        put_bytes(&mut body, 3, b"");
    }
    put_bytes(out, number, &body);
    Ok(())
}

fn nested(number: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    put_bytes(out, number, &body);
}

pub(super) fn text(value: &RawValue) -> Result<String, JsonError> {
    parse(value)
}

pub(super) fn parse<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, JsonError> {
    Ok(serde_json::from_str(value.get())?)
}

pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}
