//! The executor: performs any controller's plan as it stands, and makes no choices.
//!
//! Steps run in order; the first that fails ends the plan, unless the plan says that it goes on without it. What was written is reported, so that the framework can hold
//! the key back until the caches have seen it; what failed is reported, so that the room can plan once more with the
//! failure in hand. Nothing here reads a cache or retries. A JSON patch that is answered with 415 is sent as a merge patch.

mod actions;
mod batch;
mod budget;
mod finish;
mod merge;
mod perform;
mod send;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use actions::{ActionResult, ActionState, ActionVerb, executed, planned, write_action};
use budget::Budgets;
pub use finish::{FinishError, Finisher, Finishers};

use crate::api::{AnyObject, Kind};
use crate::client::{ApiClient, ApiError};
use crate::informer::Epoch;
use crate::model::Key;
use crate::model::plan::{EventSpec, Failure, Write};
use crate::wire::{Str, Uid};

/// Where events go. Emitting never blocks and never fails the plan.
pub trait Events: Send + Sync {
    /// Takes an event in.
    fn emit(&self, event: EventSpec);
}

/// Hears of every write when its answer is there, or is known not to come. Must not block.
pub trait ObserveWrites: Send + Sync {
    /// A write was answered.
    fn wrote(&self, write: &AnsweredWrite<'_>);
}

/// A write and its answer.
#[derive(Debug)]
pub struct AnsweredWrite<'a> {
    /// What was asked.
    pub write: &'a Write,
    /// The same, as it is displayed.
    pub what: &'a str,
    /// The object, under the name that it got.
    pub key: &'a Key,
    /// HTTP status code; 0 when no answer came.
    pub code: u16,
    /// The server's reason, where it refused.
    pub reason: Str,
    /// What became of it.
    pub result: ActionResult,
    /// Resource version as written; empty where there is none.
    pub resource_version: Str,
    /// How long it took.
    pub took: Duration,
}

/// Performs plans as one controller.
#[derive(Clone)]
pub struct Executor {
    client: ApiClient,
    events: Arc<dyn Events>,
    finishers: Finishers,
    budgets: Arc<Budgets>,
    writes: Option<Arc<dyn ObserveWrites>>,
    epoch: Epoch,
}

/// What a plan did.
#[derive(Debug, Default)]
pub struct Executed {
    /// What became of each of its actions, in the order in which [`planned`] tells them.
    pub results: Vec<ActionEnd>,
    /// Writes that were carried out or may have been, tolerated refusals included, in no order within a batch.
    pub effects: Vec<Effect>,
    /// The failed actions. A canceled request is not a failure.
    pub failures: Vec<Failure>,
    /// The error behind the first failure.
    pub error: Option<ExecuteError>,
    /// Whether it ended early for a failure, or because a request was canceled.
    pub stopped: bool,
    /// The request that a stop of the controller or the end of its term canceled, even if the plan goes on without that write. The
    /// result of such a plan is unknown, so no other plan may rest on it.
    pub canceled: Option<ExecuteError>,
    /// Whether a write met another version of its object than was read, or another object, which its plan tolerates.
    pub outdated: bool,
    /// Whether a terminating namespace refused a create, which its plan tolerates, or a create was withheld for this reason.
    pub meets_terminating: bool,
    /// Items of the plan's note whose writes have succeeded.
    pub items: Vec<usize>,
    /// Whether it ended early for want of a token, and if so when there is one; `None` there if there will be none.
    pub held_back: Option<Option<Duration>>,
}

/// What became of one action of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEnd {
    /// What became of it; [`ActionResult::Planned`] if it was not tried.
    pub result: ActionResult,
    /// HTTP status of the answer by which it failed.
    pub code: Option<u16>,
    /// The object that was written, under the name that it got.
    pub key: Option<Key>,
}

impl Default for ActionEnd {
    fn default() -> Self {
        Self { result: ActionResult::Planned, code: None, key: None }
    }
}

/// What a write changed, as far as is known.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Kind of the object.
    pub kind: &'static Kind,
    /// Where it is.
    pub key: Key,
    /// The subresource that was written; empty for the object itself.
    pub subresource: &'static str,
    /// What became of it.
    pub change: WriteEffect,
    /// The object as it was answered: of the subresource `scale` its scale. `None` where no answer showed it.
    pub answer: Option<AnyObject>,
}

/// What became of a written object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEffect {
    /// It is stored at this resource version.
    Stored(Str),
    /// The last finalizer of the object with this UID, which was being deleted, was taken off. It is stored at this version,
    /// or it is gone: the server answers with the version before then.
    Released(Uid, Str),
    /// The object with this UID was deleted or its deletion has begun.
    Deleted(Uid),
    /// All objects of a collection were deleted, or their deletion has begun.
    Swept,
    /// A tolerated refusal: there was nothing to do.
    Nothing,
    /// No answer came: it may have been carried out.
    Unknown,
}

/// A step that failed, and whether trying again can help.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecuteError {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A live read found something else than the cache promised.
    #[error("{what}: expected {expected}, found {found}")]
    Changed {
        /// The object.
        what: String,
        /// What the plan rested on.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A write could not be finished, this time.
    #[error("{what}: {why}")]
    Unfinished {
        /// The step.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// What comes before a write, on this machine, has failed.
    #[error("{what}: {why}")]
    Unprepared {
        /// The step.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// The write was not sent, because the epoch of its plan is over.
    #[error("{what}: etcd was restored")]
    Outdated {
        /// The step.
        what: String,
    },
    /// A write can't be put together: its object is malformed, or what would finish it is missing.
    #[error("{what}: {why}")]
    Unfit {
        /// The step.
        what: String,
        /// What is wrong.
        why: String,
    },
}

impl ExecuteError {
    /// Whether a stop of the controller, the end of its term or a restore of etcd canceled the request: that is not a failure of the object.
    pub(crate) fn is_canceled(&self) -> bool {
        match self {
            Self::Api(error) => error.is_writes_stopped(),
            Self::Outdated { .. } => true,
            Self::Changed { .. } | Self::Unfinished { .. } | Self::Unprepared { .. } | Self::Unfit { .. } => {
                false
            }
        }
    }

    /// Whether another try makes sense. All of them do, at growing intervals: what the server refuses today a changed
    /// quota or webhook may let pass tomorrow. Only an object that can't be put together waits for its next change; and one
    /// whose namespace is being deleted, where nothing can be made any more.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unfit { .. } => false,
            Self::Api(error) => !error.is_namespace_terminating(),
            Self::Changed { .. }
            | Self::Unfinished { .. }
            | Self::Unprepared { .. }
            | Self::Outdated { .. } => true,
        }
    }

    /// How long the server has asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            Self::Changed { .. }
            | Self::Unfinished { .. }
            | Self::Unprepared { .. }
            | Self::Outdated { .. }
            | Self::Unfit { .. } => None,
        }
    }

    /// Whether this says something about the object: a server that did not answer, or could not, says nothing.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Api(error) => error.code() != 0 && error.code() != 429 && error.code() < 500,
            Self::Outdated { .. } => false,
            Self::Changed { .. } | Self::Unfinished { .. } | Self::Unprepared { .. } | Self::Unfit { .. } => {
                true
            }
        }
    }
}

impl Executor {
    /// An executor that writes through `client`.
    pub fn new(client: ApiClient, events: Arc<dyn Events>) -> Self {
        Self {
            client,
            events,
            finishers: Finishers::default(),
            budgets: Arc::default(),
            writes: None,
            epoch: Epoch::default(),
        }
    }

    /// The same, with these to finish objects.
    #[must_use]
    pub fn with_finishers(mut self, finishers: Finishers) -> Self {
        self.finishers = finishers;
        self
    }

    /// The same, telling `writes` of what it writes.
    #[must_use]
    pub fn observed_by(mut self, writes: Arc<dyn ObserveWrites>) -> Self {
        self.writes = Some(writes);
        self
    }

    /// The same, sending no write after the end of this epoch.
    #[must_use]
    pub fn in_epoch(self, epoch: Epoch) -> Self {
        Self { epoch, ..self }
    }
}
