//! Standing for a Lease that the API server gives away (KEP-4355, coordinated leader election).
//!
//! Who wants to lead says so with a LeaseCandidate of its own name, with the versions by which the API server chooses:
//! the oldest first, so that an upgrade begins to act when all is upgraded. Before the API server chooses it asks who is
//! there, by a `pingTime`, and who does not answer with a `renewTime` in time is not chosen. An answer is never earlier
//! than its question, whatever the clock of this machine says.
//!
//! It takes no Lease: that is the [`super::Elector`]'s, which waits to be named. It deletes nothing: the API server
//! removes candidates that have long been silent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::sleep;

use super::record::{micro_time, timestamp};
use crate::api::coordination::LeaseCandidate;
use crate::api::kinds::LEASE_CANDIDATES;
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Object};
use crate::client::{ApiClient, ApiError};
use crate::informer::downcast;
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::wire::splice::{Edit, edit};
use crate::wire::{Message, Str, path};

/// The way of choosing that candidates ask for, the only one that there is.
pub(super) const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

/// What a candidate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// Name of the Lease.
    pub lease: Str,
    /// Its own version, `major.minor.patch`.
    pub binary: Str,
    /// The version that it behaves as, likewise.
    pub emulation: Str,
}

/// A LeaseCandidate as it was last read.
#[derive(Clone, Debug)]
pub struct ObservedCandidate {
    /// What it says of itself.
    pub candidacy: Candidacy,
    /// When the API server asked last.
    pub pinged: Timestamp,
    /// When it was answered last.
    pub renewed: Timestamp,
    /// All of it, for a write that drops nothing.
    pub raw: Bytes,
}

impl ObservedCandidate {
    /// What a LeaseCandidate says.
    pub fn of(candidate: &LeaseCandidate, raw: Bytes) -> Self {
        let spec = &candidate.spec;
        let candidacy = Candidacy {
            lease: spec.lease_name.clone(),
            binary: spec.binary_version.clone(),
            emulation: spec.emulation_version.clone(),
        };
        let (pinged, renewed) = (timestamp(&spec.ping_time), timestamp(&spec.renew_time));
        Self { candidacy, pinged, renewed, raw }
    }
}

/// Reads and writes of one LeaseCandidate. Behind a trait so that candidates can be tested without a server.
pub trait CandidateApi: Send + Sync + 'static {
    /// The candidate, or `None` when there is none yet.
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedCandidate>, ApiError>>;

    /// Creates it by these edits of an empty one.
    fn create(&self, edits: Vec<Edit>) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Replaces what was `observed`; a conflict when it has changed since.
    fn update<'a>(
        &'a self,
        observed: &'a ObservedCandidate,
        edits: Vec<Edit>,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Shows it as it is and whenever it changes, `None` when it is deleted, until `seen` says that this is enough
    /// (`true`), or the watch ends (`false`).
    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(Option<ObservedCandidate>) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>>;
}

/// One candidate, as long as it stands.
pub struct Contender<C> {
    api: C,
    candidacy: Candidacy,
    /// Time between tries.
    retry: Duration,
    clock: SharedClock,
}

impl<C: CandidateApi> Contender<C> {
    /// A candidate that says this of itself.
    pub fn new(api: C, candidacy: Candidacy, retry: Duration, clock: SharedClock) -> Self {
        Self { api, candidacy, retry, clock }
    }

    /// Stands, and answers whenever it is asked. For ever.
    pub async fn stand(&self) -> Infallible {
        loop {
            if let Err(error) = self.answer().await {
                tracing::warn!(lease = %self.candidacy.lease, %error, "Failed to publish the LeaseCandidate");
                sleep(self.retry).await;
                continue;
            }
            match self.api.watch(&|seen| seen.is_none_or(|seen| self.is_asked(&seen))).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "Failed to watch the LeaseCandidate"),
            }
            sleep(self.retry).await;
        }
    }

    /// Whether the API server waits for an answer, or somebody else has written what we are.
    fn is_asked(&self, seen: &ObservedCandidate) -> bool {
        seen.pinged > seen.renewed || seen.candidacy != self.candidacy
    }

    /// Sees to it that the candidate is there and has answered.
    async fn answer(&self) -> Result<(), ApiError> {
        let now = self.clock.now();
        match self.api.get().await? {
            None => match self.api.create(self.edits(now)).await {
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            },
            Some(found) if self.is_asked(&found) => {
                let renewed = now.max(found.pinged);
                match self.api.update(&found, self.edits(renewed)).await {
                    // Asked once more; the watch shows it.
                    Err(error) if !error.is_conflict() => Err(error),
                    _ => Ok(()),
                }
            }
            Some(_) => Ok(()),
        }
    }

    fn edits(&self, renewed: Timestamp) -> Vec<Edit> {
        let Candidacy { lease, binary, emulation } = &self.candidacy;
        let text = |path, text: &str| Edit::set_text(path, text);
        vec![
            text(path!(LeaseCandidate, spec.leaseName), lease),
            Edit::SetBytes(path!(LeaseCandidate, spec.renewTime), micro_time(renewed)),
            text(path!(LeaseCandidate, spec.binaryVersion), binary),
            text(path!(LeaseCandidate, spec.emulationVersion), emulation),
            text(path!(LeaseCandidate, spec.strategy), OLDEST_EMULATION_VERSION),
        ]
    }
}

/// A LeaseCandidate on the API server.
#[derive(Clone, Debug)]
pub struct CandidateObject {
    client: ApiClient,
    key: Key,
}

impl CandidateObject {
    /// The LeaseCandidate `namespace/name`, reached through `client`.
    pub fn new(client: ApiClient, namespace: &str, name: &str) -> Self {
        Self { client, key: Key::new(namespace, name) }
    }
}

impl CandidateApi for CandidateObject {
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedCandidate>, ApiError>> {
        Box::pin(async {
            match self.client.get(&LEASE_CANDIDATES, &self.key).await {
                Ok(object) => observed(object).map(Some),
                // Also where the API is not served; creating says so.
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create(&self, edits: Vec<Edit>) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let metadata = ObjectMeta {
                name: self.key.name.clone(),
                namespace: self.key.namespace.clone(),
                ..ObjectMeta::default()
            };
            let empty = LeaseCandidate { metadata, ..LeaseCandidate::default() }.to_bytes();
            let object = splice(&empty, &edits)?;
            self.client.create(&LEASE_CANDIDATES, &self.key.namespace, &object).await.map(drop)
        })
    }

    fn update<'a>(
        &'a self,
        held: &'a ObservedCandidate,
        edits: Vec<Edit>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let object = splice(&held.raw, &edits)?;
            self.client.update(&LEASE_CANDIDATES, &self.key, None, &object).await.map(drop)
        })
    }

    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(Option<ObservedCandidate>) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        let enough = move |object: Option<AnyObject>| object.map(observed).transpose().map(seen);
        Box::pin(super::watch::until(&self.client, &LEASE_CANDIDATES, &self.key, enough))
    }
}

fn splice(candidate: &[u8], edits: &[Edit]) -> Result<Vec<u8>, ApiError> {
    edit(candidate, edits).map_err(|error| malformed(&error.to_string()))
}

fn observed(object: AnyObject) -> Result<ObservedCandidate, ApiError> {
    let candidate: Arc<LeaseCandidate> =
        downcast(object).ok_or_else(|| malformed("the response is not a LeaseCandidate"))?;
    Ok(ObservedCandidate::of(&candidate, candidate.raw()))
}

fn malformed(what: &str) -> ApiError {
    ApiError::Malformed { request: "lease candidate".to_owned(), what: what.to_owned() }
}
