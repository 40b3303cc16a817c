//! The worker loop: takes keys off a queue and reconciles them, one room's plan at a time.
//!
//! ```text
//! key ─► expectations met? ─► observe + plan ─► execute ─┬─ all done ──────► forget, maybe look again later
//!             │ no                                       └─ failed ─► observe + plan with the failure ─► execute
//!             ▼                                                              └─► retry with backoff
//!        come back later
//! ```
//!
//! A panic ends the reconcile of its key, never the worker: the key is put aside, the others go on, and the controller is
//! reported as failed, to be started anew. Decides nothing about objects and knows no kind.

use std::any::Any;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::Instrument;

use super::demand::{Demands, Synced};
use super::expectations::{Expectations, LiveObjects, Readiness};
use super::metrics::ReconcileMetrics;
use super::reads::{Reader, WrittenKinds};
use super::report::{ReconcileStart, Report, Requeue};
use super::room::{ObserveError, PlanNote, Reconcile, ReconcileEnd};
use super::settings::{AfterFailure, LoopSettings};
use super::stats::LoopStats;
use super::trace::{self, Causes, Waits};
use crate::api::Kind;
use crate::client::{ApiClient, ApiError, ListQuery};
use crate::executor::{ActionState, ExecuteError, Executor, executed, planned};
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::model::plan::{Cooldown, Failure, Plan};
use crate::queue::{Item, WorkQueue};
use crate::telemetry::tracing::{child, present};
use crate::wire::ObjectHead;

/// How long a key whose expectations are not met rests if no event wakes it before: as long again as it has waited, so
/// that a cache that is a moment late costs a moment, and one that is far behind a look in a second.
const EXPECTATION_POLL: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(1);

/// Times that one reconcile looks and plans at most.
const MOST_LOOKS: usize = 4;

/// Objects per page of a live read.
const LIVE_PAGE: u32 = 500;

/// What the workers of one loop share.
pub(super) struct Worker {
    pub(super) controller: &'static str,
    /// Name of the queue, and the kind of object that its keys name.
    pub(super) queue_name: &'static str,
    pub(super) kind: Option<&'static Kind>,
    pub(super) queue: Arc<WorkQueue<Key>>,
    pub(super) settings: LoopSettings,
    pub(super) reconcile: Arc<dyn Reconcile>,
    pub(super) executor: Executor,
    /// Reads between passes, as the controller.
    pub(super) reader: Reader,
    pub(super) expectations: Expectations,
    /// Reads what a controller's own role may not list; never writes.
    pub(super) observer: ApiClient,
    pub(super) clock: SharedClock,
    pub(super) stats: Arc<LoopStats>,
    pub(super) metrics: ReconcileMetrics,
    /// Keys on which reconciling has panicked. They are left alone as long as this worker lives, while all others go on.
    pub(super) parked: Mutex<HashSet<Key>>,
    /// Told of panics; the controller is to be started anew.
    pub(super) panicked: watch::Sender<Option<String>>,
    /// Those who asked for a reconcile.
    pub(super) demands: Demands,
    /// What queued the keys, for traces.
    pub(super) causes: Arc<Causes>,
    /// Keys that wait for caches, for traces.
    pub(super) waits: Waits,
    /// Told of every reconcile.
    pub(super) report: Arc<dyn Report>,
}

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing at this key.
    Absent,
    /// Nothing is left to do, or look again after a while.
    Done {
        /// What was written.
        writes: usize,
        /// When to look again.
        requeue_after: Option<Duration>,
        /// How long the key is left alone, whatever happens.
        cooldown: Cooldown,
    },
    /// The caches have not seen the last plan's writes.
    Waiting(&'static Kind),
    /// It failed; it is retried with backoff if `retry`.
    Failed {
        /// What went wrong.
        error: String,
        /// Whether it is tried again without a change of the object.
        retry: bool,
    },
}

impl Outcome {
    /// Nothing is left to do. Only what was written is worth a cooldown.
    fn done(writes: usize, requeue_after: Option<Duration>, cooldown: Cooldown) -> Self {
        let cooldown = if writes == 0 { Cooldown::NONE } else { cooldown };
        Self::Done { writes, requeue_after, cooldown }
    }
}

impl Worker {
    /// Works until the queue is shut down.
    pub(super) async fn run(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            self.process(item).await;
        }
    }

    pub(super) async fn process(&self, item: Item<Key>) {
        let key = item.key().clone();
        // Whoever asks from here on gets the next reconcile.
        let asked = self.demands.take(&key);
        if self.parked.lock().contains(&key) {
            self.causes.forget(&key);
            let error = "it is put aside: reconciling it has panicked".to_owned();
            let outcome = Outcome::Failed { error, retry: false };
            answer(asked, || Synced { outcome, actions: Vec::new(), took: Duration::ZERO, trace_id: None });
            return;
        }
        let retries = self.queue.retries(&key);
        let turn = ReconcileStart {
            controller: self.controller,
            queue: self.queue_name,
            kind: self.kind,
            key: &key,
            attempt: retries.saturating_add(1),
            queue_wait: item.waited(),
        };
        let span = trace::span(&turn, || self.expectations.store(self.kind?));
        self.causes.link(&key, &span);
        span.in_scope(|| self.report.started(&turn));
        let started = Instant::now();
        let reconciled = AssertUnwindSafe(self.reconcile(&key).instrument(span.clone())).catch_unwind().await;
        let (outcome, actions) =
            reconciled.unwrap_or_else(|panic| (self.park(&key, panic.as_ref()), Vec::new()));
        let took = started.elapsed();
        self.stats.record(&key, &outcome, turn.attempt);
        self.reconcile.ended(&key, ReconcileEnd { outcome: &outcome, actions: &actions, took });
        let asked = self.to_be_told(&key, &outcome, asked);
        span.in_scope(|| {
            let since = item.changed_at().map(|at| at.elapsed());
            self.metrics.observe(self.controller, &outcome, took, since);
            if matches!(outcome, Outcome::Waiting(_) | Outcome::Failed { retry: true, .. }) {
                item.unanswered();
            }
            let trace_id = present().map(|ids| ids.trace);
            answer(asked, || Synced { outcome: outcome.clone(), actions: actions.clone(), took, trace_id });
            self.report.ended(&turn, &outcome, actions, took);
            let requeued = self.follow_up(&key, &outcome);
            if let Some((cause, delay)) = requeued {
                self.report.requeued(&turn, cause, delay);
            }
            trace::ended(&span, &outcome, requeued);
            // Within the span, for the exemplar of how long the work took.
            match outcome {
                Outcome::Done { cooldown, .. } => item.cool_down(cooldown.after(took)),
                Outcome::Absent | Outcome::Waiting(_) | Outcome::Failed { .. } => item.done(),
            }
        });
    }

    /// Sees to it that the key comes back where it must; when and why it does.
    fn follow_up(&self, key: &Key, outcome: &Outcome) -> Option<(Requeue, Duration)> {
        match outcome {
            Outcome::Absent => {
                self.queue.forget(key);
                None
            }
            Outcome::Done { requeue_after, .. } => {
                self.queue.forget(key);
                let after = (*requeue_after)?;
                self.queue.add_after(key.clone(), after);
                Some((Requeue::Planned, after))
            }
            Outcome::Waiting(kind) => {
                tracing::debug!(%kind, "the cache has not seen the last writes yet");
                self.waits.begin(key, kind);
                let waited = self.expectations.waited(self.expecting(key));
                let cooldown = waited.clamp(*EXPECTATION_POLL.start(), *EXPECTATION_POLL.end());
                self.queue.add_after(key.clone(), cooldown);
                Some((Requeue::StaleCache, cooldown))
            }
            Outcome::Failed { error, retry: true } => self.retry(key, error),
            Outcome::Failed { error, retry: false } => {
                tracing::warn!(%error, "reconciling failed, it is not tried again by itself");
                self.queue.forget(key);
                None
            }
        }
    }

    /// Queues a key that failed, unless it was tried often enough.
    fn retry(&self, key: &Key, error: &str) -> Option<(Requeue, Duration)> {
        let failures = self.queue.retries(key).saturating_add(1);
        match self.settings.after_failures(failures) {
            AfterFailure::Retry => {
                tracing::warn!(%error, "reconciling failed, it will be tried again");
                Some((Requeue::Failure, self.queue.add_rate_limited(key.clone())))
            }
            AfterFailure::GiveUp(then) => {
                tracing::error!(%error, failures, "reconciling failed as often as it is tried");
                self.queue.forget(key);
                let after = then?;
                self.queue.add_after(key.clone(), after);
                Some((Requeue::Planned, after))
            }
        }
    }

    /// The key whose expectations hold `key` back: its own, or in a serial loop one for all.
    pub(super) fn expecting<'a>(&self, key: &'a Key) -> &'a Key {
        if self.settings.serial { &Key::EMPTY } else { key }
    }

    /// Puts a key aside on which reconciling has panicked: what it had written may be unknown, and the next try might
    /// panic just as well.
    fn park(&self, key: &Key, panic: &(dyn Any + Send)) -> Outcome {
        let message = format!("{key}: {}", panic_message(panic));
        self.parked.lock().insert(key.clone());
        let error = format!("panicked: {message}");
        self.panicked.send_replace(Some(message));
        Outcome::Failed { error, retry: false }
    }

    /// Reconciles one key now: how it ended, and the steps that it took.
    pub(super) async fn reconcile(&self, key: &Key) -> (Outcome, Vec<ActionState>) {
        if let Some(outcome) = self.not_yet(key).await {
            return (outcome, Vec::new());
        }
        self.waits.end(key);
        let (mut actions, mut written, mut cooldown) = (Vec::new(), WrittenKinds::new(), Cooldown::NONE);
        for look in 1.. {
            let (plan, note) = match self.plan(key, &[], &written).await {
                Ok(Some(planned)) => planned,
                Ok(None) if look > 1 => break,
                Ok(None) => return (Outcome::Absent, actions),
                Err(failed) => return (failed, actions),
            };
            let (requeue_after, unfinished) = (plan.requeue_after, plan.retry.clone());
            let look_again = plan.look_again;
            cooldown = cooldown.max(plan.cooldown);
            let tried = planned(&plan);
            note.count(key);
            let done = self.executor.execute(plan).await;
            self.expectations.record(self.expecting(key), &done.effects);
            actions.extend(executed(tried, &done));
            written.extend(done.effects.into_iter().map(|effect| (effect.kind, effect.key.namespace)));
            if let Some(error) = done.error {
                actions.extend(self.record_failure(key, &done.failures).await);
                return (failed(&error), actions);
            }
            note.commit(key);
            if let Some(error) = unfinished {
                return (Outcome::Failed { error, retry: true }, actions);
            }
            if look_again && look == MOST_LOOKS {
                let error = format!("there was more to look at after {MOST_LOOKS} looks");
                return (Outcome::Failed { error, retry: true }, actions);
            }
            if !look_again {
                return (Outcome::done(written.len(), requeue_after, cooldown), actions);
            }
        }
        (Outcome::done(written.len(), None, cooldown), actions)
    }

    /// Whether what the caches hold can be relied on for this key; how its reconcile ends if not.
    async fn not_yet(&self, key: &Key) -> Option<Outcome> {
        let mut readiness = self.expectations.check(self.expecting(key));
        while let Readiness::Uncertain(kind, written) = readiness {
            if let Err(error) = self.resolve(key, kind, &written).await {
                let error = format!("cannot tell what a lost request did: {error}");
                return Some(Outcome::Failed { error, retry: true });
            }
            readiness = self.expectations.check(self.expecting(key));
        }
        match readiness {
            Readiness::Ready | Readiness::Uncertain(..) => None,
            Readiness::Waiting(kind) => Some(Outcome::Waiting(kind)),
            Readiness::GivenUp(kind) => {
                tracing::error!(controller = self.controller, object = %key, %kind, "the cache never saw the last writes");
                None
            }
        }
    }

    async fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        written: &WrittenKinds,
    ) -> Result<Option<(Plan, PlanNote)>, Outcome> {
        let span = child(|| tracing::debug_span!("plan", otel.status_code = tracing::field::Empty));
        self.decide(key, failures, written).instrument(span.clone()).await.map_err(|error| {
            span.record("otel.status_code", "ERROR");
            match error {
                ObserveError::Terminal(error) => Outcome::Failed { error, retry: false },
                ObserveError::Retry(error) => Outcome::Failed { error, retry: true },
            }
        })
    }

    /// Observes, in as many passes as it takes, and plans.
    pub(super) async fn decide(
        &self,
        key: &Key,
        failures: &[Failure],
        written: &WrittenKinds,
    ) -> Result<Option<(Plan, PlanNote)>, ObserveError> {
        self.reader.plan(self.reconcile.as_ref(), key, failures, written, || self.clock.now()).await
    }

    /// After a failure: lets the room write down what failed (a condition, a collision count).
    async fn record_failure(&self, key: &Key, failures: &[Failure]) -> Vec<ActionState> {
        let (plan, note) = match self.plan(key, failures, &WrittenKinds::new()).await {
            Ok(Some(planned)) => planned,
            Ok(None) => return Vec::new(),
            Err(outcome) => {
                tracing::warn!(controller = self.controller, object = %key, ?outcome, "no plan for a failure");
                return Vec::new();
            }
        };
        let actions = planned(&plan);
        note.count(key);
        let done = self.executor.execute(plan).await;
        self.expectations.record(self.expecting(key), &done.effects);
        match &done.error {
            None => note.commit(key),
            Some(error) => {
                tracing::warn!(controller = self.controller, object = %key, %error, "a failure could not be recorded");
            }
        }
        executed(actions, &done)
    }

    /// Finds out by a live read what a request whose answer was lost may have done.
    async fn resolve(&self, key: &Key, kind: &'static Kind, written: &Key) -> Result<(), ApiError> {
        let mut query = ListQuery {
            namespace: written.namespace.to_string(),
            field_selector: (!written.name.is_empty()).then(|| format!("metadata.name={}", written.name)),
            limit: Some(LIVE_PAGE),
            ..ListQuery::default()
        };
        let mut found = LiveObjects::default();
        loop {
            let page = self.observer.list_metadata(kind, &query).await?;
            found.version = page.resource_version.parse().unwrap_or(0);
            for item in &page.items {
                let head = ObjectHead::read(item).map_err(|error| ApiError::Malformed {
                    request: format!("list {kind}"),
                    what: error.to_string(),
                })?;
                found.objects.push((head.uid.into(), head.resource_version.parse().unwrap_or(0)));
            }
            if page.continue_token.is_empty() {
                break;
            }
            query.continue_token = Some(page.continue_token);
        }
        self.expectations.found(self.expecting(key), kind, written, &found);
        Ok(())
    }
}

/// Answers all who asked.
fn answer(asked: Vec<oneshot::Sender<Synced>>, synced: impl FnOnce() -> Synced) {
    if asked.is_empty() {
        return;
    }
    let synced = synced();
    for each in asked {
        // Whoever hung up does not want to know any more.
        let _ = each.send(synced.clone());
    }
}

fn failed(error: &ExecuteError) -> Outcome {
    Outcome::Failed { error: error.to_string(), retry: error.is_retriable() }
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
