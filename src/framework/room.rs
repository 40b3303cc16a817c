//! The shape of a controller: observe, then plan.

use std::time::Duration;

use jiff::Timestamp;

use super::reads::{Observation, Pass, Reads};
use super::worker::Outcome;
use crate::api::Kind;
pub use crate::client::QpsFactor;
use crate::executor::ActionState;
use crate::model::Key;
use crate::model::plan::{Failure, Plan};

/// A reconcile that has ended, as a room's own metrics see it.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileEnd<'a> {
    /// How it ended.
    pub outcome: &'a Outcome,
    /// The steps that it took.
    pub actions: &'a [ActionState],
    /// How long it took.
    pub took: Duration,
}

/// A controller's reads and decisions for one kind of key.
pub trait Room: Send + Sync + 'static {
    /// Everything that a decision rests on.
    type View: Send;

    /// Reads the stores. `None`: there is nothing at this key to decide about. `failures` is empty on the first pass;
    /// on the second it holds what the first pass's plan met, so that the view can carry it.
    fn observe(&self, key: &Key, failures: &[Failure]) -> Result<Option<Self::View>, ObserveError>;

    /// Decides. Pure: no I/O, clock, async or randomness; the same view and time give the same plan.
    fn plan(view: &Self::View, now: Timestamp) -> Plan;

    /// Plans for a reconcile of `key` that is about to take place: [`Room::plan`], unless the room counts for its metrics
    /// what it decides.
    fn decide(&self, key: &Key, view: &Self::View, now: Timestamp) -> Plan {
        let _ = key;
        Self::plan(view, now)
    }

    /// A reconcile of `key` has ended. For metrics of the room's own; must not block.
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let _ = (key, ended);
    }

    /// How long a change of this kind is debounced: further changes of its keys are collected meanwhile. A key is taken up when
    /// the first of its changes is that old, or at once when another change asks for it.
    fn debounce(&self, kind: &Kind) -> Duration {
        let _ = kind;
        Duration::ZERO
    }

    /// How often every object of the loop's kind is reconciled without a change; never if `None`.
    fn resync(&self) -> Option<Duration> {
        None
    }
}

/// A controller whose decisions rest on live reads too: it observes in several passes. See [`Reads`].
pub trait LiveRoom: Send + Sync + 'static {
    /// Everything that a decision rests on.
    type View: Send;

    /// Reads the stores and what was `read` so far, and says what else must be read. On a pass with `failures` (see
    /// [`Room::observe`]) it begins anew: what the plan changed must be read again.
    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<Self::View>, ObserveError>;

    /// Decides, as [`Room::plan`] does.
    fn plan(view: &Self::View, now: Timestamp) -> Plan;

    /// See [`Room::debounce`].
    fn debounce(&self, kind: &Kind) -> Duration {
        let _ = kind;
        Duration::ZERO
    }

    /// How long a key that fails again and again waits at most; `None` for as long as with most controllers.
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }

    /// How fast it may ask, compared with other controllers. The fastest of a controller's loops counts for all.
    fn qps_factor(&self) -> QpsFactor {
        QpsFactor::ONE
    }
}

/// The stores hold something that cannot be reconciled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The object itself is unusable (an invalid selector, say); only a change of it can help.
    #[error("{0}")]
    Terminal(String),
    /// It may work in a moment.
    #[error("{0}")]
    Retry(String),
}

/// A room with its view type erased: what a worker loop runs.
pub trait Reconcile: Send + Sync {
    /// Takes one pass: observes with what was `read` so far, and plans when that is enough.
    fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<Pass, ObserveError>;

    /// A reconcile has ended, see [`Room::ended`].
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let _ = (key, ended);
    }

    /// How long a change of this kind is debounced, see [`Room::debounce`].
    fn debounce(&self, kind: &Kind) -> Duration {
        let _ = kind;
        Duration::ZERO
    }

    /// How often every object is reconciled, see [`Room::resync`].
    fn resync(&self) -> Option<Duration> {
        None
    }

    /// How long a key that fails again and again waits at most, see [`LiveRoom::longest_backoff`].
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }

    /// How fast it may ask, see [`LiveRoom::qps_factor`].
    fn qps_factor(&self) -> QpsFactor {
        QpsFactor::ONE
    }
}

/// Makes a [`Reconcile`] of a [`Room`].
#[derive(Debug)]
pub struct RoomAdapter<R>(pub R);

impl<R: Room> Reconcile for RoomAdapter<R> {
    fn plan(&self, key: &Key, failures: &[Failure], _: &Reads, now: Timestamp) -> Result<Pass, ObserveError> {
        Ok(match self.0.observe(key, failures)? {
            Some(view) => Pass::Plan(self.0.decide(key, &view, now)),
            None => Pass::Nothing,
        })
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        self.0.ended(key, ended);
    }

    fn debounce(&self, kind: &Kind) -> Duration {
        self.0.debounce(kind)
    }

    fn resync(&self) -> Option<Duration> {
        self.0.resync()
    }
}

/// Makes a [`Reconcile`] of a [`LiveRoom`].
#[derive(Debug)]
pub struct LiveAdapter<R>(pub R);

impl<R: LiveRoom> Reconcile for LiveAdapter<R> {
    fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<Pass, ObserveError> {
        Ok(match self.0.observe(key, failures, read)? {
            Observation::Nothing => Pass::Nothing,
            Observation::Needs(reads) => Pass::Needs(reads),
            Observation::View(view) => Pass::Plan(R::plan(&view, now)),
        })
    }

    fn debounce(&self, kind: &Kind) -> Duration {
        self.0.debounce(kind)
    }

    fn longest_backoff(&self) -> Option<Duration> {
        self.0.longest_backoff()
    }

    fn qps_factor(&self) -> QpsFactor {
        self.0.qps_factor()
    }
}
