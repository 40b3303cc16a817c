//! Leadership: who leads under which lock, and what follows from it.
//!
//! Without leader migration there is one lock and every controller runs under it. With migration there are two, the
//! manager's own and the migration lock, and the migration configuration says which controllers run under the latter; it is
//! taken only after the service-account token controller has been started under the first, so that no replica ever
//! holds the second without the first. See "Migrate Replicated Control Plane To Use Cloud Controller Manager" in the
//! Kubernetes documentation.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::kinds::LEASES;
use crate::client::WriteGuard;
use crate::election::{Elector, LeaseLock};
use crate::events::Recorder;
use crate::model::Key;
use crate::model::plan::{EventSpec, Regarding};
use crate::telemetry::ManagerMetrics;

/// One lock for which this replica stands.
pub(super) struct Lock {
    pub(super) elector: Arc<Elector<LeaseLock>>,
    /// Where the Lease is.
    pub(super) lease: Key,
    /// Name of the Lease, as metrics carry it.
    pub(super) name: String,
    pub(super) metrics: ManagerMetrics,
    pub(super) recorder: Recorder,
}

/// How a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The manager was told to stop; the Lease is still ours.
    Stopped,
    /// It could not be renewed, or another replica has it.
    Lost,
}

impl Lock {
    /// Waits until this replica leads; `false` when it was told to stop before.
    pub(super) async fn acquire(&self, stop: &CancellationToken) -> bool {
        let identity = self.elector.identity();
        tracing::info!(lease = self.name, identity, "attempting to acquire leadership");
        self.metrics.set_leading(&self.name, false);
        if !self.elector.acquire(stop).await {
            return false;
        }
        tracing::info!(lease = self.name, identity, "leading");
        self.metrics.set_leading(&self.name, true);
        self.record("became leader");
        true
    }

    /// Keeps renewing until leadership is lost or the manager is told to stop.
    pub(super) async fn hold(&self, stop: &CancellationToken) -> Ended {
        let ended = if self.elector.hold(stop).await { Ended::Stopped } else { Ended::Lost };
        if ended == Ended::Lost {
            self.metrics.set_leading(&self.name, false);
            tracing::error!(lease = self.name, "leadership lost");
        }
        ended
    }

    /// Lets writes pass only as long as no other replica can lead.
    pub(super) fn guard(&self) -> WriteGuard {
        let elector = Arc::clone(&self.elector);
        Arc::new(move || elector.is_protected())
    }

    /// Gives the Lease back.
    pub(super) async fn release(&self) {
        if self.elector.is_leading() {
            self.record("stopped leading");
            self.elector.release().await;
            self.metrics.set_leading(&self.name, false);
            tracing::info!(lease = self.name, "released");
        }
    }

    fn record(&self, what: &str) {
        if let Some(meta) = self.elector.lease_meta() {
            self.recorder.emit(EventSpec {
                regarding: Regarding::of(&LEASES, &meta),
                warning: false,
                reason: "LeaderElection",
                message: format!("{} {what}", self.elector.identity()),
            });
        }
    }
}

/// A name that no other process has: the host's and a random part, as the original makes it.
pub(super) fn identity() -> String {
    format!("{}_{}", hostname(), uuid::Uuid::new_v4())
}

pub(super) fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// Beyond the lease's duration, for how long a leader that does not renew still counts as healthy.
pub(super) const HEALTH_GRACE: Duration = Duration::from_secs(20);
