//! What an event says, before anybody asked for its encoding.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::admin::manager::{ActionState, Phase, TraceId};
use crate::admin::overrides::Entry;
use crate::admin::proto::EventType;
use coxswain_machinery::api::Kind;
use coxswain_machinery::framework::Requeue;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Str, Uid};

/// Something that happened.
#[derive(Debug)]
pub struct LogEvent {
    /// Position in the log, from 1.
    pub sequence: u64,
    /// When.
    pub time: Timestamp,
    /// How much it matters.
    pub severity: Severity,
    /// Permanent name of the controller; `None` for the manager as a whole.
    pub controller: Option<&'static str>,
    /// The object concerned.
    pub object: Option<ObjectRef>,
    /// Its trace.
    pub trace_id: Option<TraceId>,
    /// What happened.
    pub body: Body,
    /// The answer of `StreamEvents` that carries it, once a reader has wanted it.
    pub(super) encoded: OnceLock<Bytes>,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Of interest to those who follow one object.
    Debug,
    /// As it should be.
    Info,
    /// It will be tried again.
    Warning,
    /// It needs attention.
    Error,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its kind, where it is known.
    pub kind: Option<&'static Kind>,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID, or empty.
    pub uid: Uid,
}

/// What happened.
#[derive(Debug)]
pub enum Body {
    /// A controller's phase changed.
    PhaseChanged {
        /// What it was doing.
        previous: Phase,
        /// What it is doing.
        current: Phase,
    },
    /// A reconcile began.
    ReconcileStarted(ReconcileAttempt),
    /// A reconcile came to its end.
    ReconcileFinished {
        /// Which one.
        attempt: ReconcileAttempt,
        /// How long it took.
        duration: Duration,
        /// What it did.
        actions: Vec<ActionState>,
    },
    /// A reconcile failed.
    ReconcileFailed {
        /// Which one.
        attempt: ReconcileAttempt,
        /// How long it took.
        duration: Duration,
        /// What it did before.
        actions: Vec<ActionState>,
        /// What went wrong.
        error: String,
        /// Whether it is tried again by itself.
        retry: bool,
    },
    /// A key will be reconciled again.
    ReconcileRequeued {
        /// Where.
        queue: &'static str,
        /// Why.
        cause: Requeue,
        /// After how long.
        delay: Duration,
    },
    /// Something was written.
    ApiWrite(Box<ApiWrite>),
    /// Leadership changed.
    LeadershipChanged {
        /// The Lease.
        lease: Key,
        /// Who held it; empty for nobody.
        previous: Str,
        /// Who holds it; empty for nobody.
        holder: Str,
        /// Whether this replica leads.
        leading: bool,
        /// How often it changed hands.
        transitions: i32,
    },
    /// An override changed.
    OverrideChanged {
        /// How.
        change: OverrideChange,
        /// The entry concerned.
        entry: Option<Entry>,
        /// Who did it; empty for nobody.
        user: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// One try at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileAttempt {
    /// The queue.
    pub queue: &'static str,
    /// 1 on the first try.
    pub number: u32,
    /// For how long the key waited.
    pub queue_wait: Duration,
}

/// A write to the API server.
#[derive(Debug)]
pub struct ApiWrite {
    /// What was written and what became of it.
    pub action: ActionState,
    /// HTTP status code; 0 when no answer came.
    pub code: u16,
    /// The server's reason, where it refused.
    pub reason: Str,
    /// How long it took.
    pub duration: Duration,
    /// Resource version as written.
    pub resource_version: Str,
}

/// What happened to an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideChange {
    /// It was set.
    Set,
    /// A request ended it.
    Cleared,
    /// Its time is over.
    Expired,
    /// It can't be read.
    Invalid,
}

/// The types of rare events: these tell of the manager itself, all others of single objects.
pub(super) const RARE: [EventType; 3] =
    [EventType::PhaseChanged, EventType::LeadershipChanged, EventType::OverrideChanged];

impl Body {
    /// Its sort.
    pub fn event_type(&self) -> EventType {
        match self {
            Self::PhaseChanged { .. } => EventType::PhaseChanged,
            Self::ReconcileStarted(_) => EventType::ReconcileStarted,
            Self::ReconcileFinished { .. } => EventType::ReconcileFinished,
            Self::ReconcileFailed { .. } => EventType::ReconcileFailed,
            Self::ReconcileRequeued { .. } => EventType::ReconcileRequeued,
            Self::ApiWrite(_) => EventType::ApiWrite,
            Self::LeadershipChanged { .. } => EventType::LeadershipChanged,
            Self::OverrideChanged { .. } => EventType::OverrideChanged,
        }
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::ReconcileFailed { retry: false, .. }
            | Self::PhaseChanged { current: Phase::Failed(_) | Phase::Unstarted(_), .. }
            | Self::OverrideChanged { change: OverrideChange::Invalid, .. } => Severity::Error,
            Self::ReconcileFailed { retry: true, .. }
            | Self::ReconcileRequeued { cause: Requeue::Failure, .. }
            | Self::PhaseChanged { current: Phase::Skipped(_), .. } => Severity::Warning,
            // A refusal is the reconcile's to judge.
            Self::ApiWrite(write) if write.code == 0 || write.code >= 400 => Severity::Warning,
            Self::ReconcileStarted(_) | Self::ReconcileRequeued { .. } => Severity::Debug,
            _ => Severity::Info,
        }
    }
}
