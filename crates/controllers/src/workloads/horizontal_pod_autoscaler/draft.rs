//! What a look came to, and what was decided and is still to be told: what plans hand on to the memory and to the next pass.
//! Decides nothing.

use std::sync::Arc;

use super::history::History;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::autoscaling::MetricStatus;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::wire::{Str, Time};

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    /// What a look at the metrics came to; `None` if the plan only goes on with what one came to.
    pub(super) look: Option<Looked>,
    /// What is decided and still to be finished.
    pub(super) draft: Option<Arc<Draft>>,
}

/// What a look came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    /// What is remembered from here on; `None` if it is what it was.
    pub(super) history: Option<History>,
    /// The selector of the target's scale and the autoscaler's namespace, if the look came so far.
    pub(super) selector: Option<Arc<Selector>>,
    /// `scale_up`, `scale_down` or `none`.
    pub(super) action: &'static str,
    /// `spec`, `internal` or `none`.
    pub(super) error: &'static str,
    /// Of each metric: action, error and type.
    pub(super) metrics: Vec<(&'static str, &'static str, Str)>,
    /// How many replicas there are to be, if that was found out.
    pub(super) desired: Option<i32>,
}

/// What was decided about a target, and is to be told when it is done.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// The resource of the target, and where it is.
    pub(super) row: &'static Kind,
    pub(super) target: Key,
    /// When it was decided, for the history.
    pub(super) at: SteadyTime,
    pub(super) current: i32,
    pub(super) desired: i32,
    /// Why, as events tell it.
    pub(super) reason: String,
    /// What the status says when it is done.
    pub(super) telling: Telling,
    /// Whether what was added and removed is remembered.
    pub(super) remembers_steps: bool,
    pub(super) looked: Looked,
}

/// What a status is to say; what is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Telling {
    pub(super) current: Option<i32>,
    pub(super) desired: Option<i32>,
    pub(super) metrics: Option<Vec<MetricStatus>>,
    pub(super) scaled_at: Option<Time>,
    pub(super) conditions: Vec<Condition>,
    /// Types of conditions that there are not to be.
    pub(super) without: Vec<&'static str>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether its time moves though its status stays.
    pub(super) moves: bool,
}

impl Condition {
    pub(super) fn new(
        kind: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status, reason, message: message.into(), moves: false }
    }
}

impl Telling {
    /// Says this of a condition instead of what was said of it.
    pub(super) fn say(&mut self, condition: Condition) {
        self.without.retain(|kind| *kind != condition.kind);
        match self.conditions.iter_mut().find(|held| held.kind == condition.kind) {
            Some(held) => *held = condition,
            None => self.conditions.push(condition),
        }
    }
}
