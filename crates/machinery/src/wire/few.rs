//! [`Few`] and [`Present`]: fields that most objects do not have, and that then cost next to nothing.

use super::reader::{RawField, Value, WireError};
use super::splice::put_bytes;
use super::types::ListItem;
use super::{Field, MessageRow, Source};

/// A list that is mostly empty: one word as long as it is.
#[expect(clippy::box_collection, reason = "the box is what makes an empty list one word")]
#[derive(Clone, Debug, PartialEq)]
pub struct Few<T>(Option<Box<Vec<T>>>);

impl<T> Few<T> {
    /// Each item.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// All items.
    pub fn as_slice(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items: Vec<T> = items.into_iter().collect();
        Self((!items.is_empty()).then(|| Box::new(items)))
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Field + ListItem> Field for Few<T> {
    const MESSAGE: Option<&'static MessageRow> = T::MESSAGE;

    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.0.get_or_insert_default().merge(value, source)
    }

    fn merge_interned(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.0.get_or_insert_default().merge_interned(value, source)
    }

    fn copy_value(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        T::copy_value(field, out)
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(items) = &self.0 {
            items.encode(number, out);
        }
    }

    fn finish(&mut self, source: Source<'_>) -> Result<(), WireError> {
        self.0.as_mut().map_or(Ok(()), |items| items.finish(source))
    }
}

/// Whether a message is there, whatever is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present(pub bool);

impl Field for Present {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        value.bytes()?;
        self.0 = true;
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if self.0 {
            put_bytes(out, number, &[]);
        }
    }
}
