//! [`Uid`]: an object's UID in 24 bytes and without an allocation of its own.
//!
//! A graph holds a UID per object and compares them all the time. The API server makes UUIDs; any other text, which the
//! API would allow, is kept as it is. Either way the text comes out exactly as it went in.

use std::fmt;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::wire::Str;

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
        fmt::Display::fmt(self, f)
    }
}
