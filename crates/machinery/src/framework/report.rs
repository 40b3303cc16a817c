//! What the framework tells of its work while it works.
//!
//! Nothing here judges or keeps anything: whoever listens must be quick and must not block, for the workers wait.

use std::time::Duration;

use super::worker::Outcome;
use crate::api::Kind;
use crate::executor::ActionState;
use crate::model::Key;

/// Hears of reconciles.
pub trait Report: Send + Sync {
    /// A reconcile began.
    fn started(&self, turn: &ReconcileStart<'_>);
    /// A reconcile came to its end after `took`, having taken these steps.
    fn ended(&self, turn: &ReconcileStart<'_>, outcome: &Outcome, actions: Vec<ActionState>, took: Duration);
    /// Its key comes back after `delay`, or when a cache wakes it. Told once when it begins to wait for a cache; no start and
    /// no end is told of a look that finds it waiting.
    fn requeued(&self, turn: &ReconcileStart<'_>, cause: Requeue, delay: Duration);
}

/// One try at a key.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileStart<'a> {
    /// The controller.
    pub controller: &'static str,
    /// The queue.
    pub queue: &'static str,
    /// The kind of object that the key names, if it names one.
    pub kind: Option<&'static Kind>,
    /// The key.
    pub key: &'a Key,
    /// 1 on the first try.
    pub attempt: u32,
    /// For how long the key waited.
    pub queue_wait: Duration,
}

/// Why a key comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// It failed.
    Failure,
    /// The controller wants to look again.
    Planned,
    /// The cache is behind.
    StaleCache,
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unreported;

impl Report for Unreported {
    fn started(&self, _: &ReconcileStart<'_>) {}
    fn ended(&self, _: &ReconcileStart<'_>, _: &Outcome, _: Vec<ActionState>, _: Duration) {}
    fn requeued(&self, _: &ReconcileStart<'_>, _: Requeue, _: Duration) {}
}
