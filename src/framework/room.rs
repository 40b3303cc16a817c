//! The shape of a controller: observe, then plan.

use std::time::Duration;

use jiff::Timestamp;

use super::reads::{Observed, Pass, Reads};
use super::worker::Outcome;
use crate::api::Kind;
pub use crate::client::Pace;
use crate::executor::ActionState;
use crate::model::Key;
use crate::model::plan::{Failure, Plan};

/// A reconcile that has ended, as a room's own metrics see it.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
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
    fn ended(&self, key: &Key, ended: Ended<'_>) {
        let _ = (key, ended);
    }

    /// How long the keys that a change of this kind concerns rest first, so that further changes are gathered. A key is
    /// taken up when the first of its changes has rested that long, or at once when another change asks for it.
    fn gather(&self, kind: &Kind) -> Duration {
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
    ) -> Result<Observed<Self::View>, ObserveError>;

    /// Decides, as [`Room::plan`] does.
    fn plan(view: &Self::View, now: Timestamp) -> Plan;

    /// See [`Room::gather`].
    fn gather(&self, kind: &Kind) -> Duration {
        let _ = kind;
        Duration::ZERO
    }

    /// How long a key that fails again and again rests at most; `None` for as long as with most controllers.
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }

    /// How fast it may ask, compared with other controllers. The fastest of a controller's loops counts for all.
    fn pace(&self) -> Pace {
        Pace::PLAIN
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
    fn ended(&self, key: &Key, ended: Ended<'_>) {
        let _ = (key, ended);
    }

    /// How long the keys that a change of this kind concerns rest first, see [`Room::gather`].
    fn gather(&self, kind: &Kind) -> Duration {
        let _ = kind;
        Duration::ZERO
    }

    /// How often every object is reconciled, see [`Room::resync`].
    fn resync(&self) -> Option<Duration> {
        None
    }

    /// How long a key that fails again and again rests at most, see [`LiveRoom::longest_backoff`].
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }

    /// How fast it may ask, see [`LiveRoom::pace`].
    fn pace(&self) -> Pace {
        Pace::PLAIN
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

    fn ended(&self, key: &Key, ended: Ended<'_>) {
        self.0.ended(key, ended);
    }

    fn gather(&self, kind: &Kind) -> Duration {
        self.0.gather(kind)
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
            Observed::Nothing => Pass::Nothing,
            Observed::Needs(reads) => Pass::Needs(reads),
            Observed::View(view) => Pass::Plan(R::plan(&view, now)),
        })
    }

    fn gather(&self, kind: &Kind) -> Duration {
        self.0.gather(kind)
    }

    fn longest_backoff(&self) -> Option<Duration> {
        self.0.longest_backoff()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }
}
