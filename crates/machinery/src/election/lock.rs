//! The Lease as a lock: reading, creating and replacing it.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::record::Record;
use crate::api::coordination::Lease;
use crate::api::kinds::LEASES;
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Object};
use crate::client::{ApiClient, ApiError};
use crate::informer::downcast;
use crate::model::Key;
use crate::wire::splice::edit;
use crate::wire::{Message, Str};

/// A Lease as it was last read.
#[derive(Clone, Debug)]
pub struct ObservedLease {
    /// What it says.
    pub record: Record,
    /// Its resource version, of which a later one is greater; 0 if it has none that can be compared.
    pub version: u64,
    /// Who is to have it in the holder's place, by the API server's choice; empty if nobody.
    pub preferred: Str,
    /// The whole Lease, for a write that drops nothing.
    pub raw: Bytes,
}

/// Reads and writes of one Lease. Behind a trait so that elections can be tested without a server.
pub trait LeaseApi: Send + Sync + 'static {
    /// The Lease, or `None` when there is none yet.
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedLease>, ApiError>>;

    /// Creates the Lease.
    fn create<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<ObservedLease, ApiError>>;

    /// Replaces the record in the Lease that was `observed`; a conflict when it has changed since.
    fn update<'a>(
        &'a self,
        observed: &'a ObservedLease,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<ObservedLease, ApiError>>;

    /// Shows the Lease as it is and whenever it changes, until `seen` says that this is enough (`true`), or the
    /// watch ends (`false`).
    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(ObservedLease) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>>;
}

/// A Lease on the API server.
#[derive(Clone, Debug)]
pub struct LeaseLock {
    client: ApiClient,
    key: Key,
}

impl LeaseLock {
    /// The Lease `namespace/name`, reached through `client`.
    pub fn new(client: ApiClient, namespace: &str, name: &str) -> Self {
        Self { client, key: Key::new(namespace, name) }
    }

    /// Where it is.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl LeaseApi for LeaseLock {
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedLease>, ApiError>> {
        Box::pin(async {
            match self.client.get(&LEASES, &self.key).await {
                Ok(object) => observed(object).map(Some),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<ObservedLease, ApiError>> {
        Box::pin(async {
            let metadata = ObjectMeta {
                name: self.key.name.clone(),
                namespace: self.key.namespace.clone(),
                ..ObjectMeta::default()
            };
            let empty = Lease { metadata, ..Lease::default() }.to_bytes();
            let object = splice(&self.key, &empty, record)?;
            observed(self.client.create(&LEASES, &self.key.namespace, &object).await?)
        })
    }

    fn update<'a>(
        &'a self,
        held: &'a ObservedLease,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<ObservedLease, ApiError>> {
        Box::pin(async {
            let object = splice(&self.key, &held.raw, record)?;
            observed(self.client.update(&LEASES, &self.key, None, &object).await?)
        })
    }

    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(ObservedLease) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        // One that is deleted is made anew by whoever reads next that there is none.
        let enough = move |object: Option<AnyObject>| match object {
            Some(object) => observed(object).map(seen),
            None => Ok(false),
        };
        Box::pin(super::watch::until(&self.client, &LEASES, &self.key, enough))
    }
}

fn splice(key: &Key, lease: &[u8], record: &Record) -> Result<Vec<u8>, ApiError> {
    edit(lease, &record.edits()).map_err(|error| malformed(key, &error.to_string()))
}

fn observed(object: AnyObject) -> Result<ObservedLease, ApiError> {
    let lease: Arc<Lease> =
        downcast(object).ok_or_else(|| malformed(&Key::default(), "the response is not a Lease"))?;
    let version = lease.metadata.version().unwrap_or_default();
    let preferred = lease.spec.preferred_holder.clone();
    Ok(ObservedLease { record: Record::from(lease.as_ref()), version, preferred, raw: lease.raw() })
}

fn malformed(key: &Key, what: &str) -> ApiError {
    ApiError::Malformed { request: format!("lease {key}"), what: what.to_owned() }
}
