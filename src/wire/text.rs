//! [`Str`], the string of cached objects.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::reader::{Value, WireError};
use super::{Field, Source, intern, splice};

/// An immutable, shared string: two words, cloned by reference count, nothing allocated when empty.
#[derive(Clone, Default)]
pub struct Str(Option<Arc<str>>);

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str(None);

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }

    /// The one shared copy of `text`: for strings that many objects hold.
    pub fn interned(text: &str) -> Self {
        if text.is_empty() { Self::EMPTY } else { Self(Some(intern::text(text))) }
    }

    /// Heap bytes held by this string alone, or by all that share it.
    pub fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |text| text.len() + 2 * size_of::<usize>())
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
        if text.is_empty() { Self::EMPTY } else { Self(Some(Arc::from(text))) }
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

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
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
        self.as_str().cmp(other.as_str())
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

impl serde::Serialize for Str {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl Field for Str {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Self::from(value.text()?);
        Ok(())
    }

    fn merge_interned(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Self::interned(value.text()?);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            splice::put_bytes(out, number, self.as_bytes());
        }
    }
}
