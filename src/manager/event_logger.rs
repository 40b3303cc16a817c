//! What the manager tells of itself: the event log, and the word that something has changed.
//!
//! Everything that happens comes through here: the framework's reconciles and writes, the controllers' phases,
//! leadership and overrides. It goes into the bounded log that `EventService` streams; changes that a watch shows also
//! wake the watches. Nothing here blocks, and nothing is decided.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::admin::events::{ApiWrite, Body, EventLog, ObjectRef, OverrideChange, ReconcileAttempt};
use crate::admin::manager::TraceId;
use crate::admin::overrides::Entry;
use coxswain_machinery::executor::{ActionState, AnsweredWrite, write_action};
use coxswain_machinery::framework::{Outcome, Phase, ReconcileStart, Report, Requeue, WriteReport};
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::SharedClock;
use coxswain_machinery::telemetry::tracing::present;
use coxswain_machinery::wire::{Str, Uid};

/// Reconciles and writes that the log holds; of rare events it holds a quarter as many.
const EVENTS: usize = 2048;

/// The log, and the word of changes. Share it in an `Arc`.
pub struct EventLogger {
    clock: SharedClock,
    log: Arc<EventLog>,
    changes: latest::Sender<u64>,
}

impl EventLogger {
    /// An empty one.
    pub fn new(clock: SharedClock) -> Self {
        let id = coxswain_machinery::random::uuid().to_string();
        let log = Arc::new(EventLog::new(id, EVENTS, Arc::clone(&clock)));
        Self { clock, log, changes: latest::Sender::new(0) }
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The log.
    pub fn log(&self) -> &Arc<EventLog> {
        &self.log
    }

    /// Changes whenever something did that a watch shows. The number means nothing.
    pub fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something has changed that a watch shows.
    pub fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// A controller does something else than before.
    pub fn phase_changed(&self, controller: &'static str, previous: Phase, current: Phase) {
        self.log.publish(Some(controller), None, None, Body::PhaseChanged { previous, current });
        self.changed();
    }

    /// Leadership changed.
    pub fn leadership_changed(&self, change: LeadershipChange) {
        let LeadershipChange { lease, previous, holder, leading, transitions } = change;
        let body = Body::LeadershipChanged { lease, previous, holder, leading, transitions };
        self.log.publish(None, None, None, body);
        self.changed();
    }

    /// An override changed.
    pub fn override_changed(
        &self,
        controller: Option<&'static str>,
        change: OverrideChange,
        entry: Option<Entry>,
        problem: String,
    ) {
        let user = match (change, &entry) {
            (OverrideChange::Set | OverrideChange::Cleared, Some(entry)) => entry.user.clone(),
            _ => String::new(),
        };
        let body = Body::OverrideChanged { change, entry, user, problem };
        self.log.publish(controller, None, trace_id(), body);
        self.changed();
    }
}

/// A change of leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipChange {
    /// The Lease.
    pub lease: Key,
    /// Who held it; empty for nobody.
    pub previous: Str,
    /// Who holds it; empty for nobody.
    pub holder: Str,
    /// Whether this replica leads.
    pub leading: bool,
    /// How often it changed hands.
    pub transitions: i32,
}

impl Report for EventLogger {
    fn started(&self, turn: &ReconcileStart<'_>) {
        self.publish(turn, Body::ReconcileStarted(attempt(turn)));
    }

    fn ended(&self, turn: &ReconcileStart<'_>, outcome: &Outcome, actions: Vec<ActionState>, took: Duration) {
        let (attempt, duration) = (attempt(turn), took);
        let body = match outcome {
            Outcome::Failed { error, retry, .. } => {
                Body::ReconcileFailed { attempt, duration, actions, error: error.clone(), retry: *retry }
            }
            Outcome::Absent | Outcome::Done { .. } | Outcome::Waiting(_) => {
                Body::ReconcileFinished { attempt, duration, actions }
            }
        };
        self.publish(turn, body);
    }

    fn requeued(&self, turn: &ReconcileStart<'_>, cause: Requeue, delay: Duration) {
        self.publish(turn, Body::ReconcileRequeued { queue: turn.queue, cause, delay });
    }
}

impl EventLogger {
    fn publish(&self, turn: &ReconcileStart<'_>, body: Body) {
        let object = ObjectRef { kind: turn.kind, key: turn.key.clone(), uid: Uid::default() };
        self.log.publish(Some(turn.controller), Some(object), trace_id(), body);
    }
}

/// The present trace.
fn trace_id() -> Option<TraceId> {
    present().map(|ids| ids.trace)
}

fn attempt(turn: &ReconcileStart<'_>) -> ReconcileAttempt {
    ReconcileAttempt { queue: turn.queue, number: turn.attempt, queue_wait: turn.queue_wait }
}

impl WriteReport for EventLogger {
    fn wrote(&self, controller: &'static str, written: &AnsweredWrite<'_>) {
        let mut action = write_action(written.write, written.what.to_owned());
        action.key = written.key.clone();
        action.result = written.result.clone();
        let object =
            ObjectRef { kind: Some(written.write.kind), key: written.key.clone(), uid: action.uid.clone() };
        let write = ApiWrite {
            action,
            code: written.code,
            reason: written.reason.clone(),
            duration: written.took,
            resource_version: written.resource_version.clone(),
        };
        self.log.publish(Some(controller), Some(object), trace_id(), Body::ApiWrite(Box::new(write)));
    }
}
