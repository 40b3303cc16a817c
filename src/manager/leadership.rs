//! Leadership: who leads under which lock, and what follows from it.
//!
//! Without leader migration there is one lock and every controller runs under it. With migration there are two, the
//! manager's own and the migration lock, and the migration configuration says which controllers run under the latter; it is
//! taken only after the service-account token controller has been started under the first, so that no replica ever
//! holds the second without the first. See "Migrate Replicated Control Plane To Use Cloud Controller Manager" in the
//! Kubernetes documentation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::manager::{LeaseState, StepDownError};
use crate::api::kinds::LEASES;
use crate::client::WriteGuard;
use crate::election::{Elector, Leadership, LeaseApi, LeaseLock};
use crate::events::Recorder;
use crate::model::Key;
use crate::model::plan::{EventSpec, Regarding};
use crate::telemetry::ManagerMetrics;

/// One lock for which this replica stands.
pub(super) struct Lock<L = LeaseLock> {
    pub(super) elector: Arc<Elector<L>>,
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

impl<L: LeaseApi> Lock<L> {
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

    /// Gives the Lease to `successor`, or to whoever comes first.
    pub(super) async fn hand_over(&self, successor: Option<&str>) -> Result<(), StepDownError> {
        if !self.elector.is_leading() {
            return Ok(());
        }
        self.record("stopped leading");
        let done = self.elector.hand_over(successor).await;
        self.metrics.set_leading(&self.name, false);
        match &done {
            Ok(()) => tracing::info!(lease = self.name, successor, "handed over"),
            Err(error) => tracing::error!(lease = self.name, %error, "not handed over"),
        }
        done.map_err(|error| StepDownError::Unavailable(format!("{}: {error}", self.name)))
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

/// The Leases that this replica fights for, to be looked at.
#[derive(Debug)]
pub struct Leases {
    locks: Vec<(Key, watch::Receiver<Leadership>)>,
    changes: watch::Sender<u64>,
}

impl Leases {
    /// These Leases, the main one first; none without an election.
    pub(super) fn new(locks: Vec<(Key, watch::Receiver<Leadership>)>) -> Self {
        Self { locks, changes: watch::Sender::default() }
    }

    /// How they stand, the main one first; empty if leader election is off, in which case this replica leads.
    pub fn list(&self) -> Vec<LeaseState> {
        let state = |(lease, leadership): &(Key, watch::Receiver<Leadership>)| {
            let Leadership { leading, record } = leadership.borrow().clone();
            LeaseState { lease: lease.clone(), leading, record }
        };
        self.locks.iter().map(state).collect()
    }

    /// Whether this replica leads, by the main Lease if there is one.
    pub fn is_leading(&self) -> bool {
        self.locks.first().is_none_or(|(_, main)| main.borrow().leading)
    }

    /// Changes whenever a Lease gets another holder, or this replica begins or ceases to lead; not with mere renewals.
    /// The number means nothing.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Keeps [`Leases::changes`] going, for ever.
    pub(super) async fn follow(&self) {
        let each = self.locks.iter().map(|(_, leadership)| async {
            let mut leadership = leadership.clone();
            let mut last = standing(&leadership.borrow_and_update());
            while leadership.changed().await.is_ok() {
                let now = standing(&leadership.borrow_and_update());
                if now != last {
                    last = now;
                    self.changes.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        });
        futures::future::join_all(each).await;
    }
}

/// What of a leadership is more than a renewal.
fn standing(leadership: &Leadership) -> (bool, Option<crate::wire::Str>) {
    (leadership.leading, leadership.record.as_ref().map(|record| record.holder.clone()))
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::election::Record;

    #[tokio::test(start_paused = true)]
    async fn leases_tell_of_holders_and_not_of_renewals() {
        let (main, second) = (watch::Sender::<Leadership>::default(), watch::Sender::<Leadership>::default());
        let of = |name: &str, lock: &watch::Sender<Leadership>| (Key::new("ns", name), lock.subscribe());
        let leases = Leases::new(vec![of("main", &main), of("second", &second)]);
        let mut changes = leases.changes();
        let told = async {
            let mut changed = async |what: &str| {
                let waited = tokio::time::timeout(Duration::from_secs(1), changes.changed()).await;
                (what.to_owned(), waited.is_ok())
            };
            let mut told = vec![changed("nothing").await];
            let record = Record::next(None, "a", 15, Timestamp::UNIX_EPOCH);
            main.send_modify(|state| state.record = Some(record.clone()));
            told.push(changed("a holder").await);
            main.send_modify(|state| state.leading = true);
            told.push(changed("leading").await);
            let renewed = Record::next(Some(&record), "a", 15, Timestamp::MAX);
            main.send_modify(|state| state.record = Some(renewed));
            told.push(changed("a renewal").await);
            second.send_modify(|state| state.record = Some(record.released(None, Timestamp::UNIX_EPOCH)));
            told.push(changed("the other").await);
            told
        };
        let told = tokio::select! {
            told = told => told,
            () = leases.follow() => panic!("it follows for ever"),
        };
        let told: Vec<(&str, bool)> = told.iter().map(|(what, told)| (what.as_str(), *told)).collect();
        let expected = [
            ("nothing", false),
            ("a holder", true),
            ("leading", true),
            ("a renewal", false),
            ("the other", true),
        ];
        assert_eq!(told, expected);
        assert!(leases.is_leading());
        let list = leases.list();
        assert_eq!(list.iter().map(|state| state.leading).collect::<Vec<_>>(), [true, false]);
        assert_eq!(list[1].lease, Key::new("ns", "second"));
        assert!(Leases::new(Vec::new()).is_leading(), "without an election every replica leads");
    }
}
