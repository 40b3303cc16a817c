//! [`ObjectList`]: the objects of a live list, including those that cannot be decoded.
//!
//! One object that cannot be decoded fails neither its list nor the other objects. But it exists, and a caller that decides because
//! of an absence (no pod uses this claim, this namespace is empty) must not take it for absent. So each way to read the list decides
//! about such objects: [`ObjectList::complete`], [`ObjectList::metadata`] or [`ObjectList::readable`].

use std::sync::Arc;

use bytes::Bytes;

use super::send::Interrupted;
use super::{ApiClient, ApiError, ListQuery};
use crate::api::meta::{ObjectMeta, PartialObjectMetadata};
use crate::api::{AnyObject, Kind};
use crate::model::Key;
use crate::wire::{ObjectHead, Str, Uid, WireError};

/// Objects per page of a list that is read to its end.
const LIST_PAGE: u32 = 500;

/// The pages of a list that have been read, and the token with which the server continues the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListPosition {
    objects: ObjectList,
    after: Str,
    /// Whether the list was restarted because a token had expired.
    is_second: bool,
}

impl ListPosition {
    /// Returns the token of the next page; empty before the first page.
    pub(crate) fn after(&self) -> &Str {
        &self.after
    }

    /// Returns whether the list was restarted because a token had expired.
    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }
}

impl ApiClient {
    /// Reads a whole collection page by page and decodes it.
    pub async fn list_all(&self, kind: &'static Kind, namespace: &str) -> Result<ObjectList, ApiError> {
        let start = Arc::new(ListPosition::default());
        self.list_from(kind, namespace, start).await.map_err(|interrupted| interrupted.error)
    }

    /// Reads the rest of a collection, so that the caller has all of it. If the token of the next page has expired, the collection is read
    /// again from its first page, once.
    ///
    /// # Errors
    /// A page was not read. Its position is where the caller can go on: the pages before it need not be read again.
    pub(crate) async fn list_from(
        &self,
        kind: &'static Kind,
        namespace: &str,
        position: Arc<ListPosition>,
    ) -> Result<ObjectList, Interrupted<Arc<ListPosition>>> {
        let mut position = Arc::unwrap_or_clone(position);
        let mut has_advanced = false;
        loop {
            let query = ListQuery {
                namespace: namespace.to_owned(),
                limit: Some(LIST_PAGE),
                continue_token: (!position.after.is_empty()).then(|| position.after.to_string()),
                ..ListQuery::default()
            };
            let page = match self.list(kind, &query).await {
                Ok(page) => page,
                Err(error) if error.is_expired() && !position.after.is_empty() && !position.is_second => {
                    position = ListPosition { is_second: true, ..ListPosition::default() };
                    has_advanced = false;
                    continue;
                }
                Err(error) => return Err(Interrupted { error, position: Arc::new(position), has_advanced }),
            };
            for item in &page.items {
                position.objects.add(kind, item);
            }
            if page.continue_token.is_empty() {
                return Ok(position.objects);
            }
            position.after = page.continue_token.into();
            has_advanced = true;
        }
    }
}

/// The objects of a live list.
#[derive(Clone, Debug, Default)]
pub struct ObjectList {
    readable: Vec<AnyObject>,
    unreadable: Vec<UnreadableObject>,
}

/// An object that exists and cannot be decoded.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("decode {kind} {key:?}: {error}", key = key.to_string())]
pub struct UnreadableObject {
    kind: &'static Kind,
    /// Its name is empty if that cannot be read either.
    key: Key,
    uid: Uid,
    resource_version: Str,
    error: WireError,
}

impl ObjectList {
    /// Adds an encoded object without envelope.
    pub fn add(&mut self, kind: &'static Kind, object: &Bytes) {
        match (kind.decode)(object) {
            Ok(object) => self.readable.push(object),
            Err(error) => {
                let ObjectHead { namespace, name, uid, resource_version, .. } = ObjectHead::salvage(object);
                self.unreadable.push(UnreadableObject {
                    kind,
                    key: Key::new(namespace, name),
                    uid: uid.into(),
                    resource_version: resource_version.into(),
                    error,
                });
            }
        }
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.unreadable.is_empty()
    }

    /// Returns all objects: for callers that decide because something is absent.
    ///
    /// # Errors
    /// One of the objects cannot be decoded.
    pub fn complete(&self) -> Result<&[AnyObject], &UnreadableObject> {
        self.unreadable.first().map_or(Ok(&self.readable), Err)
    }

    /// Returns the metadata of all objects, and of those that cannot be decoded the namespace, name, UID and resource version: for
    /// callers that need no more to write to an object.
    ///
    /// # Errors
    /// Not even these can be read of one of the objects.
    pub fn metadata(&self) -> Result<Vec<AnyObject>, &UnreadableObject> {
        let rest = self.unreadable.iter().map(UnreadableObject::metadata);
        self.readable.iter().cloned().map(Ok).chain(rest).collect()
    }

    /// Returns the objects that can be decoded: for callers that do the same to each object, whatever others there are.
    pub fn readable(&self) -> &[AnyObject] {
        &self.readable
    }
}

impl From<Vec<AnyObject>> for ObjectList {
    fn from(readable: Vec<AnyObject>) -> Self {
        Self { readable, unreadable: Vec::new() }
    }
}

impl UnreadableObject {
    fn metadata(&self) -> Result<AnyObject, &Self> {
        if self.key.name.is_empty() || self.uid.is_empty() || self.resource_version.is_empty() {
            return Err(self);
        }
        let metadata = ObjectMeta {
            name: self.key.name.clone(),
            namespace: self.key.namespace.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            ..ObjectMeta::default()
        };
        Ok(Arc::new(PartialObjectMetadata { metadata }))
    }
}
