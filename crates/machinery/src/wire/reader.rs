//! Reading fields off the wire. Bounds are checked; malformed input is an error, never a panic.

use std::borrow::Cow;

use thiserror::Error;

use super::text::held_text;

/// Why bytes are not the message that they should be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("malformed protobuf{}: {what}", if path.is_empty() { String::new() } else { format!(" in {path}") })]
pub struct WireError {
    /// Dotted path of field names, outermost first; empty at the top.
    path: String,
    what: &'static str,
}

impl WireError {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { path: String::new(), what }
    }

    /// The same error, found one level further out.
    #[must_use]
    pub(crate) fn within(mut self, field: &str) -> Self {
        self.path = if self.path.is_empty() { field.to_owned() } else { format!("{field}.{}", self.path) };
        self
    }
}

/// A field's value as the wire format has it, before its type is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Integers, booleans and enumerations.
    Varint(u64),
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64(u64),
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32(u32),
    /// Strings, bytes, messages and map entries.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The payload of a length-delimited field.
    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::new("expected a length-delimited value")),
        }
    }

    /// The payload of a varint field.
    pub fn varint(self) -> Result<u64, WireError> {
        match self {
            Value::Varint(value) => Ok(value),
            _ => Err(WireError::new("expected a varint")),
        }
    }

    /// The payload as text, in the text form of its bytes.
    pub fn text(self) -> Result<Cow<'a, str>, WireError> {
        Ok(held_text(self.bytes()?))
    }
}

/// A field's number, its value, and its whole encoding with the tag.
pub type RawField<'a> = (u32, Value<'a>, &'a [u8]);

/// A cursor over the fields of one message.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and value, or `None` at the end.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        // Go's numbers of fields have a sign.
        let number = u32::try_from(tag >> 3).ok().filter(|number| number >> 31 == 0);
        let number = number.ok_or_else(|| WireError::new("field number out of range"))?;
        if number == 0 {
            return Err(WireError::new("field number 0"));
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| WireError::new("length out of range"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(WireError::new("groups and unknown wire types are not supported")),
        };
        Ok(Some((number, value)))
    }

    /// Like [`Reader::next_field`], with the field's whole encoding (tag included) as a third element.
    pub fn next_raw(&mut self) -> Result<Option<RawField<'a>>, WireError> {
        let before = self.rest;
        Ok(self.next_field()?.map(|(number, value)| {
            let used = before.len() - self.rest.len();
            (number, value, &before[..used])
        }))
    }

    /// Nearly all tags and lengths are one byte.
    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(WireError::new("varint is truncated or too long"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| WireError::new("value is truncated"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
}
