//! Events as messages, and in words.

use std::fmt::Write as _;

use super::record::{Body, LogEvent, ObjectRef, OverrideChange, ReconcileAttempt, Severity};
use crate::admin::convert::{action, duration, entry, kind_name, phase, phase_reason, timestamp, trace_id};
use crate::admin::manager::ActionState;
use crate::admin::overrides::{Entry, Order};
use crate::admin::proto::{self, event::Details};
use coxswain_machinery::framework::Requeue;

/// Steps that an event lists; a reconcile that takes more is summed up.
const MAX_ACTIONS: usize = 100;

impl LogEvent {
    /// The event as a message.
    pub(super) fn to_proto(&self) -> proto::Event {
        proto::Event {
            sequence: self.sequence,
            time: Some(timestamp(self.time)),
            r#type: self.body.event_type().into(),
            severity: proto::Severity::from(self.severity).into(),
            controller: self.controller.unwrap_or_default().to_owned(),
            object: self.object.as_ref().map(object),
            message: self.message(),
            trace_id: trace_id(self.trace_id),
            details: Some(details(&self.body)),
        }
    }

    /// What happened, for people.
    fn message(&self) -> String {
        match &self.body {
            Body::PhaseChanged { previous, current } => {
                let mut text = format!("{} → {}", phase_word(previous), phase_word(current));
                let reason = phase_reason(current);
                if !reason.is_empty() {
                    // Writing to a String does not fail.
                    let _ = write!(text, ": {reason}");
                }
                text
            }
            Body::ReconcileStarted(attempt) if attempt.number > 1 => {
                format!("started, attempt {}", attempt.number)
            }
            Body::ReconcileStarted(_) => "started".to_owned(),
            Body::ReconcileFinished { duration, actions, .. } => match actions.len() {
                0 => format!("nothing to do ({duration:.1?})"),
                1 => format!("{} ({duration:.1?})", actions[0].summary),
                steps => format!("{steps} steps ({duration:.1?})"),
            },
            Body::ReconcileFailed { error, .. } => format!("failed: {error}"),
            Body::ReconcileRequeued { cause, delay, .. } => match cause {
                Requeue::Failure => format!("retry in {delay:.1?} after a failure"),
                Requeue::Planned => format!("planned requeue in {delay:.1?}"),
                Requeue::StaleCache => {
                    "retry once the cache contains the controller's last writes".to_owned()
                }
            },
            Body::ApiWrite(write) => match write.code {
                0 => format!("{}: no answer", write.action.summary),
                200..400 => write.action.summary.clone(),
                code => format!("{}: {code} {}", write.action.summary, write.reason),
            },
            Body::LeadershipChanged { lease, holder, leading, .. } => {
                if *leading {
                    format!("this replica acquired {lease}")
                } else if holder.is_empty() {
                    format!("{lease} has no holder")
                } else {
                    format!("{holder} holds {lease}")
                }
            }
            Body::OverrideChanged { change, entry, user, problem } => {
                override_words(*change, entry.as_ref(), user, problem)
            }
        }
    }
}

fn override_words(change: OverrideChange, entry: Option<&Entry>, user: &str, problem: &str) -> String {
    let by = if user.is_empty() { String::new() } else { format!(" by {user}") };
    match (change, entry) {
        (OverrideChange::Set, Some(entry)) => {
            let order = if entry.order == Order::Enabled { "enabled" } else { "disabled" };
            let until = entry.until.map(|until| format!(" until {until}")).unwrap_or_default();
            let why = if entry.reason.is_empty() { String::new() } else { format!(": {}", entry.reason) };
            format!("{order}{by}{until}{why}")
        }
        (OverrideChange::Set, None) => format!("override set{by}"),
        (OverrideChange::Cleared, _) => format!("override removed{by}"),
        (OverrideChange::Expired, _) => "override expired".to_owned(),
        (OverrideChange::Invalid, _) => format!("override has no effect: {problem}"),
    }
}

fn details(body: &Body) -> Details {
    match body {
        Body::PhaseChanged { previous, current } => Details::PhaseChanged(proto::PhaseChanged {
            previous: phase(previous).into(),
            current: phase(current).into(),
            reason: phase_reason(current).to_owned(),
        }),
        Body::ReconcileStarted(ReconcileAttempt { queue, number, queue_wait }) => {
            Details::ReconcileStarted(proto::ReconcileStarted {
                queue: (*queue).to_owned(),
                attempt: *number as i32,
                queue_wait: Some(duration(*queue_wait)),
            })
        }
        Body::ReconcileFinished { attempt, duration: took, actions } => {
            let (actions, actions_omitted) = shortened(actions);
            Details::ReconcileFinished(proto::ReconcileFinished {
                queue: attempt.queue.to_owned(),
                attempt: attempt.number as i32,
                queue_wait: Some(duration(attempt.queue_wait)),
                duration: Some(duration(*took)),
                actions,
                actions_omitted,
            })
        }
        Body::ReconcileFailed { attempt, duration: took, actions, error, retry } => {
            let (actions, actions_omitted) = shortened(actions);
            Details::ReconcileFailed(proto::ReconcileFailed {
                queue: attempt.queue.to_owned(),
                attempt: attempt.number as i32,
                queue_wait: Some(duration(attempt.queue_wait)),
                duration: Some(duration(*took)),
                actions,
                actions_omitted,
                error: error.clone(),
                retry: *retry,
            })
        }
        Body::ReconcileRequeued { queue, cause, delay } => {
            Details::ReconcileRequeued(proto::ReconcileRequeued {
                queue: (*queue).to_owned(),
                cause: proto::RequeueCause::from(*cause).into(),
                delay: Some(duration(*delay)),
            })
        }
        Body::ApiWrite(write) => Details::ApiWrite(proto::ApiWrite {
            action: Some(action(&write.action)),
            status_code: i32::from(write.code),
            status_reason: write.reason.to_string(),
            duration: Some(duration(write.duration)),
            resource_version: write.resource_version.to_string(),
        }),
        Body::LeadershipChanged { lease, previous, holder, leading, transitions } => {
            Details::LeadershipChanged(proto::LeadershipChanged {
                lease: lease.to_string(),
                previous_holder: previous.to_string(),
                holder: holder.to_string(),
                leading: *leading,
                transitions: *transitions,
            })
        }
        Body::OverrideChanged { change, entry: held, user, problem } => {
            Details::OverrideChanged(proto::OverrideChanged {
                change: proto::OverrideChange::from(*change).into(),
                r#override: held
                    .as_ref()
                    .filter(|held| held.order != Order::Default && *change == OverrideChange::Set)
                    .map(entry),
                user: user.clone(),
                problem: problem.clone(),
            })
        }
    }
}

fn object(object: &ObjectRef) -> proto::ObjectReference {
    proto::ObjectReference {
        resource: object.kind.map(kind_name).unwrap_or_default(),
        namespace: object.key.namespace.to_string(),
        name: object.key.name_and_part(),
        uid: object.uid.to_string(),
    }
}

fn shortened(actions: &[ActionState]) -> (Vec<proto::Action>, i32) {
    let listed = actions.iter().take(MAX_ACTIONS).map(action).collect();
    (listed, actions.len().saturating_sub(MAX_ACTIONS) as i32)
}

/// A phase in a word, as in `PHASE_RUNNING`.
fn phase_word(of: &crate::admin::manager::Phase) -> &'static str {
    phase(of).as_str_name().trim_start_matches("PHASE_")
}

impl From<Severity> for proto::Severity {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Debug => Self::Debug,
            Severity::Info => Self::Info,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

impl From<Requeue> for proto::RequeueCause {
    fn from(cause: Requeue) -> Self {
        match cause {
            Requeue::Failure => Self::Failure,
            Requeue::Planned => Self::Planned,
            Requeue::StaleCache => Self::StaleCache,
        }
    }
}

impl From<OverrideChange> for proto::OverrideChange {
    fn from(change: OverrideChange) -> Self {
        match change {
            OverrideChange::Set => Self::Set,
            OverrideChange::Cleared => Self::Cleared,
            OverrideChange::Expired => Self::Expired,
            OverrideChange::Invalid => Self::Invalid,
        }
    }
}
