//! Objects of any kind in JSON, read as their metadata alone: answers of API servers that offer no protobuf, or that ignore what they are
//! asked for.
//!
//! Such a server may be anybody's, so nothing is relied on. An object of a list whose metadata is missing or malformed is made into one that
//! cannot be decoded: it exists, and keeps none of the others from being seen. Members that occur several times are merged
//! as by Go, and the reader skips members that it does not need: users write these objects, and a refused object would be hidden from quotas
//! and collection.

use serde_json::value::RawValue;

use super::JsonError;
use super::from_json::{encode, head, mark, stated, text, watch_event};
use super::merged::{Members, Repeated, elements};
use super::read::lossy_json;
use super::schema::SCHEMA;
use crate::wire::splice::put_bytes;
use crate::wire::wrap_envelope;

const API_VERSION: &str = "meta.k8s.io/v1";
/// The numbers of the fields that each object and each list has.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Returns the metadata of an object: a `PartialObjectMetadata` in protobuf, in its envelope.
///
/// # Errors
/// The text is no JSON or no object, or its metadata is malformed or lacks a name.
pub fn metadata_from_json(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let json = lossy_json(json);
    let members: Members<'_> = serde_json::from_str(&json)?;
    if type_of(&members)? == ("v1".to_owned(), "Status".to_owned()) {
        return Err(JsonError::new("the response is a Status, not an object"));
    }
    let encoded = metadata(&members).and_then(|(out, name)| named(&name).map(|()| out))?;
    Ok(wrap_envelope(API_VERSION, "PartialObjectMetadata", &encoded))
}

/// Returns the metadata of a list and of its items: a `PartialObjectMetadataList` in protobuf, in its envelope.
///
/// # Errors
/// The text is no JSON or no list. Items that are malformed are made into objects that cannot be decoded.
pub fn metadata_list_from_json(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let json = lossy_json(json);
    let mut members: Members<'_> = serde_json::from_str(&json)?;
    let (api_version, kind) = type_of(&members)?;
    let is_status = api_version == "v1" && kind == "Status";
    // A list may be of any kind.
    if is_status || !kind.ends_with("List") && !members.contains("items") {
        return Err(JsonError::new("the object is not a list").within("kind"));
    }
    let mut out = Vec::new();
    if !members.all("metadata").is_empty() {
        put_message("meta.v1.ListMeta", inner(&members)?, &mut out)?;
    }
    let items = elements(&members.take_all("items"), |_| Ok(()));
    for item in items.map_err(|error| error.within("items"))? {
        put_bytes(&mut out, ITEMS, &metadata_or_mark(&item, true));
    }
    Ok(wrap_envelope(API_VERSION, "PartialObjectMetadataList", &out))
}

/// Returns an event of a watch whose object is read as its metadata, in protobuf without the length of its frame.
///
/// # Errors
/// The line is no event. An object that is malformed is made into one that cannot be decoded.
pub fn metadata_event_from_json(line: &[u8]) -> Result<Vec<u8>, JsonError> {
    watch_event(line, |kind, object| {
        // A bookmark is an object without a name.
        let encoded = metadata_or_mark(&[object], kind != "BOOKMARK");
        Ok(wrap_envelope(API_VERSION, "PartialObjectMetadata", &encoded))
    })
}

/// The group version and the kind that an object states.
fn type_of(members: &Members<'_>) -> Result<(String, String), JsonError> {
    Ok((stated(members, "apiVersion")?, stated(members, "kind")?))
}

/// Returns the members of all members `metadata`.
fn inner<'a>(members: &Members<'a>) -> Result<Members<'a>, JsonError> {
    Members::merge(&members.all("metadata")).map_err(|error| error.within("metadata"))
}

/// Returns the encoded metadata of an object, and its name.
fn metadata(members: &Members<'_>) -> Result<(Vec<u8>, String), JsonError> {
    if members.all("metadata").is_empty() {
        return Err(JsonError::new("missing member").within("metadata"));
    }
    let fields = inner(members)?;
    let name = fields.get("name").map_or(Ok(String::new()), text);
    let mut out = Vec::new();
    put_message("meta.v1.ObjectMeta", fields, &mut out)?;
    Ok((out, name?))
}

fn named(name: &str) -> Result<(), JsonError> {
    if name.is_empty() {
        return Err(JsonError::new("missing member").within("name").within("metadata"));
    }
    Ok(())
}

/// An object among others, of the values that Go reads into it. If a value or its metadata is malformed, or if it lacks a name that it must
/// have, it is made into an object that cannot be decoded, with as much as names it.
fn metadata_or_mark(values: &[&RawValue], has_name: bool) -> Vec<u8> {
    let mut members = Members::default();
    let mut is_malformed = false;
    for &value in values {
        match Members::merge(&[value]) {
            Ok(following) => members.extend(following),
            Err(_) => is_malformed = true,
        }
    }
    match metadata(&members) {
        Ok((out, name)) if !is_malformed && (!has_name || !name.is_empty()) => out,
        _ => {
            let mut named = Members::default();
            for value in members.all("metadata") {
                // A value that is no object names nothing.
                if let Ok(members) = Members::merge(&[value]) {
                    named.extend(members);
                }
            }
            let mut out = Vec::new();
            put_bytes(&mut out, METADATA, &head(&named, Repeated::Merged));
            mark(METADATA, &mut out);
            out
        }
    }
}

/// Appends metadata, which is the first field of each object and list.
fn put_message(name: &'static str, members: Members<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let message = SCHEMA.named(name).ok_or_else(|| JsonError::new(format!("unknown member {name}")))?;
    let encoded = encode(message, members, Repeated::Merged);
    put_bytes(out, METADATA, &encoded.map_err(|error| error.within("metadata"))?);
    Ok(())
}
