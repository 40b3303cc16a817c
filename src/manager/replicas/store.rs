//! Reads and writes of replicas' Leases on the API server.
//!
//! The manager's own role lets it create and update Leases in `kube-system`, not delete them. The garbage collector's
//! role may delete anything; with `--use-service-account-credentials` Leases are deleted in its name. Without, nothing is
//! asked for that would be refused.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::format::REPLICA_NAMESPACE;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::client::{ApiClient, ApiError, BoxError, DeleteOptions};
use coxswain_machinery::framework::Runtime;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;

/// Whose role may delete Leases.
const DELETER: &str = "generic-garbage-collector";
/// The clients' name.
const CLIENT: &str = "replicas";

/// What is done with replicas' Leases. Behind a trait so that it can be tested without a server.
pub(super) trait LeaseStore: Send + Sync + 'static {
    /// A Lease, or `None` when there is none of this name.
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<Lease>>, ApiError>>;

    /// Creates a Lease.
    fn create<'a>(&'a self, lease: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>>;

    /// Replaces a Lease; a conflict when it has changed since it was read.
    fn update<'a>(&'a self, name: &'a str, lease: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>>;

    /// Whether [`Self::delete`] can be expected to be allowed.
    fn may_delete(&self) -> bool;

    /// Deletes exactly this version of a Lease.
    fn delete<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<(), ApiError>>;
}

/// The API server. Replicas that do not lead write, too: these clients know no gate.
pub(super) struct ApiStore {
    runtime: Arc<Runtime>,
    client: ApiClient,
}

impl ApiStore {
    pub(super) fn new(runtime: Arc<Runtime>) -> Self {
        let client = runtime.clients.ungated(CLIENT);
        Self { runtime, client }
    }

    /// What was written, which the watch of Leases is to show soon.
    fn written(&self, object: AnyObject) -> Result<Arc<Lease>, ApiError> {
        let lease = lease(object)?;
        self.runtime.informers.wrote(&LEASES, &lease.metadata);
        Ok(lease)
    }

    /// Made when it is needed: a replica that deletes nothing asks for no token.
    fn deleter(&self) -> Result<ApiClient, ApiError> {
        let unavailable = |source: BoxError| ApiError::Transport {
            request: "DELETE lease of a replica".to_owned(),
            source: source.into(),
        };
        match self.runtime.clients.ungated_as(CLIENT, DELETER) {
            Ok(Some(client)) => Ok(client),
            Ok(None) => Err(unavailable("no credentials to delete Leases".into())),
            Err(error) => Err(unavailable(Box::new(error))),
        }
    }
}

impl LeaseStore for ApiStore {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<Lease>>, ApiError>> {
        Box::pin(async move {
            match self.client.get(&LEASES, &key(name)).await {
                Ok(object) => lease(object).map(Some),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create<'a>(&'a self, raw: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>> {
        Box::pin(async move { self.written(self.client.create(&LEASES, REPLICA_NAMESPACE, raw).await?) })
    }

    fn update<'a>(&'a self, name: &'a str, raw: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>> {
        Box::pin(async move { self.written(self.client.update(&LEASES, &key(name), None, raw).await?) })
    }

    fn may_delete(&self) -> bool {
        self.runtime.config.flags.use_service_account_credentials
    }

    fn delete<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let options = DeleteOptions {
                uid: Some(lease.metadata.uid.to_string()),
                resource_version: Some(lease.metadata.resource_version.to_string()),
                ..DeleteOptions::default()
            };
            self.deleter()?.delete(&LEASES, &key(&lease.metadata.name), &options).await.map(drop)
        })
    }
}

fn key(name: &str) -> Key {
    Key::new(REPLICA_NAMESPACE, name)
}

fn lease(object: AnyObject) -> Result<Arc<Lease>, ApiError> {
    downcast(object).ok_or_else(|| ApiError::Malformed {
        request: "lease of a replica".to_owned(),
        what: "the response is not a Lease".to_owned(),
    })
}
