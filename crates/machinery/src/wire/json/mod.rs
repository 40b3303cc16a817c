//! Objects in JSON, and the same objects in protobuf: for API servers that are asked for JSON
//! (`--kube-api-content-type=application/json`).
//!
//! All else here works on protobuf: objects are decoded from it, and edited in it so that no field is lost. So JSON that is
//! read is made into protobuf, and protobuf that is to be written into JSON. A member that `messages.tsv` does not have is
//! newer than this version; one that stands aside there nobody reads. Both travel as JSON in a field whose number no message
//! has ([`ASIDE`]). Edits copy it like every unknown field, and its members stand in their places again when the object is
//! written.
//!
//! Knows nothing of HTTP. Never decides what becomes of an object.

mod from_json;
mod merged;
mod metadata;
mod read;
pub mod schema;
mod to_json;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod members;
#[cfg(test)]
mod tests;

use serde_json::error::Category;

use super::WireError;

pub use from_json::{object_from_json, watch_event_from_json};
pub use metadata::{metadata_event_from_json, metadata_from_json, metadata_list_from_json};
pub use read::{lossy_json, read_json};
pub use to_json::object_to_json;

/// The number of the field in which a message carries what the table does not have: a JSON object. The highest there is;
/// upstream numbers from 1.
const ASIDE: u32 = (1 << 29) - 1;

/// Why an object cannot be made into its other form.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed JSON{}: {what}", if path.is_empty() { String::new() } else { format!(" in {path}") })]
pub struct JsonError {
    /// Dotted path of member names, outermost first; empty at the top.
    path: String,
    what: String,
}

impl JsonError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { path: String::new(), what: what.into() }
    }

    /// The same error, found one level further out.
    fn within(mut self, member: &str) -> Self {
        self.path = if self.path.is_empty() { member.to_owned() } else { format!("{member}.{}", self.path) };
        self
    }
}

impl From<WireError> for JsonError {
    fn from(error: WireError) -> Self {
        Self::new(error.to_string())
    }
}

/// What was there instead is not quoted: it may be a secret.
impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self::new(match error.classify() {
            Category::Data => "unexpected type",
            Category::Syntax => "invalid JSON",
            Category::Eof | Category::Io => "unexpected end of input",
        })
    }
}
