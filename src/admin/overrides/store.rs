//! Reading and writing the Lease that holds the overrides.
//!
//! Writes carry the resource version that was read: of two replicas that write at once, one is told to look again.

use std::sync::Arc;

use bytes::Bytes;

use super::entry::Entry;
use super::set::{OverrideSet, edits};
use super::{LEASE_NAME, LEASE_NAMESPACE};
use crate::admin::Group;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::client::{ApiClient, ApiError};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Message;
use coxswain_machinery::wire::splice::edit;

/// The overrides as they were read.
#[derive(Clone, Debug, Default)]
pub struct HeldOverrides {
    /// What they say.
    pub set: OverrideSet,
    /// The whole Lease, for a write that drops nothing; empty when there is none yet.
    pub raw: Bytes,
}

/// Overrides that could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote in between: read again.
    #[error("the overrides changed concurrently")]
    Conflict,
    /// The API server refused, or can't be reached. Nothing has changed.
    #[error("{0}")]
    Unavailable(String),
    /// The API server refused to show them, or what it showed is no Lease: to ask again would not help.
    #[error("{0}")]
    Unreadable(String),
    /// No answer came: the write may have been carried out.
    #[error("write the overrides: no response, so they may have been written: {0}")]
    Unknown(String),
}

/// The Lease on the API server.
#[derive(Clone)]
pub struct OverrideStore {
    client: ApiClient,
    name: String,
    is_known: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl OverrideStore {
    /// The Lease of the default group, reached through `client`; `is_known` tells controllers' names.
    pub fn new(client: ApiClient, is_known: Arc<dyn Fn(&str) -> bool + Send + Sync>) -> Self {
        Self { client, name: LEASE_NAME.to_owned(), is_known }
    }

    /// The same for the Lease of a group.
    #[must_use]
    pub fn of(&self, group: &Group) -> Self {
        Self { name: group.overrides_lease(), ..self.clone() }
    }

    /// Where the Lease is.
    pub fn key(&self) -> Key {
        Key::new(LEASE_NAMESPACE, self.name.as_str())
    }

    /// What a Lease says, as a watch or a read delivers it.
    pub fn decode(&self, lease: &Lease) -> HeldOverrides {
        let annotations =
            lease.metadata.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        HeldOverrides { set: OverrideSet::parse(annotations, &*self.is_known), raw: lease.raw() }
    }

    /// Reads the Lease.
    pub async fn read(&self) -> Result<HeldOverrides, StoreError> {
        match self.client.get(&LEASES, &self.key()).await {
            Ok(object) => self.decode_object(object),
            // An answer that does not name the Lease says nothing about it.
            Err(error) if error.is_object_not_found() => Ok(HeldOverrides::default()),
            Err(error) if is_final(&error) => Err(StoreError::Unreadable(error.to_string())),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Writes `changes` into the Lease that was `held`.
    pub async fn write(
        &self,
        held: &HeldOverrides,
        changes: &[(String, Entry)],
    ) -> Result<HeldOverrides, StoreError> {
        let unfit = |error: &dyn std::fmt::Display| {
            StoreError::Unavailable(format!("edit the overrides' Lease: {error}"))
        };
        let edits = edits(changes).map_err(|error| unfit(&error))?;
        let written = if held.raw.is_empty() {
            let metadata = ObjectMeta {
                name: self.name.as_str().into(),
                namespace: LEASE_NAMESPACE.into(),
                ..ObjectMeta::default()
            };
            let lease = Lease { metadata, ..Lease::default() }.to_bytes();
            let object = edit(&lease, &edits).map_err(|error| unfit(&error))?;
            self.client.create(&LEASES, LEASE_NAMESPACE, &object).await
        } else {
            let object = edit(&held.raw, &edits).map_err(|error| unfit(&error))?;
            self.client.update(&LEASES, &self.key(), None, &object).await
        };
        match written {
            // It was written, whatever came back.
            Ok(object) => self.decode_object(object).map_err(|error| StoreError::Unknown(error.to_string())),
            Err(error) => Err(refused(&error)),
        }
    }

    fn decode_object(&self, object: AnyObject) -> Result<HeldOverrides, StoreError> {
        let lease: Arc<Lease> = downcast(object).ok_or_else(|| {
            StoreError::Unreadable("read the overrides: the response is not a Lease".to_owned())
        })?;
        Ok(self.decode(&lease))
    }
}

/// Whether a read that failed would fail again. Credentials, limits and overload are a matter of time.
fn is_final(error: &ApiError) -> bool {
    match error {
        ApiError::Malformed { .. } | ApiError::TooLong { .. } | ApiError::Unaddressable { .. } => true,
        _ => {
            matches!(error.code(), 400..500)
                && !matches!(error.code(), 401 | 404 | 408 | 409 | 410 | 425 | 429)
        }
    }
}

fn refused(error: &ApiError) -> StoreError {
    // A Lease that vanished or came up since the read is a change like any other.
    if error.is_conflict() || error.is_already_exists() || error.is_not_found() {
        StoreError::Conflict
    } else if error.is_ambiguous() {
        StoreError::Unknown(error.to_string())
    } else {
        StoreError::Unavailable(error.to_string())
    }
}
