//! Changing fields of an encoded object while every other byte stays as it is.
//!
//! A protobuf message is a list of fields. To write an object back with another status, all its other fields are
//! copied untouched, known to us or not. Paths are field numbers from the outside in, looked up by name
//! ([`super::path`]); a message on the path that is absent is created. This module never interprets what it copies.
//!
//! Each pass copies the message. Successive edits of different keys of one map take one pass together, because users choose the
//! number of keys.

use std::borrow::Cow;

use super::labels::map_entry_of;
use super::path::Path;
use super::reader::{Reader, Value, WireError};
use super::text::raw_bytes;
use super::types::map_entry;
use crate::random::{HashMap, HashSet};

/// One change to an encoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The field at `path` holds exactly this message or byte string.
    SetBytes(Path, Vec<u8>),
    /// The field at `path` holds exactly this integer or boolean.
    SetVarint(Path, u64),
    /// The field at `path` is gone.
    Clear(Path),
    /// The string map at `path` has `key` set to `value`.
    MapSet(Path, String, String),
    /// The byte map at `path` (a Secret's data) has `key` set to `value`.
    MapSetBytes(Path, String, Vec<u8>),
    /// The map at `path` no longer has `key`.
    MapRemove(Path, String),
    /// The list at `path` has one more item, this message.
    Push(Path, Vec<u8>),
}

impl Edit {
    /// The field at `path` holds exactly this string: the bytes with this text form.
    pub fn set_text(path: Path, text: &str) -> Self {
        Self::SetBytes(path, raw_bytes(text).into_owned())
    }

    /// The list at `path` has one more item, the string with this text form.
    pub fn push_text(path: Path, text: &str) -> Self {
        Self::Push(path, raw_bytes(text).into_owned())
    }

    fn path(&self) -> Path {
        match self {
            Edit::SetBytes(path, _)
            | Edit::SetVarint(path, _)
            | Edit::Clear(path)
            | Edit::MapSet(path, ..)
            | Edit::MapSetBytes(path, ..)
            | Edit::MapRemove(path, _)
            | Edit::Push(path, _) => path,
        }
    }

    /// The key of a map that the edit concerns, as bytes.
    fn map_key(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Edit::MapSet(_, key, _) | Edit::MapSetBytes(_, key, _) | Edit::MapRemove(_, key) => {
                Some(raw_bytes(key))
            }
            Edit::SetBytes(..) | Edit::SetVarint(..) | Edit::Clear(_) | Edit::Push(..) => None,
        }
    }
}

/// `message` with all `edits` made, in order.
pub fn edit(message: &[u8], edits: &[Edit]) -> Result<Vec<u8>, WireError> {
    let mut current: Option<Vec<u8>> = None;
    for run in runs(edits) {
        if let [first, ..] = run {
            current = Some(apply(current.as_deref().unwrap_or(message), run, first.path())?);
        }
    }
    Ok(current.unwrap_or_else(|| message.to_vec()))
}

/// Splits edits into those that take one pass together: edits of different keys of one map, or a single edit.
pub(super) fn runs(edits: &[Edit]) -> impl Iterator<Item = &[Edit]> {
    let mut rest = edits;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let (mut keys, mut length) = (HashSet::default(), 0);
        for edit in rest {
            let is_next = edit.path() == first.path() && edit.map_key().is_some_and(|key| keys.insert(key));
            if !is_next {
                break;
            }
            length += 1;
        }
        let length = length.max(1);
        let (run, after) = rest.split_at(length);
        rest = after;
        Some(run)
    })
}

/// `message` in which each of these fields, encoded with their tags, stands in place of what it has of that number.
pub fn replace_fields(message: &[u8], fields: &[(u32, Vec<u8>)]) -> Result<Vec<u8>, WireError> {
    let mut missing: Vec<&(u32, Vec<u8>)> = fields.iter().collect();
    let mut out = Vec::with_capacity(message.len() + 64);
    let mut reader = Reader::new(message);
    while let Some((number, _, raw)) = reader.next_raw()? {
        if let Some(at) = missing.iter().position(|(field, _)| *field == number) {
            out.extend_from_slice(&missing.remove(at).1);
        } else if !fields.iter().any(|(field, _)| *field == number) {
            out.extend_from_slice(raw);
        }
    }
    for (_, encoded) in missing {
        out.extend_from_slice(encoded);
    }
    Ok(out)
}

/// A copy of `message`, of exactly its size, without field `inner` of the messages in field `outer`.
pub fn without(message: &[u8], outer: u32, inner: u32) -> Result<Vec<u8>, WireError> {
    let mut size = 0;
    let mut reader = Reader::new(message);
    while let Some((number, value, raw)) = reader.next_raw()? {
        size += if number == outer {
            let kept = kept_size(value.bytes()?, inner)?;
            varint_size(u64::from(outer) << 3) + varint_size(kept as u64) + kept
        } else {
            raw.len()
        };
    }
    let mut out = Vec::with_capacity(size);
    let mut reader = Reader::new(message);
    while let Some((number, value, raw)) = reader.next_raw()? {
        if number != outer {
            out.extend_from_slice(raw);
            continue;
        }
        let body = value.bytes()?;
        put_varint(&mut out, u64::from(outer) << 3 | 2);
        put_varint(&mut out, kept_size(body, inner)? as u64);
        let mut body = Reader::new(body);
        while let Some((number, _, raw)) = body.next_raw()? {
            if number != inner {
                out.extend_from_slice(raw);
            }
        }
    }
    Ok(out)
}

fn kept_size(body: &[u8], dropped: u32) -> Result<usize, WireError> {
    let mut size = 0;
    let mut reader = Reader::new(body);
    while let Some((number, _, raw)) = reader.next_raw()? {
        if number != dropped {
            size += raw.len();
        }
    }
    Ok(size)
}

fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Makes the edits of one run.
fn apply(message: &[u8], run: &[Edit], path: &[u32]) -> Result<Vec<u8>, WireError> {
    let Some((&field, deeper)) = path.split_first() else {
        return Err(WireError::new("empty path of an edit"));
    };
    if deeper.is_empty() {
        return match run {
            [edit] => apply_here(message, edit, field),
            edits => apply_to_map(message, edits, field),
        };
    }
    let mut out = Vec::with_capacity(message.len() + 64);
    let mut reader = Reader::new(message);
    let mut found = false;
    while let Some((number, value, raw)) = reader.next_raw()? {
        if number == field && !found {
            found = true;
            put_bytes(&mut out, field, &apply(value.bytes()?, run, deeper)?);
        } else {
            out.extend_from_slice(raw);
        }
    }
    if !found {
        let inner = apply(&[], run, deeper)?;
        if !inner.is_empty() {
            put_bytes(&mut out, field, &inner);
        }
    }
    Ok(out)
}

fn apply_here(message: &[u8], edit: &Edit, field: u32) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(message.len() + 64);
    let mut reader = Reader::new(message);
    let mut written = false;
    while let Some((number, value, raw)) = reader.next_raw()? {
        let replaced = number == field
            && match edit {
                Edit::SetBytes(..) | Edit::SetVarint(..) | Edit::Clear(_) => true,
                Edit::MapSet(_, key, _) | Edit::MapSetBytes(_, key, _) | Edit::MapRemove(_, key) => {
                    *map_entry_of(value)?.0 == *raw_bytes(key)
                }
                Edit::Push(..) => false,
            };
        if !replaced {
            out.extend_from_slice(raw);
        } else if !written {
            written = true;
            put_new(&mut out, field, edit);
        }
    }
    if !written {
        put_new(&mut out, field, edit);
    }
    Ok(out)
}

/// Makes edits of different keys of the map `field`.
fn apply_to_map(message: &[u8], edits: &[Edit], field: u32) -> Result<Vec<u8>, WireError> {
    let keyed = edits.iter().enumerate().filter_map(|(at, edit)| Some((edit.map_key()?, at)));
    let by_key: HashMap<Cow<'_, [u8]>, usize> = keyed.collect();
    let mut pending: Vec<Option<&Edit>> = edits.iter().map(Some).collect();
    let mut out = Vec::with_capacity(message.len() + 64);
    let mut reader = Reader::new(message);
    while let Some((number, value, raw)) = reader.next_raw()? {
        let at = if number == field { by_key.get(map_entry_of(value)?.0) } else { None };
        match at {
            None => out.extend_from_slice(raw),
            Some(at) => {
                if let Some(edit) = pending.get_mut(*at).and_then(Option::take) {
                    put_new(&mut out, field, edit);
                }
            }
        }
    }
    for edit in pending.into_iter().flatten() {
        put_new(&mut out, field, edit);
    }
    Ok(out)
}

fn put_new(out: &mut Vec<u8>, field: u32, edit: &Edit) {
    match edit {
        Edit::SetBytes(_, bytes) | Edit::Push(_, bytes) => put_bytes(out, field, bytes),
        Edit::SetVarint(_, value) => put_varint_field(out, field, *value),
        Edit::MapSet(_, key, value) => put_bytes(out, field, &map_entry(key, value)),
        Edit::MapSetBytes(_, key, value) => put_entry(out, field, &raw_bytes(key), value),
        Edit::Clear(_) | Edit::MapRemove(..) => {}
    }
}

/// `message` with only those items of its list `field` that `keep` accepts; all else is untouched.
pub fn retain_items(
    message: &[u8],
    field: u32,
    mut keep: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(message.len());
    let mut reader = Reader::new(message);
    while let Some((number, value, raw)) = reader.next_raw()? {
        if number != field || keep(value.bytes()?) {
            out.extend_from_slice(raw);
        }
    }
    Ok(out)
}

/// The field at `path`, last occurrence; `None` when it or a message on the way is absent.
pub fn get<'a>(message: &'a [u8], path: &[u32]) -> Result<Option<Value<'a>>, WireError> {
    let Some((&field, deeper)) = path.split_first() else {
        return Ok(None);
    };
    let mut reader = Reader::new(message);
    let mut found = None;
    while let Some((number, value)) = reader.next_field()? {
        if number == field {
            found = Some(value);
        }
    }
    match found {
        Some(value) if !deeper.is_empty() => get(value.bytes()?, deeper),
        found => Ok(found),
    }
}

/// Appends a base-128 varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint field.
pub fn put_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a length-delimited field.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a string: the bytes with this text form.
pub fn put_text(out: &mut Vec<u8>, number: u32, text: &str) {
    put_bytes(out, number, &raw_bytes(text));
}

/// Appends an entry of a map whose values are length-delimited.
pub fn put_entry(out: &mut Vec<u8>, number: u32, key: &[u8], value: &[u8]) {
    let mut entry = Vec::with_capacity(key.len() + value.len() + 6);
    put_bytes(&mut entry, 1, key);
    put_bytes(&mut entry, 2, value);
    put_bytes(out, number, &entry);
}
