//! [`Labels`]: string maps that many objects share.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::reader::{Reader, Value, WireError};
use super::splice::put_bytes;
use super::text::{Str, held_text};
use super::types::map_entry;
use super::{Field, Source, intern};

/// A map of strings, sorted by key and shared by all objects that carry the same one: labels, annotations.
#[derive(Clone, Default)]
pub struct Labels(Pairs);

#[derive(Clone)]
enum Pairs {
    /// While it is decoded, a map is a list of places in the buffer; empty maps stay like this and cost nothing.
    Growing(Option<Box<Places>>),
    /// Finished: one shared, sorted slice.
    Shared(Arc<intern::Pairs>),
}

impl Default for Pairs {
    fn default() -> Self {
        Self::Growing(None)
    }
}

/// Where the entries of a map begin and end in the buffer that is being decoded.
type Places = SmallVec<[Range<usize>; 12]>;

impl Labels {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Str> {
        self.find(key.as_bytes())
    }

    /// The same for a key that is at hand as it is kept: its text need not be looked at.
    pub fn value_of(&self, key: &Str) -> Option<&Str> {
        self.find(key.bytes())
    }

    fn find(&self, key: &[u8]) -> Option<&Str> {
        let pairs = self.as_slice();
        pairs.binary_search_by(|(held, _)| held.bytes().cmp(key)).ok().map(|at| &pairs[at].1)
    }

    /// Whether `key` is there.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Str)> {
        self.as_slice().iter().map(|(key, value)| (key, value))
    }

    /// All entries, by key.
    pub fn as_slice(&self) -> &[(Str, Str)] {
        match &self.0 {
            Pairs::Growing(_) => &[],
            Pairs::Shared(pairs) => pairs,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The same map with `key` set to `value`.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        let mut map: BTreeMap<&str, &str> = self.iter().map(|(key, value)| (&**key, &**value)).collect();
        map.insert(key, value);
        map.into_iter().collect()
    }

    /// The same map without `key`.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        self.iter().filter(|(held, _)| *held != key).map(|(key, value)| (&**key, &**value)).collect()
    }

    /// The shared map of these entries; later ones win over earlier ones with the same key.
    fn share<T: AsRef<str>>(mut pairs: SmallVec<[(T, T); 12]>) -> Self {
        pairs.reverse();
        pairs.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        pairs.dedup_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
        Self(if pairs.is_empty() { Pairs::default() } else { Pairs::Shared(intern::pairs(&pairs)) })
    }

    fn note(&mut self, entry: &[u8], source: Source<'_>) -> Result<(), WireError> {
        let start = (entry.as_ptr() as usize).wrapping_sub(source.buffer.as_ptr() as usize);
        let place = start..start.wrapping_add(entry.len());
        if source.buffer.get(place.clone()).is_none() {
            return Err(WireError::new("a map entry is outside of the buffer"));
        }
        match &mut self.0 {
            Pairs::Growing(places) => places.get_or_insert_default().push(place),
            // The enclosing message occurred twice and is finished for the second time.
            Pairs::Shared(_) => {
                let (key, value) = read_entry(entry)?;
                *self = self.with(&key, &value);
            }
        }
        Ok(())
    }
}

impl FromIterator<(Str, Str)> for Labels {
    /// Later entries win over earlier ones with the same key.
    fn from_iter<I: IntoIterator<Item = (Str, Str)>>(entries: I) -> Self {
        let entries: Vec<(Str, Str)> = entries.into_iter().collect();
        entries.iter().map(|(key, value)| (&**key, &**value)).collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    /// Later entries win over earlier ones with the same key.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Self {
        Self::share::<&str>(entries.into_iter().collect())
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Pairs::Shared(a), Pairs::Shared(b)) if Arc::ptr_eq(a, b) => true,
            _ => self.as_slice() == other.as_slice(),
        }
    }
}

impl Eq for Labels {}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Field for Labels {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.note(value.bytes()?, source)
    }

    fn merge_selected(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let unread = match source.keep.annotations {
            None => false,
            Some(read) => !is_key_among(value, read)?,
        };
        if unread { Ok(()) } else { self.merge(value, source) }
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self.iter() {
            put_bytes(out, number, &map_entry(key, value));
        }
    }

    fn finish(&mut self, source: Source<'_>) -> Result<(), WireError> {
        if let Pairs::Growing(Some(places)) = &self.0 {
            let mut pairs = SmallVec::with_capacity(places.len());
            for place in places.iter() {
                pairs.push(read_entry(source.buffer.get(place.clone()).unwrap_or_default())?);
            }
            *self = Self::share(pairs);
        }
        Ok(())
    }
}

/// Whether the key of a map's entry, or what else is its first field, is one of these.
pub(super) fn is_key_among(entry: Value<'_>, keys: &[&str]) -> Result<bool, WireError> {
    let (key, _) = map_entry_of(entry)?;
    Ok(keys.iter().any(|held| held.as_bytes() == key))
}

/// Key and value of a map's entry.
pub(super) fn map_entry_of(entry: Value<'_>) -> Result<(&[u8], &[u8]), WireError> {
    let mut reader = Reader::new(entry.bytes()?);
    let (mut key, mut content): (&[u8], &[u8]) = (&[], &[]);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => key = value.bytes()?,
            2 => content = value.bytes()?,
            _ => {}
        }
    }
    Ok((key, content))
}

fn read_entry(entry: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), WireError> {
    let (key, content) = map_entry_of(Value::Bytes(entry))?;
    Ok((held_text(key), held_text(content)))
}
