//! What elections are tested on: one Lease in memory. It is built for tests only.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that it fails should end"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{LeaseApi, ObservedLease, Record, Timing};
use crate::api::coordination::Lease;
use crate::api::meta::{ObjectMeta, Status};
use crate::client::ApiError;
use crate::model::clock::Clock;
use crate::wire::splice::{Edit, edit, put_bytes};
use crate::wire::{Message, path};

/// The original's.
pub const TIMING: Timing = Timing {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// The wall clock of paused time.
pub struct PausedClock(pub tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
            + jiff::SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

/// A server that has one Lease: its version and its encoding.
#[derive(Default)]
pub struct Server {
    /// The Lease, if there is one.
    pub lease: Mutex<Option<(u64, Vec<u8>)>>,
    /// The verbs of all requests so far.
    pub requests: Mutex<Vec<&'static str>>,
    /// Whether every request fails.
    pub down: AtomicBool,
    /// Whether reads find nothing, as those that were answered before the first candidate made the Lease.
    pub finds_nothing: AtomicBool,
    /// Whether every request panics.
    pub panics: AtomicBool,
    /// How long an update takes to be answered, once it is carried out.
    pub answers_after: Mutex<Duration>,
    changed: Notify,
}

/// A client of it.
#[derive(Clone)]
pub struct Fake(pub Arc<Server>);

impl Fake {
    /// An answer that refuses with this reason and code.
    pub fn refused(reason: &str, code: u16) -> ApiError {
        ApiError::Refused {
            request: "lease".into(),
            code,
            reason: reason.into(),
            message: reason.into(),
            status: Box::new(Status::default()),
            retry_after: None,
        }
    }

    fn enter(&self, verb: &'static str) -> Result<(), ApiError> {
        self.0.requests.lock().push(verb);
        assert!(!self.0.panics.load(Ordering::SeqCst), "on purpose");
        if self.0.down.load(Ordering::SeqCst) { Err(Self::refused("down", 503)) } else { Ok(()) }
    }

    /// What an observer sees of an encoded Lease in this version.
    pub fn observed(version: u64, raw: &[u8]) -> ObservedLease {
        let mut raw = raw.to_vec();
        raw = edit(&raw, &[Edit::SetBytes(&[1, 6], version.to_string().into_bytes())]).unwrap();
        let raw = Bytes::from(raw);
        let lease = Lease::decode(&raw).unwrap();
        ObservedLease { record: Record::from(&lease), version, preferred: lease.spec.preferred_holder, raw }
    }

    /// Stores a Lease as the next version.
    pub fn store(&self, raw: Vec<u8>) -> ObservedLease {
        let mut held = self.0.lease.lock();
        let version = held.as_ref().map_or(1, |(version, _)| version + 1);
        let observed = Self::observed(version, &raw);
        *held = Some((version, raw));
        self.0.changed.notify_waiters();
        observed
    }

    /// Names the holder, as an API server does that gives the Lease away.
    pub fn name(&self, holder: &str) {
        let held = self.0.lease.lock().as_ref().map(|(version, raw)| Self::observed(*version, raw));
        let record = Record::next(held.as_ref().map(|held| &held.record), holder, 15, Timestamp::UNIX_EPOCH);
        let raw = held.map_or_else(|| Lease::default().to_bytes(), |held| held.raw.to_vec());
        self.store(edit(&raw, &record.edits()).unwrap());
        self.prefer("");
    }

    /// Wants another to have the Lease, as such an API server does.
    pub fn prefer(&self, preferred: &str) {
        let (_, raw) = self.0.lease.lock().clone().unwrap();
        let preferred = preferred.as_bytes().to_vec();
        self.store(edit(&raw, &[Edit::SetBytes(path!(Lease, spec.preferredHolder), preferred)]).unwrap());
    }
}

impl LeaseApi for Fake {
    fn get(&self) -> BoxFuture<'_, Result<Option<ObservedLease>, ApiError>> {
        Box::pin(async {
            self.enter("get")?;
            if self.0.finds_nothing.load(Ordering::SeqCst) {
                return Ok(None);
            }
            Ok(self.0.lease.lock().as_ref().map(|(version, raw)| Self::observed(*version, raw)))
        })
    }

    fn create<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<ObservedLease, ApiError>> {
        Box::pin(async {
            self.enter("create")?;
            if self.0.lease.lock().is_some() {
                return Err(Self::refused("AlreadyExists", 409));
            }
            let mut empty = Lease { metadata: ObjectMeta::default(), ..Lease::default() }.to_bytes();
            put_bytes(&mut empty, 77, b"unknown");
            Ok(self.store(edit(&empty, &record.edits()).unwrap()))
        })
    }

    fn update<'a>(
        &'a self,
        observed: &'a ObservedLease,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<ObservedLease, ApiError>> {
        Box::pin(async {
            self.enter("update")?;
            let version: u64 = Lease::decode(&observed.raw).unwrap().metadata.version().unwrap();
            if self.0.lease.lock().as_ref().map(|held| held.0) != Some(version) {
                return Err(Self::refused("Conflict", 409));
            }
            let stored = self.store(edit(&observed.raw, &record.edits()).unwrap());
            let late = *self.0.answers_after.lock();
            tokio::time::sleep(late).await;
            Ok(stored)
        })
    }

    fn watch<'a>(
        &'a self,
        seen: &'a (dyn Fn(ObservedLease) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, ApiError>> {
        Box::pin(async move {
            loop {
                let changed = self.0.changed.notified();
                let now = self.0.lease.lock().as_ref().map(|(version, raw)| Self::observed(*version, raw));
                if now.is_some_and(seen) {
                    return Ok(true);
                }
                changed.await;
            }
        })
    }
}
