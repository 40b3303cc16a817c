//! Pod templates, compared as what they mean and named by a hash.
//!
//! A template reaches us as protobuf bytes, and its copy in a ReplicaSet carries one label more, `pod-template-hash`.
//! Two templates are the same when their **canonical forms** are: fields in the order of their numbers, map entries in the
//! order of their keys, quantities by value, without that label, without an unset creation time, and without fields that are newer than this
//! program ([`shapes`]). What the canonical form must never do is differ for equal templates, since every difference is a
//! roll-out of all pods:
//!
//! - An API server encodes a field that is not a pointer even when it is empty. While a control plane is upgraded, a
//!   Deployment may come from the old API server and its ReplicaSet from the new one, which knows more fields. So those
//!   that this program doesn't know don't count, exactly as in the original, which never sees them.
//! - Apart from these, presence counts: `runAsUser: 0` is not the same as none, nor is `affinity: {}`.
//!
//! The name of a ReplicaSet holds a hash of the canonical form. It is not the original's, which hashes a dump of its own
//! in-memory structures and changes with them; clients depend on its uniqueness and stability only. A ReplicaSet that
//! exists is recognized by its template, never by its hash, so that those the original made are taken over as they are.
//! Differs: template-hash.

use super::hash;
use super::quantity::Quantity;
use crate::api::core::PodTemplateSpec;
use crate::api::meta::ObjectMeta;
use crate::wire::splice::{Edit, edit, get, put_bytes};
use crate::wire::{Path, Raw, RawField, Reader, Value, WireError, field, path};

pub mod shapes;
#[cfg(test)]
mod tests;

use shapes::{Holds, Shape};

/// Label of ReplicaSets, their selectors, templates and pods: tells the templates of one Deployment apart.
pub const HASH_LABEL: &str = "pod-template-hash";

/// The only field of a `Quantity`.
const QUANTITY_TEXT: Path = &[1];
const LABELS: Path = path!(PodTemplateSpec, metadata.labels);
/// `ObjectMeta.creationTimestamp`, which templates never have and servers encode as an empty message.
const CREATION_TIMESTAMP: u32 = field!(ObjectMeta, creationTimestamp);

/// A template to compare others with.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its bytes without the hash label.
    plain: Raw,
    /// Its canonical form with quantities as it spells them.
    spelled: Raw,
    /// Its canonical form with quantities by value.
    canonical: Raw,
}

/// How like another template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It is the same, and spells all quantities alike.
    Spelled,
    /// It is the same.
    Same,
    /// It is another one.
    Different,
}

/// How a canonical form writes quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantities {
    /// By value, so that `1Gi` and `1073741824` are equal.
    ByValue,
    /// As the template spells them.
    AsSpelled,
}

impl Template {
    /// Reads an encoded `PodTemplateSpec`.
    pub fn new(encoded: &[u8]) -> Result<Self, WireError> {
        let plain = without_hash(encoded)?;
        let (spelled, canonical) =
            (canonical(&plain, Quantities::AsSpelled)?, canonical(&plain, Quantities::ByValue)?);
        Ok(Self { plain: Raw(plain.into()), spelled: Raw(spelled.into()), canonical: Raw(canonical.into()) })
    }

    /// Whether `encoded` is the same template, but for the hash label.
    pub fn is_same_as(&self, encoded: &[u8]) -> Result<bool, WireError> {
        Ok(self.likeness(encoded)? != Likeness::Different)
    }

    /// How like `encoded` is, but for the hash label.
    pub fn likeness(&self, encoded: &[u8]) -> Result<Likeness, WireError> {
        let plain = without_hash(encoded)?;
        // One server encodes equal templates equally, so this is nearly always the answer for equal ones.
        if plain == self.plain.as_ref() || canonical(&plain, Quantities::AsSpelled)? == self.spelled.as_ref()
        {
            return Ok(Likeness::Spelled);
        }
        // Without a quantity there is one spelling.
        let is_same = self.spelled.as_ref() != self.canonical.as_ref()
            && canonical(&plain, Quantities::ByValue)? == self.canonical.as_ref();
        Ok(if is_same { Likeness::Same } else { Likeness::Different })
    }

    /// The value of the hash label: differs with the template, and with the number of collisions met so far. Spellings of one
    /// quantity have different hashes: names that were given once must not change.
    pub fn hash(&self, collisions: Option<i32>) -> String {
        let salt = collisions.map(|count| u64::from(count as u32).to_le_bytes());
        let salt: &[u8] = salt.as_ref().map_or(&[], |bytes| bytes);
        hash::encode(hash::fnv1a([self.spelled.as_ref(), salt]))
    }

    /// The template's bytes, every field of them, without the hash label.
    pub fn unlabeled(encoded: &[u8]) -> Result<Vec<u8>, WireError> {
        without_hash(encoded)
    }

    /// The template's bytes, every field of them, with the hash label set.
    pub fn labeled(encoded: &[u8], hash: &str) -> Result<Vec<u8>, WireError> {
        edit(encoded, &[Edit::MapSet(LABELS, HASH_LABEL.to_owned(), hash.to_owned())])
    }
}

fn without_hash(encoded: &[u8]) -> Result<Vec<u8>, WireError> {
    edit(encoded, &[Edit::MapRemove(LABELS, HASH_LABEL.to_owned())])
}

fn canonical(encoded: &[u8], quantities: Quantities) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(encoded.len());
    put_canonical(encoded, shapes::POD_TEMPLATE, quantities, &mut out)?;
    Ok(out)
}

/// Appends the canonical form of a message to `out`.
fn put_canonical(
    encoded: &[u8],
    shape: &Shape,
    quantities: Quantities,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let mut fields: Vec<RawField<'_>> = Vec::with_capacity(16);
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_raw()? {
        if shape.field(field.0).is_some() {
            fields.push(field);
        }
    }
    fields.sort_by_key(|(number, ..)| *number);
    for occurrences in fields.chunk_by(|(a, ..), (b, ..)| a == b) {
        let number = occurrences[0].0;
        let Some(holds) = shape.field(number).map(|field| field.holds) else { continue };
        let by_value = quantities == Quantities::ByValue;
        if holds.is_map() {
            put_map(occurrences, by_value && matches!(holds, Holds::Amounts), out)?;
        } else if by_value && matches!(holds, Holds::Quantity) {
            for (_, value, _) in occurrences {
                put_bytes(out, number, &by_amount(value.bytes()?)?);
            }
        } else if let Some(inner) = holds.message() {
            for (_, value, _) in occurrences {
                put_message(number, value.bytes()?, inner, quantities, out)?;
            }
        } else {
            let set = occurrences.iter().filter(|(_, value, _)| !is_unset_time(shape, number, *value));
            out.extend(set.flat_map(|(_, _, raw)| *raw));
        }
    }
    Ok(())
}

fn put_message(
    number: u32,
    encoded: &[u8],
    shape: &Shape,
    quantities: Quantities,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let mut body = Vec::with_capacity(encoded.len());
    put_canonical(encoded, shape, quantities, &mut body)?;
    if !(body.is_empty() && shape.name == "ObjectMeta") {
        put_bytes(out, number, &body);
    }
    Ok(())
}

fn is_unset_time(shape: &Shape, number: u32, value: Value<'_>) -> bool {
    shape.name == "ObjectMeta" && number == CREATION_TIMESTAMP && value == Value::Bytes(&[])
}

/// The bytes of a quantity, with its value in billionths in place of its spelling. One that cannot be read is left as it is.
fn by_amount(encoded: &[u8]) -> Result<Vec<u8>, WireError> {
    let text = get(encoded, QUANTITY_TEXT)?.map(Value::bytes).transpose()?.unwrap_or_default();
    let amount = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Quantity>().ok());
    Ok(match amount {
        Some(amount) => {
            let mut out = Vec::with_capacity(24);
            put_bytes(&mut out, QUANTITY_TEXT[0], format!("{}n", amount.billionths()).as_bytes());
            out
        }
        None => encoded.to_vec(),
    })
}

/// Appends the entries of a map in the order of their keys; of entries with the same key the last one counts. The values of
/// `amounts` are written by value.
fn put_map(entries: &[RawField<'_>], amounts: bool, out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut by_key = Vec::with_capacity(entries.len());
    for (_, value, raw) in entries {
        let mut key: &[u8] = &[];
        let mut amount: &[u8] = &[];
        let mut reader = Reader::new(value.bytes()?);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.bytes()?,
                2 => amount = value.bytes()?,
                _ => {}
            }
        }
        by_key.push((key, amount, *raw));
    }
    by_key.sort_by_key(|(key, ..)| *key);
    for (at, (key, amount, raw)) in by_key.iter().enumerate() {
        if by_key.get(at + 1).is_some_and(|(next, ..)| next == key) {
            continue;
        }
        if amounts {
            // A key and a value cannot be taken for another pair: both have their length before them.
            put_bytes(out, 1, key);
            put_bytes(out, 2, &by_amount(amount)?);
        } else {
            out.extend_from_slice(raw);
        }
    }
    Ok(())
}
