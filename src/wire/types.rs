//! The field types of trimmed messages.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroI64;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::reader::{Reader, Value, WireError};
use super::splice::{put_bytes, put_varint_field};
use super::text::Str;
use super::{Field, Source, intern, message};

macro_rules! varint_field {
    ($($ty:ty: $from:expr, $to:expr;)*) => {$(
        impl Field for $ty {
            fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
                *self = $from(value.varint()?);
                Ok(())
            }

            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                if *self != <$ty>::default() {
                    put_varint_field(out, number, $to(*self));
                }
            }
        }

        impl Field for Option<$ty> {
            fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
                *self = Some($from(value.varint()?));
                Ok(())
            }

            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                if let Some(value) = *self {
                    put_varint_field(out, number, $to(value));
                }
            }
        }
    )*};
}

varint_field! {
    i32: |v: u64| v as i32, |v: i32| i64::from(v) as u64;
    i64: |v: u64| v as i64, |v: i64| v as u64;
    bool: |v: u64| v != 0, u64::from;
}

impl Field for Option<Str> {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Some(Str::from(value.text()?));
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(text) = self {
            put_bytes(out, number, text.as_bytes());
        }
    }

    fn intern(&mut self) {
        if let Some(text) = self {
            text.intern();
        }
    }
}

/// Lists; of strings and of messages, which are never packed.
impl<T: Field + ListItem> Field for Vec<T> {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut item = T::default();
        item.merge(value, source)?;
        self.push(item);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for item in self {
            let before = out.len();
            item.encode(number, out);
            if out.len() == before {
                put_bytes(out, number, &[]);
            }
        }
    }

    fn finish(&mut self) {
        self.shrink_to_fit();
    }

    fn intern(&mut self) {
        self.iter_mut().for_each(Field::intern);
    }
}

/// What may stand in a repeated field: everything length-delimited.
pub trait ListItem {}
impl ListItem for Str {}
impl<M: super::Message> ListItem for M {}

/// An optional message.
impl<M: super::Message + Field> Field for Option<Box<M>> {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.get_or_insert_default().merge(value, source)
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = self {
            put_bytes(out, number, &message.to_bytes());
        }
    }
}

/// `metav1.Time`: whole seconds since 1970, as the API serves it. Upstream's zero time is `None`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(NonZeroI64);

impl Time {
    /// From seconds since 1970; `None` for 0, which upstream treats as unset.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        NonZeroI64::new(seconds).map(Self)
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.0.get()
    }

    /// Seconds from `earlier` to `self`; negative when `self` is the earlier one.
    pub fn seconds_since(self, earlier: Time) -> i64 {
        self.seconds().saturating_sub(earlier.seconds())
    }

    /// The time `seconds` later; saturating.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(NonZeroI64::new(self.seconds().saturating_add(seconds)).unwrap_or(NonZeroI64::MIN))
    }
}

impl From<Timestamp> for Time {
    /// Truncates to the second, as the API does.
    fn from(at: Timestamp) -> Self {
        Self(NonZeroI64::new(at.as_second()).unwrap_or(NonZeroI64::MIN))
    }
}

impl fmt::Display for Time {
    /// RFC 3339, as in an object's JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_second(self.seconds()) {
            Ok(at) => write!(f, "{at}"),
            Err(_) => write!(f, "{}s", self.seconds()),
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Field for Option<Time> {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        let mut reader = Reader::new(value.bytes()?);
        let mut seconds = 0;
        while let Some((number, value)) = reader.next_field()? {
            if number == 1 {
                seconds = value.varint()? as i64;
            }
        }
        *self = Time::from_seconds(seconds);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(time) = self {
            let mut body = Vec::with_capacity(12);
            put_varint_field(&mut body, 1, time.seconds() as u64);
            put_bytes(out, number, &body);
        }
    }
}

/// A map of strings, sorted by key and shared by all objects that carry the same one: labels, annotations.
#[derive(Clone, Default)]
pub struct Labels(Pairs);

/// While it is decoded, a map grows in a list; finished, it is one interned slice, or nothing when empty.
#[derive(Clone, Default)]
enum Pairs {
    #[default]
    Empty,
    Growing(Vec<(Str, Str)>),
    Shared(Arc<intern::Pairs>),
}

impl Labels {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Str> {
        let pairs = self.as_slice();
        pairs.binary_search_by(|(held, _)| held.as_str().cmp(key)).ok().map(|at| &pairs[at].1)
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
            Pairs::Empty => &[],
            Pairs::Growing(pairs) => pairs,
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
        let mut map: BTreeMap<Str, Str> = self.as_slice().iter().cloned().collect();
        map.insert(Str::interned(key), Str::interned(value));
        map.into_iter().collect()
    }

    /// The same map without `key`.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        self.as_slice().iter().filter(|(held, _)| held != key).cloned().collect()
    }

    /// Keeps only the entries whose key is in `keys`: for kinds of which only a few annotations are read.
    pub fn retain_keys(&mut self, keys: &[&str]) {
        if self.as_slice().iter().any(|(key, _)| !keys.contains(&key.as_str())) {
            *self = self.as_slice().iter().filter(|(key, _)| keys.contains(&key.as_str())).cloned().collect();
        }
    }
}

impl FromIterator<(Str, Str)> for Labels {
    /// Later entries win over earlier ones with the same key.
    fn from_iter<I: IntoIterator<Item = (Str, Str)>>(entries: I) -> Self {
        let mut labels = Self(Pairs::Growing(entries.into_iter().collect()));
        labels.finish();
        labels
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Self {
        entries.into_iter().map(|(key, value)| (Str::interned(key), Str::interned(value))).collect()
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
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        let mut reader = Reader::new(value.bytes()?);
        let (mut key, mut content) = ("", "");
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.text()?,
                2 => content = value.text()?,
                _ => {}
            }
        }
        let entry = (Str::interned(key), Str::interned(content));
        match &mut self.0 {
            Pairs::Growing(pairs) => pairs.push(entry),
            held => {
                let mut pairs = match held {
                    Pairs::Shared(pairs) => pairs.to_vec(),
                    _ => Vec::with_capacity(4),
                };
                pairs.push(entry);
                *held = Pairs::Growing(pairs);
            }
        }
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self.iter() {
            put_bytes(out, number, &map_entry(key, value));
        }
    }

    fn finish(&mut self) {
        if let Pairs::Growing(pairs) = &mut self.0 {
            pairs.reverse();
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            pairs.dedup_by(|(a, _), (b, _)| a == b);
            self.0 = if pairs.is_empty() { Pairs::Empty } else { Pairs::Shared(intern::pairs(pairs)) };
        }
    }
}

/// The encoding of one map entry.
pub(super) fn map_entry(key: &str, value: &str) -> Vec<u8> {
    let mut entry = Vec::with_capacity(key.len() + value.len() + 4);
    put_bytes(&mut entry, 1, key.as_bytes());
    put_bytes(&mut entry, 2, value.as_bytes());
    entry
}

/// A part of an object that travels unparsed, unknown fields and all: a pod template. Shares its object's buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Raw(pub Bytes);

impl std::ops::Deref for Raw {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.0
    }
}

impl From<Bytes> for Raw {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Raw {
    /// The length only: what is in it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

impl Field for Raw {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let bytes = value.bytes()?;
        // A message that occurs twice is, by protobuf's rules, the concatenation of both.
        self.0 = if self.0.is_empty() {
            source.0.slice_ref(bytes)
        } else {
            Bytes::from([self.0.as_ref(), bytes].concat())
        };
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.0.is_empty() {
            put_bytes(out, number, &self.0);
        }
    }
}

/// `map<string, bytes>`: the data of a Secret. Its `Debug` shows keys and lengths only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Data(pub BTreeMap<Str, Box<[u8]>>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value.len()))).finish()
    }
}

impl Field for Data {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        let mut reader = Reader::new(value.bytes()?);
        let (mut key, mut content): (&str, &[u8]) = ("", &[]);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.text()?,
                2 => content = value.bytes()?,
                _ => {}
            }
        }
        self.0.insert(Str::interned(key), content.into());
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in &self.0 {
            let mut entry = Vec::with_capacity(key.len() + value.len() + 6);
            put_bytes(&mut entry, 1, key.as_bytes());
            put_bytes(&mut entry, 2, value);
            put_bytes(out, number, &entry);
        }
    }
}

message! {
    /// `intstr.IntOrString` as it is on the wire.
    pub(crate) struct WireIntOrString = "k8s.io.apimachinery.pkg.util.intstr.IntOrString" {
        1 => kind: i64,
        2 => int_val: i32,
        3 => str_val: Str,
    }
}

/// A number or a string such as `25%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    /// A plain number.
    Int(i32),
    /// Text, mostly a percentage.
    Str(Str),
}

impl Field for Option<IntOrString> {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut wire = WireIntOrString::default();
        wire.merge(value, source)?;
        *self = Some(if wire.kind == 0 {
            IntOrString::Int(wire.int_val)
        } else {
            IntOrString::Str(wire.str_val)
        });
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let wire = match self {
            None => return,
            Some(IntOrString::Int(int_val)) => WireIntOrString { int_val: *int_val, ..Default::default() },
            Some(IntOrString::Str(text)) => {
                WireIntOrString { kind: 1, str_val: text.clone(), ..Default::default() }
            }
        };
        put_bytes(out, number, &super::Message::to_bytes(&wire));
    }
}
