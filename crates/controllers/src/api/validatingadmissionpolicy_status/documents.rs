//! Where types come from: the OpenAPI documents of group versions, kept as the tables of `cel_check`.
//!
//! The index of the documents is read whenever a policy is checked. It names each with a hash, so a document is read again only
//! when it has changed. What was read is kept while there are policies, for there are often several to check; the last
//! document of a group version replaces the one before.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::live_reads::POLICY_DOCUMENT;
use cel_check::Schemas;
use coxswain_machinery::api::system::ValidatingAdmissionPolicy;
use coxswain_machinery::framework::{
    AnyDocument, ApiError, DeclaredRead, DocumentForm, InvalidPath, Memory, Query, Read, Reads, RequestPath,
    RequestUri,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// Documents as tables of types. The largest, of the core group, has 2 MiB.
pub(super) static TABLES: DocumentForm =
    DocumentForm { name: "OpenAPI tables", longest: 64 << 20, read: table };

fn table(document: &mut dyn io::Read) -> Result<AnyDocument, String> {
    let schemas = Schemas::read(document).map_err(|error| error.to_string())?;
    Ok(Arc::new(schemas))
}

/// A document: of a group version, as the index names it, with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    /// `api/v1` or `apis/GROUP/VERSION`.
    pub(super) version: String,
    /// Where it is, with its hash.
    pub(super) address: Str,
}

impl Title {
    /// Where the present one is. With a hash that has passed meanwhile the server would send us elsewhere.
    pub(super) fn path(&self) -> &str {
        self.address.split_once('?').map_or(self.address.as_str(), |(path, _)| path)
    }

    /// The URI of the present one.
    ///
    /// # Errors
    /// When it is not below `/openapi/v3/`.
    pub(super) fn uri(&self) -> Result<RequestUri, InvalidPath> {
        RequestPath::openapi_document(self.path()).uri(Query::NONE)
    }
}

/// The document of a group version, if the index has it.
pub(super) fn title(index: &Value, group: &str, version: &str) -> Option<Title> {
    let version = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
    let address = index.get("paths")?.get(&version)?.get("serverRelativeURL")?.as_str()?;
    address.starts_with('/').then(|| Title { address: address.into(), version })
}

/// What is known of a document in a reconcile.
#[derive(Debug)]
pub(super) enum Document {
    /// It is to be read by this.
    Unread(DeclaredRead),
    /// It was read just now.
    New(Schemas),
    /// It is as it was when it was read.
    Known(Schemas),
    /// It can't be had, or says nothing.
    None,
}

/// The result of the reads of one reconcile, for the library.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    pub(super) documents: Vec<(Title, Schemas)>,
    /// The group versions of kept documents that the index no longer lists.
    pub(super) unlisted: Vec<String>,
}

/// The documents that were read.
pub(super) struct Library {
    policies: Lister<ValidatingAdmissionPolicy>,
    documents: Mutex<HashMap<String, (Str, Schemas)>>,
}

impl Library {
    /// An empty one, for as long as there are policies.
    pub(super) fn of(policies: Lister<ValidatingAdmissionPolicy>) -> Self {
        Self { policies, documents: Mutex::default() }
    }

    /// What is known of a document.
    pub(super) fn look_up(&self, title: &Title, read: &Reads) -> Result<Document, ApiError> {
        // A document that cannot be addressed cannot be had.
        let Ok(uri) = title.uri() else { return Ok(Document::None) };
        match read.document::<Schemas>(&TABLES, &uri) {
            Some(Ok(found)) => return Ok(Document::New(Schemas::clone(&found))),
            // What the server has no answer to may have one in a moment.
            Some(Err(error)) if is_silence(error) => return Err(error.clone()),
            Some(Err(_)) => return Ok(Document::None),
            None => {}
        }
        let held = self.documents.lock();
        let known = held.get(&title.version).filter(|(address, _)| *address == title.address);
        let unread = || Document::Unread(POLICY_DOCUMENT.of(Read::Document(&TABLES, uri)));
        Ok(known.map_or_else(unread, |(_, schemas)| Document::Known(schemas.clone())))
    }

    /// Returns the group versions of kept documents that the index no longer lists. Returns none for a malformed index, which has no
    /// paths.
    pub(super) fn unlisted(&self, index: &Value) -> Vec<String> {
        let Some(paths) = index.get("paths").and_then(Value::as_object) else { return Vec::new() };
        self.documents.lock().keys().filter(|version| !paths.contains_key(*version)).cloned().collect()
    }

    /// Forgets everything when there is no policy left.
    pub(super) fn close_if_unused(&self) {
        if self.policies.store().is_empty() {
            *self.documents.lock() = HashMap::default();
        }
    }

    /// Bytes of all tables.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.documents.lock().values().map(|(_, schemas)| schemas.bytes()).sum()
    }

    /// The group versions that are kept.
    #[cfg(test)]
    pub(super) fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = self.documents.lock().keys().cloned().collect();
        versions.sort_unstable();
        versions
    }
}

impl Memory<Learned> for Library {
    fn commit(&self, _: &Key, learned: Learned) {
        let mut held = self.documents.lock();
        for version in learned.unlisted {
            held.remove(&version);
        }
        held.extend(
            learned.documents.into_iter().map(|(title, schemas)| (title.version, (title.address, schemas))),
        );
        drop(held);
        // The last policy may have gone while it was checked.
        self.close_if_unused();
    }
}

/// Whether there was no answer, or one that says nothing about the document: no word of a group version's own.
pub(super) fn is_silence(error: &ApiError) -> bool {
    match error {
        ApiError::Refused { code, .. } => *code == 429,
        ApiError::Transport { .. } | ApiError::Timeout { .. } => true,
        ApiError::Malformed { .. } | ApiError::TooLong { .. } | ApiError::Unaddressable { .. } => false,
    }
}
