//! Members that occur several times in one object.
//!
//! API servers write each member of their own kinds once, so a second one is refused there ([`Repeated::Refused`]). An aggregated API server
//! may store the JSON of its users unchanged, and kube-controller-manager reads its objects with Go, which reads all members of one name into
//! the same place, in their order ([`Repeated::Merged`]):
//!
//! | type | a further value | a null |
//! |---|---|---|
//! | string, number, boolean | replaces the value | changes nothing; unsets a pointer |
//! | struct | sets the members that it has | changes nothing |
//! | map | sets the entries that it has; a value is replaced | unsets the map |
//! | list | is read into the elements that the list had, in their order | unsets the list |
//! | time, any JSON | replaces the value | unsets the value |

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::JsonError;
use super::from_json::{encode, is_null, parse, put_entry, put_value};
use super::schema::{Cardinality, Field, FieldType};
use crate::wire::splice::put_bytes;

/// Rule for a message in which a member of the table occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// The message is refused. An API server that knows the kind writes no such object.
    Refused,
    /// The members are merged as by Go. Any user may have written the object, which must not be hidden.
    Merged,
}

/// The members of an object with their unparsed values.
#[derive(Default)]
pub(super) struct Members<'a> {
    /// The last value of each name that is not null, or null.
    last: BTreeMap<String, &'a RawValue>,
    /// All values of names that occur more than once, in their order.
    repeated: BTreeMap<String, Vec<&'a RawValue>>,
}

impl<'a> Members<'a> {
    /// Returns the members of objects that Go reads into the same struct, one after the other. Nulls have none.
    ///
    /// # Errors
    /// A value is no object.
    pub(super) fn merge(values: &[&'a RawValue]) -> Result<Self, JsonError> {
        let mut members = Self::default();
        for value in values.iter().filter(|value| !is_null(value)) {
            members.extend(parse(value)?);
        }
        Ok(members)
    }

    /// Adds the members of an object that follows.
    pub(super) fn extend(&mut self, following: Self) {
        for (name, values) in following.into_all() {
            for value in values {
                self.add(name.clone(), value);
            }
        }
    }

    fn add(&mut self, name: String, value: &'a RawValue) {
        match self.last.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            Entry::Occupied(mut entry) => {
                let first = *entry.get();
                self.repeated.entry(entry.key().clone()).or_insert_with(|| vec![first]).push(value);
                if !is_null(value) {
                    entry.insert(value);
                }
            }
        }
    }

    /// Returns the last value of this name that is not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.last.get(name).copied().filter(|value| !is_null(value))
    }

    /// Returns all values of this name that are not null, in their order.
    pub(super) fn all(&self, name: &str) -> Vec<&'a RawValue> {
        let mut values = match self.repeated.get(name) {
            Some(values) => values.clone(),
            None => self.last.get(name).copied().into_iter().collect(),
        };
        values.retain(|value| !is_null(value));
        values
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.last.contains_key(name)
    }

    pub(super) fn is_repeated(&self, name: &str) -> bool {
        self.repeated.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.last.keys().map(String::as_str)
    }

    /// Takes the value of a name that must not occur twice. Null is no value.
    pub(super) fn take_one(&mut self, name: &str) -> Result<Option<&'a RawValue>, JsonError> {
        if self.repeated.contains_key(name) {
            return Err(JsonError::new("duplicate member"));
        }
        Ok(self.last.remove(name).filter(|value| !is_null(value)))
    }

    /// Takes all values of a name with its nulls, in their order.
    pub(super) fn take_all(&mut self, name: &str) -> Vec<&'a RawValue> {
        let last = self.last.remove(name);
        self.repeated.remove(name).unwrap_or_else(|| last.into_iter().collect())
    }

    /// Returns each name with all its values in their order.
    fn into_all(self) -> impl Iterator<Item = (String, Vec<&'a RawValue>)> {
        let Self { last, mut repeated } = self;
        last.into_iter().map(move |(name, value)| {
            let values = repeated.remove(&name).unwrap_or_else(|| vec![value]);
            (name, values)
        })
    }

    /// Returns one value of each name that was not taken.
    pub(super) fn into_last(self) -> BTreeMap<String, &'a RawValue> {
        self.last
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = entries.next_entry::<String, &RawValue>()? {
                    members.add(name, value);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Appends a field to `out` whose member has these values. As in Go, a value of another type is an error, though a later one may replace it.
pub(super) fn put_merged(field: &Field, values: &[&RawValue], out: &mut Vec<u8>) -> Result<(), JsonError> {
    match field.cardinality {
        Cardinality::One | Cardinality::Flat => {
            if !values.iter().all(|value| is_null(value)) {
                out.extend(merged(field, values)?);
            }
        }
        Cardinality::Map => {
            let mut entries = BTreeMap::<String, Vec<u8>>::new();
            for value in values {
                if is_null(value) {
                    entries.clear();
                    continue;
                }
                for (key, values) in parse::<Members<'_>>(value)?.into_all() {
                    for value in values {
                        let mut entry = Vec::new();
                        put_entry((field.number, field.holds), &key, value, &mut entry)?;
                        entries.insert(key.clone(), entry);
                    }
                }
            }
            out.extend(entries.into_values().flatten());
        }
        Cardinality::List => {
            // An item of another type is an error, though no element may be left of it.
            let elements = elements(values, |item| merged(field, &[item]).map(drop))?;
            for (at, element) in elements.iter().enumerate() {
                let encoded = merged(field, element).map_err(|error| error.within(&at.to_string()))?;
                if encoded.is_empty() {
                    // An element of nulls alone is an empty string: metadata has lists of strings and of messages.
                    put_bytes(out, field.number, b"");
                }
                out.extend(encoded);
            }
        }
    }
    Ok(())
}

/// Returns the values that Go reads into each element of a list whose member has these values. `check` is called for each item, and its error
/// has the position of the item.
pub(super) fn elements<'a>(
    values: &[&'a RawValue],
    check: impl Fn(&'a RawValue) -> Result<(), JsonError>,
) -> Result<Vec<Vec<&'a RawValue>>, JsonError> {
    // Go keeps elements behind the end of a shorter list, and a longer one that follows shows them again.
    let mut elements = Vec::<Vec<&RawValue>>::new();
    let mut length = 0;
    for &value in values {
        let items: Vec<&RawValue> = if is_null(value) { Vec::new() } else { parse(value)? };
        length = items.len();
        if length == 0 {
            elements.clear();
        }
        elements.resize_with(elements.len().max(length), Vec::new);
        for (at, (element, item)) in elements.iter_mut().zip(items).enumerate() {
            check(item).map_err(|error| error.within(&at.to_string()))?;
            element.push(item);
        }
    }
    elements.truncate(length);
    Ok(elements)
}

/// Returns the encoded value that Go has after it has read these into one place, or nothing if it is unset.
fn merged(field: &Field, values: &[&RawValue]) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    if let FieldType::Message(message) = field.holds {
        put_bytes(&mut out, field.number, &encode(message, Members::merge(values)?, Repeated::Merged)?);
        return Ok(out);
    }
    let null_unsets =
        field.pointer || matches!(field.holds, FieldType::Time | FieldType::MicroTime | FieldType::Json);
    for value in values {
        if is_null(value) {
            if null_unsets {
                out.clear();
            }
            continue;
        }
        let mut read = Vec::new();
        put_value((field.number, field.holds), value, &mut read)?;
        out = read;
    }
    Ok(out)
}
