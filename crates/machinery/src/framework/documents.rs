//! Documents of the API server that a controller keeps in a small form of its own.
//!
//! The OpenAPI document of a group version has a megabyte and more, of which a controller needs little. A form
//! ([`DocumentForm`]) says what is kept. It is handed the document as a stream and never sees it as a whole, and the pieces that
//! it has read are freed while it goes on. Nothing is kept here: who wants to have a document longer than a reconcile
//! remembers it.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;

/// What a form made of a document.
pub type AnyDocument = Arc<dyn Any + Send + Sync>;

/// In what form a document is kept: a row of functions, of which each controller that reads documents has one.
pub struct DocumentForm {
    /// What such documents are called.
    pub name: &'static str,
    /// Bytes that one may have at most.
    pub longest: usize,
    /// Reads one. What it says when it fails is a sentence about the document.
    pub read: fn(&mut dyn io::Read) -> Result<AnyDocument, String>,
}

impl fmt::Debug for DocumentForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for DocumentForm {
    /// A form is equal to itself alone: another one makes something else of the same document.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for DocumentForm {}

impl Hash for DocumentForm {
    /// By content, so that it is the same in every process.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
