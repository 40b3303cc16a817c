//! [`Uid`]: an object's UID in 24 bytes and without an allocation of its own.
//!
//! Every cached object has one, and they are compared all the time. The API server makes UUIDs; any other text, which the
//! API would allow, is kept as it is. Either way the text comes out exactly as it went in.

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::reader::{Value, WireError};
use super::{Field, Source, Str, splice};

/// The UID of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Form {
    /// A UUID whose canonical text (lower case, hyphens) is the UID.
    Uuid(Uuid),
    /// Anything else.
    Other(Str),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let canonical = |uuid: &Uuid| {
            let mut buffer = Uuid::encode_buffer();
            *uuid.hyphenated().encode_lower(&mut buffer) == *text
        };
        let uuid = (text.len() == Hyphenated::LENGTH).then(|| Uuid::try_parse(text).ok()).flatten();
        match uuid.filter(canonical) {
            Some(uuid) => Self(Form::Uuid(uuid)),
            None => Self(Form::Other(text.into())),
        }
    }
}

impl From<&Str> for Uid {
    fn from(text: &Str) -> Self {
        Self::from(text.as_str())
    }
}

impl Uid {
    /// Whether there is none: the object was not stored yet.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Form::Other(text) if text.is_empty())
    }

    /// The UID's text.
    pub fn to_str(&self) -> Str {
        match &self.0 {
            Form::Uuid(uuid) => {
                let mut buffer = Uuid::encode_buffer();
                Str::from(&*uuid.hyphenated().encode_lower(&mut buffer))
            }
            Form::Other(text) => text.clone(),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Uuid(uuid) => fmt::Display::fmt(uuid, f),
            Form::Other(text) => fmt::Display::fmt(text, f),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str(), f)
    }
}

impl Default for Uid {
    /// The empty text, of an object that was not stored yet.
    fn default() -> Self {
        Self(Form::Other(Str::EMPTY))
    }
}

impl From<Str> for Uid {
    fn from(text: Str) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Cow<'_, str>> for Uid {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(&*text)
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        match &self.0 {
            Form::Uuid(uuid) => {
                let mut buffer = Uuid::encode_buffer();
                *uuid.hyphenated().encode_lower(&mut buffer) == *other
            }
            Form::Other(text) => *text == *other,
        }
    }
}

impl PartialEq<&str> for Uid {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl PartialEq<Str> for Uid {
    fn eq(&self, other: &Str) -> bool {
        *self == **other
    }
}

impl PartialEq<Uid> for Str {
    fn eq(&self, other: &Uid) -> bool {
        *other == **self
    }
}

impl serde::Serialize for Uid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_str().serialize(serializer)
    }
}

impl Field for Uid {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Self::from(&*value.text()?);
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            splice::put_text(out, number, &self.to_str());
        }
    }
}
