//! Parsing of input that a user has chosen, between the passes of one reconcile.
//!
//! A room that must parse a field of an object asks for it as it asks for a live read ([`Read::Parsed`](super::Read)). The
//! framework runs the parser on its [`BlockingPool`](super::BlockingPool), and the next pass has the value. Observing stays free of long
//! computations.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

/// A value that a parser has returned.
pub type ParsedValue = Arc<dyn Any + Send + Sync>;

/// A function that parses input that a user has chosen.
pub struct Parser {
    /// The kind of input.
    pub name: &'static str,
    /// Parses the input. Errors are part of the value.
    pub parse: fn(&[u8]) -> ParsedValue,
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Parser {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Parser {}

impl Hash for Parser {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Input of a parser. It is equal to itself and its clones alone, so that a comparison does not read megabytes: after an update of the
/// object it is another input.
#[derive(Clone)]
pub struct ParserInput(Bytes);

impl ParserInput {
    /// These bytes of an object, without a copy.
    pub fn of(bytes: &Bytes) -> Self {
        Self(bytes.clone())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for ParserInput {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes(), other.bytes())
    }
}

impl Eq for ParserInput {}

impl Hash for ParserInput {
    /// The length alone, so that it is the same in every process.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
    }
}

impl fmt::Debug for ParserInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
