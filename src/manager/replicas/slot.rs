//! One replica's hold on its Lease: finding one, renewing it, giving it up; and the removal of what the dead have left.
//!
//! Every write carries the version that was read, and every request has a short limit: a slow API server delays one try,
//! not the next. A try that is cut off may have been carried out all the same; the next one finds that out, by a conflict
//! or by the name being taken, and goes on from there.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::board::Board;
use super::format::{Announcement, Own, is_replicas, released};
use super::store::LeaseStore;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::client::ApiError;
use coxswain_machinery::model::clock::SharedClock;
use coxswain_machinery::wire::WireError;

/// How long a request may take.
pub(super) const REQUEST: Duration = Duration::from_secs(5);
/// How long each way to give the Lease up may take at the end.
pub(super) const WITHDRAW: Duration = Duration::from_secs(2);
/// Names tried in a row.
const NAMES: usize = 16;

/// A replica that could not announce itself, yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnnounceError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("edit the Lease: {0}")]
    Wire(#[from] WireError),
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    #[error("the first {NAMES} Lease names are in use by other replicas")]
    NoName,
}

impl AnnounceError {
    /// Whether the Lease is not what it was when it was read.
    fn is_outdated(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict() || error.is_not_found())
    }
}

/// A replica's Lease, once it has one.
pub(super) struct Slot {
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) own: Own,
    pub(super) clock: SharedClock,
    pub(super) held: Option<Arc<Lease>>,
}

impl Slot {
    /// Renews the Lease; finds or makes one when there is none, or it is lost.
    pub(super) async fn announce(
        &mut self,
        board: &Mutex<Board>,
        announcement: &Announcement,
    ) -> Result<(), AnnounceError> {
        if let Some(held) = self.held.clone() {
            self.held = match self.take(&held, announcement).await? {
                Some(renewed) => Some(renewed),
                None => match within(self.store.get(&held.metadata.name)).await? {
                    Some(found) if self.is_ours(&found) => self.take(&found, announcement).await?,
                    _ => None,
                },
            };
            if self.held.is_some() {
                return Ok(());
            }
            tracing::info!(lease = %held.metadata.name, "Lost the replica's Lease; creating another");
        }
        let taken = self.find(board, announcement).await?;
        tracing::info!(lease = %taken.metadata.name, "Announced this replica");
        self.held = Some(taken);
        Ok(())
    }

    async fn find(
        &self,
        board: &Mutex<Board>,
        announcement: &Announcement,
    ) -> Result<Arc<Lease>, AnnounceError> {
        let (known, names) = {
            let board = board.lock();
            let mut known = board.held_by(&self.own.identity);
            known.extend(board.vacant(self.clock.now()));
            (known, board.free_names(NAMES))
        };
        for lease in known {
            if let Some(taken) = self.take(&lease, announcement).await? {
                return Ok(taken);
            }
        }
        for name in names {
            let new = self.own.lease(&name, announcement, self.clock.now())?;
            match within(self.store.create(&new)).await {
                Err(AnnounceError::Api(error)) if error.is_already_exists() => {}
                created => return created,
            }
            // Another replica's that the watch has not shown yet, our own by a try without an answer, or somebody's
            // who chose the name for something else.
            let found = within(self.store.get(&name)).await?;
            let usable = |found: &Arc<Lease>| {
                self.is_ours(found) || is_replicas(found) && found.spec.holder_identity.is_empty()
            };
            if let Some(found) = found.filter(usable)
                && let Some(taken) = self.take(&found, announcement).await?
            {
                return Ok(taken);
            }
        }
        Err(AnnounceError::NoName)
    }

    /// Writes this replica into a Lease; `None` when it is not what it was any more.
    async fn take(
        &self,
        lease: &Lease,
        announcement: &Announcement,
    ) -> Result<Option<Arc<Lease>>, AnnounceError> {
        let renewed = self.own.renewed(lease, announcement, self.clock.now())?;
        match within(self.store.update(&lease.metadata.name, &renewed)).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.is_outdated() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        is_replicas(lease) && lease.spec.holder_identity == *self.own.identity
    }

    /// Removes the Lease, or leaves it to the next replica. Bounded.
    pub(super) async fn withdraw(&mut self) {
        let Some(held) = self.held.take() else { return };
        let name = held.metadata.name.clone();
        if self.store.may_delete() {
            match timeout(WITHDRAW, self.discard(Arc::clone(&held), true)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::warn!(lease = %name, %error, "Failed to delete the replica's Lease");
                }
                Err(_) => tracing::warn!(lease = %name, "Timed out deleting the replica's Lease"),
            }
        }
        match timeout(WITHDRAW, self.discard(held, false)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(lease = %name, %error, "Failed to release the replica's Lease"),
            Err(_) => tracing::warn!(lease = %name, "Timed out releasing the replica's Lease"),
        }
    }

    /// Deletes or releases our own Lease, whatever of our own writes has come in between.
    async fn discard(&self, mut held: Arc<Lease>, delete: bool) -> Result<(), AnnounceError> {
        loop {
            let done = if delete { self.delete(&held).await } else { self.release(&held).await };
            match done {
                Err(error) if error.is_outdated() => {
                    match within(self.store.get(&held.metadata.name)).await? {
                        Some(found) if self.is_ours(&found) => held = found,
                        _ => return Ok(()),
                    }
                }
                done => return done,
            }
        }
    }

    /// Removes what dead replicas have left. For the leader: one is enough. Failures are reported and tried again by
    /// the next call.
    pub(super) async fn collect(&self, board: &Mutex<Board>) {
        let may_delete = self.store.may_delete();
        let remains = board.lock().remains(&self.own.identity, may_delete, Instant::now());
        for lease in remains {
            let name = &lease.metadata.name;
            let done = if may_delete { self.delete(&lease).await } else { self.release(&lease).await };
            match done {
                Ok(()) => {
                    let identity = &*lease.spec.holder_identity;
                    tracing::info!(lease = %name, identity, "Deleted the Lease of a dead replica");
                }
                // It lives after all, or somebody was faster.
                Err(error) if error.is_outdated() => {}
                Err(error) => {
                    tracing::warn!(lease = %name, %error, "Failed to delete the Lease of a dead replica");
                }
            }
        }
    }

    async fn delete(&self, lease: &Lease) -> Result<(), AnnounceError> {
        within(self.store.delete(lease)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), AnnounceError> {
        let released = released(lease, self.clock.now())?;
        within(self.store.update(&lease.metadata.name, &released)).await.map(drop)
    }
}

async fn within<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, AnnounceError> {
    match timeout(REQUEST, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(AnnounceError::Timeout(REQUEST)),
    }
}
