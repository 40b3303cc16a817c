//! The field types of trimmed messages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::reader::{RawField, Reader, Value, WireError};
use super::splice::{put_bytes, put_entry, put_text, put_varint_field};
use super::text::{Str, raw_bytes};
use super::uid::Uid;
use super::{Field, MessageRow, Source, message};

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
        *self = Some(Str::from(&*value.text()?));
        Ok(())
    }

    fn merge_interned(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Some(Str::interned(&value.text()?));
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(text) = self {
            put_text(out, number, text);
        }
    }
}

/// Lists; of strings and of messages, which are never packed.
impl<T: Field + ListItem> Field for Vec<T> {
    const MESSAGE: Option<&'static MessageRow> = T::MESSAGE;

    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut item = T::default();
        item.merge(value, source)?;
        push(self, item);
        Ok(())
    }

    fn merge_interned(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut item = T::default();
        item.merge_interned(value, source)?;
        push(self, item);
        Ok(())
    }

    fn copy_value(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        T::copy_value(field, out)
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

    fn finish(&mut self, _: Source<'_>) -> Result<(), WireError> {
        self.shrink_to_fit();
        Ok(())
    }
}

/// Most lists have one item: it gets room for one, which need not be given back.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

/// What may stand in a repeated field: everything length-delimited.
pub trait ListItem {}
impl ListItem for Str {}
impl ListItem for Uid {}
impl ListItem for Raw {}
impl<M: super::Message> ListItem for M {}

/// Numbers, which upstream never packs.
impl Field for Vec<i32> {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        self.push(value.varint()? as i32);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for value in self {
            put_varint_field(out, number, i64::from(*value) as u64);
        }
    }
}

/// An optional message.
impl<M: super::Message + Field> Field for Option<Box<M>> {
    const MESSAGE: Option<&'static MessageRow> = Some(M::ROW);

    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.get_or_insert_default().merge(value, source)
    }

    fn copy_value(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        M::copy_value(field, out)
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = self {
            put_bytes(out, number, &message.to_bytes());
        }
    }
}

/// The encoding of one map entry.
pub(super) fn map_entry(key: &str, value: &str) -> Vec<u8> {
    let mut entry = Vec::with_capacity(key.len() + value.len() + 4);
    put_text(&mut entry, 1, key);
    put_text(&mut entry, 2, value);
    entry
}

/// Defines types of bytes that nobody parses. They share the buffer of their object. Their `Debug` shows the length only: the bytes may be
/// secret.
macro_rules! unparsed {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Default, PartialEq, Eq)]
            pub struct $name(pub Bytes);

            impl std::ops::Deref for $name {
                type Target = Bytes;

                fn deref(&self) -> &Bytes {
                    &self.0
                }
            }

            impl From<Bytes> for $name {
                fn from(bytes: Bytes) -> Self {
                    Self(bytes)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, "{}({} bytes)", stringify!($name), self.0.len())
                }
            }
        )*
    };
}

unparsed! {
    /// A part of an object that travels unparsed, unknown fields and all: a pod template.
    Raw;
    /// Bytes that are no message: a certificate, or JSON. The last occurrence counts.
    Contents;
}

impl Field for Raw {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let bytes = value.bytes()?;
        // A message that occurs twice is, by protobuf's rules, the concatenation of both.
        self.0 = if self.0.is_empty() {
            source.buffer.slice_ref(bytes)
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

impl Field for Contents {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.0 = source.buffer.slice_ref(value.bytes()?);
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
        let (mut key, mut content): (Cow<'_, str>, &[u8]) = (Cow::Borrowed(""), &[]);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.text()?,
                2 => content = value.bytes()?,
                _ => {}
            }
        }
        self.0.insert(Str::interned(&key), content.into());
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in &self.0 {
            put_entry(out, number, &raw_bytes(key), value);
        }
    }
}

/// `map<string, Quantity>`: amounts of resources, as they are written (`500m`, `64Gi`), by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantities(Vec<(Str, Str)>);

impl Quantities {
    /// The amount of a resource.
    pub fn get(&self, resource: &str) -> Option<&Str> {
        self.place(resource).ok().map(|at| &self.0[at].1)
    }

    /// All amounts, by resource.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Str)> {
        self.0.iter().map(|(resource, amount)| (resource, amount))
    }

    /// Whether there is no amount.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of resources.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps the resources that are wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|(resource, _)| wanted(resource));
        self.0.shrink_to_fit();
    }

    /// The encoding of one entry.
    pub fn entry(resource: &str, amount: &str) -> Vec<u8> {
        let mut quantity = Vec::with_capacity(amount.len() + 2);
        put_text(&mut quantity, 1, amount);
        let mut entry = Vec::with_capacity(resource.len() + quantity.len() + 4);
        put_text(&mut entry, 1, resource);
        put_bytes(&mut entry, 2, &quantity);
        entry
    }

    fn place(&self, resource: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| held.as_str().cmp(resource))
    }

    /// Sets the amount of a resource.
    pub fn insert(&mut self, resource: &str, amount: &str) {
        self.set(Str::interned(resource), Str::interned(amount));
    }

    fn set(&mut self, resource: Str, amount: Str) {
        match self.place(&resource) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (resource, amount)),
        }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Quantities {
    /// Later amounts win over earlier ones of the same resource.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(amounts: I) -> Self {
        let mut quantities = Self::default();
        for (resource, amount) in amounts {
            quantities.insert(resource, amount);
        }
        quantities
    }
}

impl Field for Quantities {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        let mut reader = Reader::new(value.bytes()?);
        let (mut key, mut amount) = (Cow::Borrowed(""), Cow::Borrowed(""));
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.text()?,
                2 => {
                    let mut quantity = Reader::new(value.bytes()?);
                    while let Some((number, value)) = quantity.next_field()? {
                        if number == 1 {
                            amount = value.text()?;
                        }
                    }
                }
                _ => {}
            }
        }
        self.insert(&key, &amount);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (resource, amount) in self.iter() {
            put_bytes(out, number, &Self::entry(resource, amount));
        }
    }

    fn finish(&mut self, _: Source<'_>) -> Result<(), WireError> {
        self.0.shrink_to_fit();
        Ok(())
    }
}

/// A map of strings to something else, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map<V>(Vec<(Str, V)>);

impl<V> Map<V> {
    /// What `key` is mapped to.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Maps `key` to `value`.
    pub fn insert(&mut self, key: &str, value: V) {
        match self.place(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (Str::from(key), value)),
        }
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| held.as_str().cmp(key))
    }
}

impl<V: Field> Field for Map<V> {
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut reader = Reader::new(value.bytes()?);
        let (mut key, mut content) = (Cow::Borrowed(""), V::default());
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => key = value.text()?,
                2 => content.merge(value, source)?,
                _ => {}
            }
        }
        self.insert(&key, content);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self.iter() {
            let mut entry = Vec::new();
            put_text(&mut entry, 1, key);
            value.encode(2, &mut entry);
            put_bytes(out, number, &entry);
        }
    }

    fn finish(&mut self, _: Source<'_>) -> Result<(), WireError> {
        self.0.shrink_to_fit();
        Ok(())
    }
}

message! {
    schema SCHEMA;

    /// `intstr.IntOrString` as it is on the wire.
    pub(crate) struct WireIntOrString = "k8s.io.apimachinery.pkg.util.intstr.IntOrString" {
        1 => r#type: i64,
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
        if self.is_some() {
            // Go merges both.
            return Err(WireError::new("duplicate number or string"));
        }
        let mut wire = WireIntOrString::default();
        wire.merge(value, source)?;
        *self = Some(if wire.r#type == 0 {
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
                WireIntOrString { r#type: 1, str_val: text.clone(), ..Default::default() }
            }
        };
        put_bytes(out, number, &super::Message::to_bytes(&wire));
    }
}
