//! Coxswain's reading of objects in protobuf next to that of Kubernetes' types, for each kind of the table.
//!
//! Both readings are decoded by Coxswain: the bytes, and what Go makes of them in protobuf again. So all fields that a controller reads are
//! compared. The parts of a text are a group version, a kind, and bytes in text form. Marks begin and end sections whose length
//! precedes them, so that a shorter text still has the right lengths.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Value, json};

use super::kind::Kind;
use super::kinds;
use crate::model::quantity::Quantity;
use crate::oracle::{Comparison, KnownRefusal, Random, SEPARATOR, Translation};
use crate::wire::json::schema::{Cardinality, Field, FieldType, MessageId, SCHEMA};
use crate::wire::splice::{get, put_bytes, put_varint, put_varint_field};
use crate::wire::text::{held_text, raw_bytes};
use crate::wire::{self, RawField, Reader, WireError};

const OPEN: char = '«';
const CLOSE: char = '»';

/// The group version and the kind of objects of which only metadata is read.
const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// Depth from which on messages are empty.
const DEEPEST: usize = 7;

/// Returns the rows of a kind.
fn rows(api_version: &str, kind: &str) -> Vec<&'static Kind> {
    let is_row = |row: &Kind| {
        if row.metadata_only {
            (api_version, kind) == METADATA
        } else {
            row.kind == kind && row.api_version() == api_version
        }
    };
    kinds::ALL.iter().copied().filter(|row| is_row(row)).collect()
}

/// Whether a controller reads the kind.
pub(crate) fn is_read(api_version: &str, kind: &str) -> bool {
    !rows(api_version, kind).is_empty()
}

/// Returns all that controllers see of an object; `None` if the kind is unknown, or one of its rows refuses the object.
pub(crate) fn seen(api_version: &str, kind: &str, object: &Bytes) -> Option<Value> {
    let rows = rows(api_version, kind);
    let object = &match SCHEMA.of_kind(api_version, kind) {
        Some(message) => Bytes::from(with_plain_sources(message, object).ok()?),
        None => object.clone(),
    };
    let decoded = rows
        .iter()
        .map(|row| (row.decode)(object).ok().map(|object| without_lengths(&format!("{object:?}"))));
    let shown: Vec<String> = decoded.collect::<Option<_>>()?;
    (!shown.is_empty()).then(|| json!({ "object": shown }))
}

/// Brings the sources of volumes, which are kept undecoded, into one form: Go writes them in full, and merges messages.
fn with_plain_sources(message: MessageId, bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    if SCHEMA.named("core.v1.VolumeSource") == Some(message) {
        return plain(message, bytes);
    }
    let mut out = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, value, raw)) = reader.next_raw()? {
        match (field_of(message, number), value) {
            (
                Some(Field { holds: FieldType::Message(inner), cardinality, .. }),
                wire::Value::Bytes(bytes),
            ) if *cardinality != Cardinality::Map => {
                put_bytes(&mut out, number, &with_plain_sources(*inner, bytes)?);
            }
            _ => out.extend_from_slice(raw),
        }
    }
    Ok(out)
}

/// Returns a message without zeros and unknown fields, in which each field that is no list occurs once.
fn plain(message: MessageId, bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut parts = BTreeMap::<u32, Vec<u8>>::new();
    let mut entries = BTreeMap::<(u32, Vec<u8>), Vec<u8>>::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, value, raw)) = reader.next_raw()? {
        let Some(field) = field_of(message, number) else { continue };
        let part = parts.entry(number).or_default();
        let value = match (field.holds, value) {
            (FieldType::Int, wire::Value::Varint(value)) => {
                wire::Value::Varint(i64::from(value as i32) as u64)
            }
            (FieldType::Bool, wire::Value::Varint(value)) => wire::Value::Varint(u64::from(value != 0)),
            (_, value) => value,
        };
        match (field.cardinality, field.holds, value) {
            (Cardinality::One | Cardinality::Flat, FieldType::Message(_), wire::Value::Bytes(bytes)) => {
                part.extend_from_slice(bytes);
            }
            (Cardinality::One, _, wire::Value::Varint(0) | wire::Value::Bytes(&[]))
            | (Cardinality::One, FieldType::Quantity, wire::Value::Bytes(b"\n\x01\x30")) => part.clear(),
            (Cardinality::One, _, wire::Value::Varint(value)) => {
                part.clear();
                put_varint_field(part, number, value);
            }
            (Cardinality::One, ..) => raw.clone_into(part),
            (Cardinality::List, FieldType::Message(inner), wire::Value::Bytes(bytes)) => {
                put_bytes(part, number, &plain(inner, bytes)?);
            }
            (Cardinality::Map, _, wire::Value::Bytes(entry)) => {
                let text = |number| -> Result<Vec<u8>, WireError> {
                    Ok(get(entry, &[number])?.map_or(Ok(&[][..]), wire::Value::bytes)?.to_vec())
                };
                entries.insert((number, text(1)?), text(2)?);
            }
            _ => part.extend_from_slice(raw),
        }
    }
    let mut out = Vec::new();
    for (number, part) in parts {
        match field_of(message, number) {
            Some(Field { holds: FieldType::Message(inner), cardinality, .. })
                if matches!(cardinality, Cardinality::One | Cardinality::Flat) =>
            {
                let body = plain(*inner, &part)?;
                // Go has no absent ones.
                if !body.is_empty() || *cardinality == Cardinality::One {
                    put_bytes(&mut out, number, &body);
                }
            }
            _ => out.extend(part),
        }
    }
    for ((number, key), value) in entries {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, &key);
        put_bytes(&mut entry, 2, &value);
        put_bytes(&mut out, number, &entry);
    }
    Ok(out)
}

fn field_of(message: MessageId, number: u32) -> Option<&'static Field> {
    SCHEMA.fields(message).iter().find(|field| field.number == number)
}

/// Removes the lengths of parts that are kept undecoded: fields that no controller reads are absent from Go's bytes.
fn without_lengths(shown: &str) -> String {
    const PART: &str = "Raw(";
    let mut parts = shown.split(PART);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        all.push_str(PART);
        all.push_str(rest);
    }
    // Go's type has no absent target port: the API server always writes one.
    all.replace("target_port: None", "target_port: Some(Int(0))")
}

/// Returns what controllers see of an object that Go wrote.
pub(crate) fn seen_by_go(api_version: &str, kind: &str, reading: &Value) -> Option<Value> {
    let digits = reading["object"].as_str()?;
    let bytes: Option<Vec<u8>> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    seen(api_version, kind, &bytes?.into())
}

/// Returns the parts of a text.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (api_version, rest) = text.split_once(SEPARATOR)?;
    let (kind, encoded) = rest.split_once(SEPARATOR)?;
    Some((api_version, kind, encoded))
}

/// Returns the bytes of the last part of a text.
fn compiled(encoded: &str) -> Vec<u8> {
    let (mut out, mut outer) = (Vec::new(), Vec::new());
    let close = |out: &mut Vec<u8>, outer: &mut Vec<Vec<u8>>| {
        if let Some(enclosing) = outer.pop() {
            let body = std::mem::replace(out, enclosing);
            put_varint(out, body.len() as u64);
            out.extend(body);
        }
    };
    for char in encoded.chars() {
        match char {
            OPEN => outer.push(std::mem::take(&mut out)),
            CLOSE => close(&mut out, &mut outer),
            char => out.extend_from_slice(&raw_bytes(char.encode_utf8(&mut [0; 4]))),
        }
    }
    while !outer.is_empty() {
        close(&mut out, &mut outer);
    }
    out
}

/// Why the wire format of an object is not what Go writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// A field is malformed, or of another type than the table's. Controllers skip fields that they do not read; Go reads all.
    Malformed,
    /// A group, which Go skips.
    Group,
    /// A number of a field of more than 31 bits, which Go cuts off.
    LongNumber,
    /// A key or a value of a map with another wire type, which Go does not look at, or one that is longer than its entry.
    Entry,
    /// Numbers of a list in one field.
    Packed,
}

/// Returns an object in which amounts are in canonical form, as Go writes them.
pub(crate) fn canonical(api_version: &str, kind: &str, object: &[u8]) -> Result<Vec<u8>, Oddity> {
    match SCHEMA.of_kind(api_version, kind) {
        Some(message) => walk(message, object),
        None => Ok(object.to_vec()),
    }
}

fn walk(message: MessageId, bytes: &[u8]) -> Result<Vec<u8>, Oddity> {
    let fields = SCHEMA.fields(message);
    let mut out = Vec::new();
    for_each(bytes, |(number, value, raw)| {
        let Some(field) = fields.iter().find(|field| field.number == number) else {
            out.extend_from_slice(raw);
            return Ok(());
        };
        let is_number = matches!(field.holds, FieldType::Int | FieldType::Long | FieldType::Bool);
        match (field.cardinality, value) {
            (Cardinality::Map, wire::Value::Bytes(entry)) => {
                let entry = walk_entry(field.holds, entry).map_err(|oddity| match oddity {
                    Oddity::Malformed => Oddity::Entry,
                    oddity => oddity,
                })?;
                put_bytes(&mut out, number, &entry);
            }
            (Cardinality::List, wire::Value::Bytes(_)) if is_number => return Err(Oddity::Packed),
            _ => walk_value(number, field.holds, (value, raw), &mut out)?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn walk_entry(holds: FieldType, entry: &[u8]) -> Result<Vec<u8>, Oddity> {
    let (mut out, mut has_value) = (Vec::new(), false);
    for_each(entry, |(number, value, raw)| {
        if matches!(number, 1 | 2) && value.bytes().is_err() {
            return Err(Oddity::Entry);
        }
        if number != 2 {
            out.extend_from_slice(raw);
            return Ok(());
        }
        has_value = true;
        walk_value(number, holds, (value, raw), &mut out)
    })?;
    if !has_value && holds == FieldType::Quantity {
        put_bytes(&mut out, 2, &amount(&[])?);
    }
    Ok(out)
}

/// The contents of an amount in canonical form. Go reads one without text as 0, and refuses an empty text.
fn amount(bytes: &[u8]) -> Result<Vec<u8>, Oddity> {
    let mut text = "0".to_owned();
    for_each(bytes, |(number, value, _)| {
        if number == 1 {
            text = value.text().map_err(|_| Oddity::Malformed)?.into_owned();
        }
        Ok(())
    })?;
    let amount: Quantity = text.parse().map_err(|_| Oddity::Malformed)?;
    let mut out = Vec::new();
    put_bytes(&mut out, 1, amount.to_string().as_bytes());
    Ok(out)
}

/// Appends a field whose contents are of the right types.
fn walk_value(
    number: u32,
    holds: FieldType,
    (value, raw): (wire::Value<'_>, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), Oddity> {
    let malformed = |_| Oddity::Malformed;
    let bytes = || value.bytes().map_err(malformed);
    // Numbers of fields with varints, and of those with bytes.
    let check = |varints: &[u32], texts: &[u32]| {
        for_each(bytes()?, |(number, value, _)| match number {
            number if varints.contains(&number) => value.varint().map(drop).map_err(malformed),
            number if texts.contains(&number) => value.bytes().map(drop).map_err(malformed),
            _ => Ok(()),
        })
    };
    match holds {
        FieldType::Int | FieldType::Long | FieldType::Bool => value.varint().map(drop).map_err(malformed)?,
        FieldType::Text | FieldType::Bytes => bytes().map(|_| ())?,
        FieldType::Json | FieldType::Texts => check(&[], &[1])?,
        FieldType::Time | FieldType::MicroTime => check(&[1, 2], &[])?,
        FieldType::IntOrString => check(&[1, 2], &[3])?,
        FieldType::Quantity => {
            put_bytes(out, number, &amount(bytes()?)?);
            return Ok(());
        }
        FieldType::Message(inner) => {
            put_bytes(out, number, &walk(inner, bytes()?)?);
            return Ok(());
        }
    }
    out.extend_from_slice(raw);
    Ok(())
}

fn for_each<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(RawField<'a>) -> Result<(), Oddity>,
) -> Result<(), Oddity> {
    let mut reader = Reader::new(bytes);
    loop {
        match reader.next_raw() {
            Ok(None) => return Ok(()),
            Ok(Some(field)) => each(field)?,
            Err(error) => {
                let error = error.to_string();
                let is_group = error.contains("groups");
                let is_long = error.contains("field number out of range");
                return Err(if is_group {
                    Oddity::Group
                } else if is_long {
                    Oddity::LongNumber
                } else {
                    Oddity::Malformed
                });
            }
        }
    }
}

fn oddity(text: &str) -> Option<Oddity> {
    let (api_version, kind, encoded) = parts(text)?;
    canonical(api_version, kind, &compiled(encoded)).err()
}

fn read(text: &str) -> Option<Value> {
    let (api_version, kind, encoded) = parts(text)?;
    seen(api_version, kind, &canonical(api_version, kind, &compiled(encoded)).ok()?.into())
}

/// Why Coxswain refuses an object.
fn refusal(text: &str) -> String {
    let Some((api_version, kind, encoded)) = parts(text) else { return String::new() };
    let object: Bytes = compiled(encoded).into();
    let error = rows(api_version, kind).iter().find_map(|row| (row.decode)(&object).err());
    error.map(|error| error.to_string()).unwrap_or_default()
}

/// Appends bytes in text form.
fn put(bytes: &[u8], out: &mut String) {
    // The bytes are no characters: each is on its own.
    out.extend(bytes.iter().map(|byte| held_text(&[*byte]).into_owned()));
}

fn put_number(number: u64, out: &mut String) {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, number);
    put(&bytes, out);
}

fn put_section(number: u32, out: &mut String, fill: impl FnOnce(&mut String)) {
    put_number(u64::from(number) << 3 | 2, out);
    out.push(OPEN);
    fill(out);
    out.push(CLOSE);
}

fn put_text(number: u32, text: &str, out: &mut String) {
    put_section(number, out, |out| put(text.as_bytes(), out));
}

fn put_int(number: u32, value: u64, out: &mut String) {
    put_number(u64::from(number) << 3, out);
    put_number(value, out);
}

/// Texts of fields.
const TEXTS: &[&str] = &[
    "",
    "a",
    "web",
    "kube-system",
    "app",
    "app.kubernetes.io/name",
    "True",
    "In",
    "Exists",
    "25%",
    "500m",
    "64Gi",
    "requests.cpu",
    "Background",
    "8a9f6e2c-0d1b-4c3a-9e77-0123456789ab",
    "8A9F6E2C-0D1B-4C3A-9E77-0123456789AB",
    "0",
    "18446744073709551616",
    "a/b",
    "{}",
    "\u{e9}\u{10ffff}",
    "a longer text that is not kept within the field",
];

fn number(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => random.one_of(&[&(1_u64 << 31), &(1 << 32), &(1 << 63), &0xffff_ffff, &0x7fff_ffff]).to_owned(),
        4 => (random.below(1 << 40) as u64) << random.below(24),
        _ => random.below(300) as u64,
    }
}

/// Seconds of times, among them those of Go's zero time.
fn seconds(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => number(random),
        1 => (-62_135_596_800_i64) as u64,
        _ => 1_767_268_800 + random.below(1_000_000) as u64,
    }
}

fn put_value(number_of: u32, holds: FieldType, depth: usize, random: &mut Random, out: &mut String) {
    match holds {
        FieldType::Int | FieldType::Long | FieldType::Bool => put_int(number_of, number(random), out),
        FieldType::Text | FieldType::Bytes if random.one_in(20) => {
            put_section(number_of, out, |out| put(&[random.byte(), random.byte()], out));
        }
        FieldType::Text | FieldType::Bytes => put_text(number_of, random.one_of(TEXTS), out),
        FieldType::Quantity => put_section(number_of, out, |out| {
            put_text(1, random.one_of(&["1", "500m", "64Gi", "", "x", "1e3", "1000m"]), out);
        }),
        FieldType::Json => put_section(number_of, out, |out| {
            put_text(1, random.one_of(&["{}", "null", r#"{"a":1}"#, "", "x"]), out);
        }),
        FieldType::Texts => put_section(number_of, out, |out| {
            for _ in 0..random.below(3) {
                put_text(1, random.one_of(TEXTS), out);
            }
        }),
        FieldType::Time | FieldType::MicroTime => put_section(number_of, out, |out| {
            if !random.one_in(10) {
                put_int(1, seconds(random), out);
            }
            if random.one_in(3) {
                put_int(2, number(random), out);
            }
        }),
        FieldType::IntOrString => put_section(number_of, out, |out| {
            if !random.one_in(5) {
                put_int(1, random.below(3) as u64, out);
            }
            if !random.one_in(5) {
                put_int(2, number(random), out);
            }
            if !random.one_in(3) {
                put_text(3, random.one_of(TEXTS), out);
            }
        }),
        FieldType::Message(inner) => {
            put_section(number_of, out, |out| put_message(inner, depth + 1, random, out));
        }
    }
}

fn put_field(field: &Field, depth: usize, random: &mut Random, out: &mut String) {
    let times = match field.cardinality {
        Cardinality::One | Cardinality::Flat => 1 + usize::from(random.one_in(12)),
        Cardinality::List | Cardinality::Map => 1 + random.below(3),
    };
    for _ in 0..times {
        if field.cardinality == Cardinality::Map {
            put_section(field.number, out, |out| {
                if !random.one_in(12) {
                    put_text(1, random.one_of(TEXTS), out);
                }
                if !random.one_in(12) {
                    put_value(2, field.holds, depth, random, out);
                }
                if random.one_in(20) {
                    put_unknown(random, out);
                }
            });
        } else {
            put_value(field.number, field.holds, depth, random, out);
        }
    }
}

/// Appends a field that no message has.
fn put_unknown(random: &mut Random, out: &mut String) {
    let number = 900 + random.below(100) as u64;
    match random.below(4) {
        0 => put_int(number as u32, random.below(1 << 50) as u64, out),
        1 => put_text(number as u32, random.one_of(TEXTS), out),
        2 => {
            put_number(number << 3 | 1, out);
            put(&[random.byte(), 0, 0, 0, 0, 0, 0, random.byte()], out);
        }
        _ => {
            put_number(number << 3 | 5, out);
            put(&[random.byte(), 0, 0, random.byte()], out);
        }
    }
}

fn put_message(message: MessageId, depth: usize, random: &mut Random, out: &mut String) {
    if depth > DEEPEST {
        return;
    }
    let fields = SCHEMA.fields(message);
    for field in fields {
        let is_part = if depth == 0 { !random.one_in(4) } else { random.below(fields.len().max(4)) < 3 };
        if is_part {
            put_field(field, depth, random, out);
        }
    }
    if random.one_in(10) {
        put_unknown(random, out);
    }
    // The order of fields has no meaning.
    if !fields.is_empty() && random.one_in(10) {
        put_field(&fields[random.below(fields.len())], depth, random, out);
    }
}

/// Returns a kind that controllers read: its group version, and its name.
pub(crate) fn any_kind(random: &mut Random) -> (String, &'static str) {
    let row = kinds::ALL[random.below(kinds::ALL.len())];
    if row.metadata_only { (METADATA.0.to_owned(), METADATA.1) } else { (row.api_version(), row.kind) }
}

fn generate(random: &mut Random) -> String {
    let (api_version, kind) = any_kind(random);
    let mut text = String::new();
    let _ = write!(text, "{api_version}{SEPARATOR}{kind}{SEPARATOR}");
    if let Some(message) = SCHEMA.of_kind(&api_version, kind) {
        put_message(message, 0, random, &mut text);
    }
    text
}

fn asked(text: &str) -> Vec<u8> {
    let Some((api_version, kind, encoded)) = parts(text) else { return text.as_bytes().to_vec() };
    let mut asked = format!("{api_version}{SEPARATOR}{kind}{SEPARATOR}").into_bytes();
    asked.extend(compiled(encoded));
    asked
}

fn understood(text: &str, reading: Value) -> Value {
    let Some((api_version, kind, _)) = parts(text) else { return reading };
    seen_by_go(api_version, kind, &reading).unwrap_or(reading)
}

#[test]
fn every_kind_of_the_table_has_fields() {
    let kinds = kinds::ALL.iter().filter(|row| !row.metadata_only);
    for row in kinds {
        assert!(SCHEMA.of_kind(&row.api_version(), row.kind).is_some(), "{row}");
    }
}

#[test]
fn sections_have_their_lengths_in_front() {
    assert_eq!(compiled("\n«a«\u{10ff80}»"), b"\n\x03a\x01\x80");
    assert_eq!(compiled("»\n"), b"\n");
}

#[test]
fn objects_in_protobuf_are_never_read_differently() {
    Comparison {
        question: "object",
        seeds: &[
            "v1\u{1f}Pod\u{1f}\n«\n«a»»",
            "v1\u{1f}Binding\u{1f}\n«\n«a»»",
            "v1\u{1f}Pod\u{1f}\n«\n«a»»\u{b}\u{c}",
            "v1\u{1f}Pod\u{1f}\u{12}«\u{12}«\n«c»*«\u{8}\u{10}»»»",
            "apps/v1\u{1f}Deployment\u{1f}\u{12}«\u{8}\u{3}\u{12}«\n«\n«app»\u{12}«web»»»\u{1a}«\n««»»»»",
            "v1\u{1f}Service\u{1f}\u{12}«\u{12}«\n«app»\u{10}\u{1}»»",
        ],
        words: &[
            "«",
            "»",
            "\u{8}",
            "\n",
            "\u{10}",
            "\u{12}",
            "\u{10}\u{10ff80}\u{1}",
            "\u{b}\u{c}",
            "\u{10ffff}",
        ],
        generate,
        read,
        refusals: &[
            KnownRefusal {
                reason: "no controller reads the kind. Differs: no",
                covers: |text, _| {
                    parts(text).is_none_or(|(api_version, kind, _)| !is_read(api_version, kind))
                },
            },
            KnownRefusal {
                reason: "no API server sends groups, or packs numbers. Differs: strict-encodings",
                covers: |text, _| matches!(oddity(text), Some(Oddity::Group | Oddity::Packed)),
            },
            KnownRefusal {
                reason: "Go cuts off numbers of fields with more than 32 bits. Differs: strict-encodings",
                covers: |text, _| oddity(text) == Some(Oddity::LongNumber),
            },
            KnownRefusal {
                reason: "Go does not look at the wire types of keys and values of a map, nor at the end of their entry. Differs: strict-encodings",
                covers: |text, _| oddity(text) == Some(Oddity::Entry),
            },
            KnownRefusal {
                reason: "no API server writes a field twice; Go merges both. Differs: strict-encodings",
                covers: |text, _| {
                    let refusal = refusal(text);
                    refusal.contains("occurs twice") || refusal.contains("duplicate number or string")
                },
            },
        ],
        differences: &[],
    }
    .run_translated(Translation { ask: asked, understand: understood });
}
