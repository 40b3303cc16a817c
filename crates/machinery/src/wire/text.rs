//! [`Str`], the string of cached objects, and the text form of byte strings, in which it holds what is not valid UTF-8.

mod raw;
#[cfg(test)]
mod tests;

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use arcstr::ArcStr;

use super::reader::{Value, WireError};
use super::{Field, Source, intern, splice};
pub use raw::{held_text, is_unprintable, lossy_text, lossy_utf8, raw_bytes};

/// Bytes of text that a [`Str`] holds in itself: what a pointer and the variant's tag leave of two words.
const SHORT: usize = 14;

/// An immutable string in the text form of its bytes ([`held_text`]): two words. A short string (most resource versions, kinds,
/// phases, addresses and names) is in them and allocates nothing. A longer one is shared and cloned by reference count.
#[derive(Clone)]
pub struct Str(Text);

#[derive(Clone)]
enum Text {
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    /// Longer than [`SHORT`] bytes, always: equal texts are of the same variant.
    Long(ArcStr),
}

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str(Text::Short { length: 0, bytes: [0; SHORT] });

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // They are the whole text of a `str`, so this does not fail.
            Text::Short { .. } => std::str::from_utf8(self.bytes()).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }

    /// The text's bytes: what is compared, for it needs no look at their encoding.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Text::Long(text) => text.as_bytes(),
        }
    }

    fn short(text: &str) -> Option<Self> {
        let mut bytes = [0; SHORT];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self(Text::Short { length: u8::try_from(text.len()).ok()?, bytes }))
    }

    /// The string with these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::from(&*held_text(bytes))
    }

    /// The one shared copy of `text`: for strings that many objects hold.
    pub fn interned(text: &str) -> Self {
        Self::short(text).unwrap_or_else(|| Self(Text::Long(intern::text(text))))
    }

    /// Whether there is no text. Said of the string itself, because it is asked far more often than the text is read.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Text::Short { length: 0, .. })
    }

    /// Heap bytes held by this string alone, or by all that share it.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Text::Short { .. } => 0,
            Text::Long(text) => text.len() + 2 * size_of::<usize>(),
        }
    }
}

impl Default for Str {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self::short(text).unwrap_or_else(|| Self(Text::Long(ArcStr::from(text))))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Cow<'_, str>> for Str {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(&*text)
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Text::Short { length: a, bytes: one }, Text::Short { length: b, bytes: other }) => {
                a == b && one == other
            }
            (Text::Long(a), Text::Long(b)) => ArcStr::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.bytes() == other.as_bytes()
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.bytes() == other.as_bytes()
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        // As text is compared: by bytes.
        self.bytes().cmp(other.bytes())
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

/// Serializes the text form. The border that the JSON leaves by converts it, once: the client for patches, the logs.
impl serde::Serialize for Str {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// Text from JSON is not in text form: it may contain the characters that stand for bytes.
impl<'de> serde::Deserialize<'de> for Str {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of_bytes(String::deserialize(deserializer)?.as_bytes()))
    }
}

impl Field for Str {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Self::from(&*value.text()?);
        Ok(())
    }

    fn merge_interned(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Self::interned(&value.text()?);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            splice::put_text(out, number, self);
        }
    }
}
