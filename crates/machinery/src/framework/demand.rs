//! Reconciles that somebody asked for: one key now, or what a reconcile would do.
//!
//! A key is never reconciled by two at once: who asks is put before the queue and gets the answer of the first reconcile
//! that begins after that; where this finds that the cache has not seen the last writes yet, a moment is given to it, and the
//! next one answers. An explanation runs observe and plan only: it writes, counts and remembers nothing, and reads with a
//! client of its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tracing::Span;

use super::expectations::Readiness;
use super::freshness::Freshness;
use super::reader::Reader;
use super::worker::{Outcome, Worker};
use crate::api::Kind;
use crate::executor::{ActionState, planned};
use crate::model::Key;
use crate::random::HashMap;
use crate::telemetry::tracing::is_on;

/// For how long after a write who asks for a reconcile waits for the cache to see it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of a reconcile that somebody asked for.
#[derive(Clone, Debug)]
pub struct Synced {
    /// How it ended.
    pub outcome: Outcome,
    /// The steps that it took.
    pub actions: Vec<ActionState>,
    /// How long it took.
    pub took: Duration,
    /// Its trace, if that is recorded.
    pub trace_id: Option<[u8; 16]>,
}

/// What a reconcile would do.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The steps that it would take; an error where the object can't be reconciled, `None` where there is no object.
    pub actions: Result<Option<Vec<ActionState>>, String>,
    /// Why, in sentences for users; empty of a controller that does not say.
    pub reasons: Vec<String>,
    /// When the controller would look again.
    pub requeue_after: Option<Duration>,
    /// The kind whose cache has not seen the last writes yet: until it has, nothing would be done.
    pub waiting_for: Option<&'static Kind>,
}

/// What explanations read with: as the controller, but not by its rate limit.
#[derive(Clone)]
pub(super) struct Explainer {
    reader: Reader,
    /// Explanations of one controller are made one after the other, so that those who ask cannot crowd out its work.
    turn: Arc<Semaphore>,
}

impl Explainer {
    /// Explains by what `reader` reads.
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, turn: Arc::new(Semaphore::new(1)) }
    }
}

/// Who waits for which key.
#[derive(Default)]
pub(super) struct Demands(Mutex<HashMap<Key, Vec<oneshot::Sender<Synced>>>>);

impl Demands {
    fn ask(&self, key: &Key) -> oneshot::Receiver<Synced> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.0.lock();
        let all = waiting.entry(key.clone()).or_default();
        // Those who hung up meanwhile.
        all.retain(|each| !each.is_closed());
        all.push(answer);
        answered
    }

    /// Takes those who wait for a key whose reconcile begins now.
    pub(super) fn take(&self, key: &Key) -> Vec<oneshot::Sender<Synced>> {
        let mut waiting = self.0.lock();
        if waiting.is_empty() { Vec::new() } else { waiting.remove(key).unwrap_or_default() }
    }

    /// Lets them wait for the key's next reconcile.
    pub(super) fn put_back(&self, key: &Key, asked: Vec<oneshot::Sender<Synced>>) {
        if !asked.is_empty() {
            self.0.lock().entry(key.clone()).or_default().extend(asked);
        }
    }

    /// Lets all go who wait; their keys are not reconciled any more.
    pub(super) fn close(&self) {
        self.0.lock().clear();
    }
}

impl Worker {
    /// Those of `asked` who are to be told how a reconcile ended.
    pub(super) fn to_be_told(
        &self,
        key: &Key,
        outcome: &Outcome,
        asked: Vec<oneshot::Sender<Synced>>,
    ) -> Vec<oneshot::Sender<Synced>> {
        let waited = self.freshness.expectations.waited(self.expecting(key));
        let patience = PATIENCE.saturating_sub(waited);
        if !matches!(outcome, Outcome::Waiting(_)) || patience.is_zero() || asked.is_empty() {
            return asked;
        }
        self.demands.put_back(key, asked);
        self.queue.add_after(key.clone(), patience);
        if self.queue.is_shutting_down() {
            self.demands.close();
        }
        Vec::new()
    }

    /// Reconciles a key now; `None` if the controller stops before.
    pub(super) async fn sync(&self, key: Key) -> Option<Synced> {
        let answered = self.demands.ask(&key);
        if is_on() {
            self.causes.add(&key, &Span::current());
        }
        self.queue.add_first(&key);
        if self.queue.is_shutting_down() {
            self.demands.close();
        }
        answered.await.ok()
    }

    /// Observes and plans, and does nothing.
    pub(super) async fn explain(&self, key: &Key) -> Explained {
        let Freshness { expectations, caches, longest_wait, .. } = &self.freshness;
        let waiting_for = match expectations.check(self.expecting(key), caches) {
            _ if *longest_wait == Some(Duration::ZERO) => None,
            Readiness::Waiting(kind, _) => Some(kind),
            Readiness::Unanswered(lost) => Some(lost.kind),
            Readiness::Ready => None,
        };
        let Explainer { reader, turn } = &self.explainer;
        // Nobody closes it.
        let _turn = turn.acquire().await;
        let (room, now) = (self.reconcile.as_ref(), || self.clock.now());
        let withheld = self.withheld_for(key, self.owner(key).as_ref());
        match reader.explain(room, key, withheld.is_some(), now).await {
            Ok(Some((plan, mut reasons))) => {
                reasons.extend(withheld.map(|left| {
                    let seconds = left.as_secs();
                    format!("The namespace is terminating and rejected a create; further creates are suspended for \
                         {seconds} s.")
                }));
                Explained {
                    requeue_after: plan.requeue_after,
                    actions: Ok(Some(planned(&plan))),
                    reasons,
                    waiting_for,
                }
            }
            Ok(None) => {
                Explained { actions: Ok(None), reasons: Vec::new(), requeue_after: None, waiting_for }
            }
            Err(error) => Explained {
                actions: Err(error.to_string()),
                reasons: Vec::new(),
                requeue_after: None,
                waiting_for,
            },
        }
    }
}
