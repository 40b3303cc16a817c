//! Leadership: who leads under which lock, and what follows from it.
//!
//! Without leader migration there is one lock and every controller runs under it. With migration there are two, the
//! manager's own and the migration lock, and the migration configuration says which controllers run under the latter; it is
//! taken only after the service-account token controller has been started under the first, so that no replica ever
//! holds the second without the first. See "Migrate Replicated Control Plane To Use Cloud Controller Manager" in the
//! Kubernetes documentation.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::error::ManagerError;
use super::event_logger::LeadershipChange;
use crate::admin::manager::{LeaseState, StepDownError};
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::client::{WriteGate, WriteGuard};
use coxswain_machinery::election::{CandidateObject, Contender, Elector, Leadership, LeaseApi, LeaseLock};
use coxswain_machinery::events::Recorder;
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::telemetry::ManagerMetrics;
use coxswain_machinery::wire::Str;

/// One lock for which this replica stands.
pub(super) struct Lock<L = LeaseLock> {
    pub(super) elector: Arc<Elector<L>>,
    /// Where it runs: nothing else may hold up a renewal.
    pub(super) thread: Handle,
    /// Name of the Lease, as metrics carry it.
    pub(super) name: String,
    pub(super) metrics: ManagerMetrics,
    pub(super) recorder: Recorder,
    /// Whether the Lease is given back when all ends. It is by default; the original does it with the feature gate
    /// `ControllerManagerReleaseLeaderElectionLockOnExit` alone, and who switches that off wants it to expire.
    /// Differs: lease-release.
    pub(super) releases: bool,
    /// Who stands for the Lease where the API server gives it away.
    pub(super) candidate: Option<Arc<Contender<CandidateObject>>>,
}

/// How a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermEnd {
    /// The manager was told to stop; the Lease is still ours.
    Stopped,
    /// It could not be renewed, or another replica has it.
    Lost,
}

impl<L: LeaseApi> Lock<L> {
    /// Runs a part of the election where it belongs. It ends when this is dropped.
    async fn run<T: Send + 'static>(
        &self,
        part: impl FnOnce(Arc<Elector<L>>) -> BoxFuture<'static, T>,
    ) -> Result<T, ManagerError> {
        let task = self.thread.spawn(part(Arc::clone(&self.elector)).in_current_span());
        AbortOnDropHandle::new(task).await.map_err(|error| ManagerError::Election(error.to_string()))
    }

    /// Stands for the Lease, where the API server gives it away, until `stop` or until the answer is dropped.
    pub(super) fn stand(&self, stop: &CancellationToken) -> Option<AbortOnDropHandle<()>> {
        let (candidate, stop) = (Arc::clone(self.candidate.as_ref()?), stop.clone());
        let standing = async move {
            stop.run_until_cancelled(candidate.stand()).await;
        };
        Some(AbortOnDropHandle::new(self.thread.spawn(standing)))
    }

    /// Returns once the API server wants another replica to have the Lease.
    pub(super) async fn until_asked_to_give_way(&self) {
        self.elector.until_asked_to_give_way().await;
    }

    /// Waits until this replica leads; `false` when it was told to stop before.
    pub(super) async fn acquire(&self, stop: &CancellationToken) -> Result<bool, ManagerError> {
        let identity = self.elector.identity();
        tracing::info!(lease = self.name, identity, "Attempting to acquire the Lease");
        self.metrics.set_leading(&self.name, false);
        let stop = stop.clone();
        if !self.run(|elector| Box::pin(async move { elector.acquire(&stop).await })).await? {
            return Ok(false);
        }
        tracing::info!(lease = self.name, identity, "Acquired the Lease");
        self.metrics.set_leading(&self.name, true);
        self.record("became leader");
        Ok(true)
    }

    /// Keeps renewing until leadership is lost or the manager is told to stop. Meanwhile writes that have passed `gate`
    /// are cut off whenever the Lease does not protect them any more; after a loss it is closed, too, at once and
    /// whatever all other threads do.
    pub(super) async fn hold(&self, stop: &CancellationToken, gate: &WriteGate) -> TermEnd {
        let (stop, gate) = (stop.clone(), gate.clone());
        let stopped = self.run(|elector| {
            Box::pin(async move {
                let held = Held(Some(gate.clone()));
                let stopped = tokio::select! {
                    biased;
                    // First: an answer that comes at the very end is too late.
                    never = elector.at_ends_of_protection(|| gate.cut()) => match never {},
                    stopped = elector.hold(&stop) => stopped,
                };
                if stopped {
                    held.given_up();
                }
                stopped
            })
        });
        let ended = match stopped.await {
            Ok(true) => TermEnd::Stopped,
            Ok(false) => TermEnd::Lost,
            Err(error) => {
                tracing::error!(lease = self.name, %error, "Leader election failed");
                TermEnd::Lost
            }
        };
        if ended == TermEnd::Lost {
            self.metrics.set_leading(&self.name, false);
            tracing::error!(lease = self.name, "Lost leadership");
            self.record("stopped leading");
        }
        ended
    }

    /// Lets writes pass only as long as no other replica can lead.
    pub(super) fn guard(&self) -> WriteGuard {
        let elector = Arc::clone(&self.elector);
        Arc::new(move || elector.is_protected())
    }

    /// Gives the Lease back, or leaves it to expire.
    pub(super) async fn release(&self) {
        if self.elector.is_leading() {
            self.record("stopped leading");
            if !self.releases {
                self.metrics.set_leading(&self.name, false);
                tracing::info!(lease = self.name, "Stopped renewing the Lease");
                return;
            }
            let released = self.run(|elector| Box::pin(async move { elector.release().await })).await;
            if let Err(error) = released {
                tracing::error!(lease = self.name, %error, "Failed to release the Lease");
            }
            self.metrics.set_leading(&self.name, false);
            tracing::info!(lease = self.name, "Released the Lease");
        }
    }

    /// Gives the Lease to `successor`, or to whoever comes first.
    pub(super) async fn hand_over(&self, successor: Option<&str>) -> Result<(), StepDownError> {
        if !self.elector.is_leading() {
            return Ok(());
        }
        self.record("stopped leading");
        let named = successor.map(str::to_owned);
        let done =
            self.run(|elector| Box::pin(async move { elector.hand_over(named.as_deref()).await })).await;
        let done = match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.metrics.set_leading(&self.name, false);
        match &done {
            Ok(()) => tracing::info!(lease = self.name, successor, "Handed over the Lease"),
            Err(error) => tracing::error!(lease = self.name, error, "Failed to hand over the Lease"),
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

/// That a Lease is held. Dropped before it was given up, by a loss or a panic or because all ends, it stops all writes.
struct Held(Option<WriteGate>);

impl Held {
    fn given_up(mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.close();
            gate.cut();
        }
    }
}

/// The Leases that this replica fights for, to be looked at.
#[derive(Debug)]
pub struct Leases {
    locks: Vec<(Key, latest::Receiver<Leadership>)>,
}

impl Leases {
    /// These Leases, the main one first; none without an election.
    pub(super) fn new(locks: Vec<(Key, latest::Receiver<Leadership>)>) -> Self {
        Self { locks }
    }

    /// How they stand, the main one first; empty if leader election is off, in which case this replica leads.
    pub fn list(&self) -> Vec<LeaseState> {
        let state = |(lease, leadership): &(Key, latest::Receiver<Leadership>)| {
            let Leadership { leading, record } = leadership.borrow().clone();
            LeaseState { lease: lease.clone(), leading, record }
        };
        self.locks.iter().map(state).collect()
    }

    /// Whether this replica leads, by the main Lease if there is one.
    pub fn is_leading(&self) -> bool {
        self.locks.first().is_none_or(|(_, main)| main.borrow().leading)
    }

    /// Tells of each Lease's state, and whenever one gets another holder or this replica begins or ceases to lead; not of
    /// mere renewals. For ever.
    pub(super) async fn follow(&self, tell: impl Fn(LeadershipChange)) {
        let each = self.locks.iter().map(|(lease, leadership)| follow(lease, leadership.clone(), &tell));
        futures::future::join_all(each).await;
    }
}

async fn follow(lease: &Key, mut leadership: latest::Receiver<Leadership>, tell: &impl Fn(LeadershipChange)) {
    let (mut holder, mut led) = (Str::EMPTY, false);
    loop {
        let Leadership { leading, record } = leadership.borrow_and_update().clone();
        let (now, transitions) = record.map(|record| (record.holder, record.transitions)).unwrap_or_default();
        if now != holder || leading != led {
            tell(LeadershipChange {
                lease: lease.clone(),
                previous: std::mem::replace(&mut holder, now.clone()),
                holder: now,
                leading,
                transitions,
            });
            led = leading;
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// A name that no other process has: the host's and a random part, as the original makes it.
pub(super) fn identity(host: &str) -> String {
    format!("{host}_{}", coxswain_machinery::random::uuid())
}

/// Beyond the lease's duration, for how long a leader that does not renew still counts as healthy.
pub(super) const HEALTH_GRACE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use coxswain_machinery::election::Record;

    #[tokio::test(start_paused = true)]
    async fn leases_tell_of_holders_and_not_of_renewals() {
        let (main, second) =
            (latest::Sender::<Leadership>::default(), latest::Sender::<Leadership>::default());
        let of = |name: &str, lock: &latest::Sender<Leadership>| (Key::new("ns", name), lock.subscribe());
        let leases = Leases::new(vec![of("main", &main), of("second", &second)]);
        let told = parking_lot::Mutex::new(Vec::new());
        let acting = async {
            let turn = || tokio::time::sleep(Duration::from_secs(1));
            let record = Record::next(None, "a", 15, Timestamp::UNIX_EPOCH);
            turn().await;
            main.send_modify(|state| state.record = Some(record.clone()));
            turn().await;
            main.send_modify(|state| state.leading = true);
            turn().await;
            let renewed = Record::next(Some(&record), "a", 15, Timestamp::MAX);
            main.send_modify(|state| state.record = Some(renewed));
            turn().await;
            second.send_modify(|state| state.record = Some(Record { holder: "b".into(), ..record }));
            turn().await;
        };
        tokio::select! {
            biased;
            () = acting => {}
            () = leases.follow(|change| told.lock().push(change)) => panic!("it follows for ever"),
        }
        let told = told.into_inner();
        let told: Vec<_> = told
            .iter()
            .map(|change| (&*change.lease.name, &*change.previous, &*change.holder, change.leading))
            .collect();
        let expected = [("main", "", "a", false), ("main", "a", "a", true), ("second", "", "b", false)];
        assert_eq!(told, expected);
        assert!(leases.is_leading());
        let list = leases.list();
        assert_eq!(list.iter().map(|state| state.leading).collect::<Vec<_>>(), [true, false]);
        assert_eq!(list[1].lease, Key::new("ns", "second"));
        assert!(Leases::new(Vec::new()).is_leading(), "without an election every replica leads");
    }
}
