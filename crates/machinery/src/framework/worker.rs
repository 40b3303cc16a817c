//! The worker loop: takes keys off a queue and reconciles them, one room's plan at a time.
//!
//! ```text
//! key ─► expectations met? ─► observe + plan ─► execute ─┬─ all done ──────► forget, maybe look again later
//!             │ no                                       └─ failed ─► observe + plan with the failure ─► execute
//!             ▼                                                              └─► retry with backoff
//!     until a cache wakes it
//! ```
//!
//! A panic ends the reconcile of its key, never the worker: the key has failed and is tried again after the longest backoff,
//! and the controller is shown as degraded until that succeeds. Nothing else is reconciled anew. Decides nothing about
//! objects and knows no kind.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::contention::{self, CONTENDED};
use super::demand::{Demands, Explainer, Synced};
use super::freshness::Freshness;
use super::metrics::ReconcileMetrics;
use super::progress::{Before, SHORTEST_POLL, SentWrites};
use super::reader::Reader;
use super::reads::{EarlierWrites, Reads};
use super::report::{ReconcileStart, Report, Requeue};
use super::room::{ObserveError, PlanNote, Reconcile, ReconcileEnd};
use super::settings::{AFTER_CONFLICT, AfterFailure, LoopSettings};
use super::slow_reads::SlowReads;
use super::stats::LoopStats;
use super::terminating::TerminatingOwners;
use super::trace::{self, Causes, Waits};
use super::watchdog::Watchdog;
use crate::api::Kind;
use crate::client::WaitSeats;
use crate::executor::{ActionState, ExecuteError, Executed, Executor, executed, planned};
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::model::plan::{Cooldown, Failure, Plan};
use crate::queue::{Item, WorkQueue};
use crate::telemetry::tracing::{child, present};
use crate::wire::Uid;

const MOST_ASIDE: usize = 256;
const MOST_LOOKS: usize = 5;

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
    /// What must be seen before a key is reconciled again.
    pub(super) freshness: Freshness,
    /// What explanations read with.
    pub(super) explainer: Explainer,
    pub(super) clock: SharedClock,
    pub(super) stats: Arc<LoopStats>,
    pub(super) metrics: ReconcileMetrics,
    /// Those who asked for a reconcile.
    pub(super) demands: Demands,
    /// What queued the keys, for traces.
    pub(super) causes: Arc<Causes>,
    /// Keys that wait for caches, for traces.
    pub(super) waits: Waits,
    /// Owners whose creates are withheld.
    pub(super) terminating: TerminatingOwners,
    pub(super) report: Arc<dyn Report>,
    /// Watches for reconciles that hold a thread.
    pub(super) watchdog: Watchdog,
    /// Seats for reconciles that wait for an API server that asked for that.
    pub(super) wait_seats: WaitSeats,
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
        /// Whether nothing is wrong: somebody else was faster, or it is not the time yet. That is no error.
        quiet: bool,
        /// Whether the API server has refused something, or the plan asks for another try: the tries of a loop that has an end of
        /// them. It has not where the server could not answer, or a read failed.
        refused: bool,
        /// When to look again at the latest, however long the backoff is: the plan came to its end all the same.
        requeue_after: Option<Duration>,
        /// How long the server has asked to wait, see [`LoopSettings::heeds_retry_after`].
        not_before: Option<Duration>,
    },
}

impl Outcome {
    pub(super) fn failed(error: String, retry: bool) -> Self {
        Self::Failed { error, retry, quiet: false, refused: false, requeue_after: None, not_before: None }
    }

    /// Nothing is left to do. Only what was written is worth a cooldown.
    fn done(writes: usize, requeue_after: Option<Duration>, cooldown: Cooldown) -> Self {
        let cooldown = if writes == 0 { Cooldown::NONE } else { cooldown };
        Self::Done { writes, requeue_after, cooldown }
    }
}

impl Worker {
    pub(super) async fn run(self: Arc<Self>) {
        if self.settings.waits_beside() {
            return Box::pin(self.run_beside()).await;
        }
        while let Some(item) = self.queue.get().await {
            self.wait_seats.scope(&item.key().namespace).run(self.watched(item)).await;
        }
    }

    /// The same where keys are set aside: those whose live reads take long, if the loop wants that, and those that wait for an API server
    /// that asked for that. They go on in this task, next to the following ones.
    async fn run_beside(&self) {
        let mut aside = FuturesUnordered::new();
        loop {
            // What was set aside first: it has waited longest.
            let item = tokio::select! {
                biased;
                Some(()) = aside.next() => continue,
                item = self.queue.get() => item,
            };
            let Some(item) = item else { break };
            let slow = SlowReads::new(aside.len() < MOST_ASIDE);
            let scope = self.wait_seats.scope(&item.key().namespace);
            let work = scope.run(self.watched(item));
            let mut work = if self.settings.sets_aside { slow.hear(work).boxed() } else { work.boxed() };
            let is_done = loop {
                tokio::select! {
                    biased;
                    Some(()) = aside.next() => {}
                    () = &mut work => break true,
                    () = slow.begun(), if aside.len() < MOST_ASIDE => break false,
                    // The number of seats is their limit.
                    () = scope.begun() => break false,
                }
            };
            if !is_done {
                aside.push(work);
            }
        }
        while aside.next().await.is_some() {}
    }

    /// Processes a key. Each poll of that is watched: one that takes long delays all other keys.
    fn watched(&self, item: Item<Key>) -> impl Future<Output = ()> + '_ {
        self.watchdog.watch(self.controller, item.key().clone(), self.process(item))
    }

    pub(super) async fn process(&self, item: Item<Key>) {
        let key = item.key().clone();
        // Whoever asks from here on gets the next reconcile.
        let asked = self.demands.take(&key);
        let waited = self.freshness.waiting(&key);
        let changed_at = waited.iter().filter_map(|key| key.changed_at).chain(item.changed_at()).min();
        let retries = self.retries(&key, changed_at.is_some());
        let turn = ReconcileStart {
            controller: self.controller,
            queue: self.queue_name,
            kind: self.kind,
            key: &key,
            attempt: retries.saturating_add(1),
            queue_wait: item.waited(),
        };
        let span = trace::span(&turn, || self.freshness.caches.own());
        self.causes.link(&key, &span);
        let started = Instant::now();
        let begin = || self.report.started(&turn);
        let reconcile = self.reconcile(&key, &begin).instrument(span.clone());
        let reconciled = AssertUnwindSafe(reconcile).catch_unwind().await;
        let panicked = reconciled.is_err();
        let (outcome, actions) =
            reconciled.unwrap_or_else(|panic| (self.panicked(&key, panic.as_ref()), Vec::new()));
        let took = started.elapsed();
        self.stats.record(&key, &outcome, turn.attempt);
        let end = ReconcileEnd { outcome: &outcome, actions: &actions, took };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.reconcile.ended(&key, end))) {
            self.panicked(&key, panic.as_ref());
        }
        let asked = self.to_be_told(&key, &outcome, asked);
        span.in_scope(|| {
            self.metrics.observe(self.controller, &outcome, took, changed_at.map(|at| at.elapsed()));
            match outcome {
                Outcome::Waiting(_) => self.freshness.keep(&key, changed_at),
                // The change of a key that is given up counts as answered: only a later one begins the tries from the start.
                Outcome::Failed { retry: true, refused, .. } if !self.gives_up(&key, refused) => {
                    item.unanswered();
                }
                _ => {}
            }
            let trace_id = present().map(|ids| ids.trace);
            answer(asked, || Synced { outcome: outcome.clone(), actions: actions.clone(), took, trace_id });
            let requeued = self.follow_up(&key, &outcome, panicked);
            // Of a key that waits it is told once that it does, and not that it was looked at.
            let is_told = waited.is_some() && matches!(outcome, Outcome::Waiting(_));
            if !matches!(outcome, Outcome::Waiting(_)) {
                self.report.ended(&turn, &outcome, actions, took);
            }
            if let Some((cause, delay)) = requeued.filter(|_| !is_told) {
                self.report.requeued(&turn, cause, delay);
            }
            trace::ended(&span, &outcome, requeued);
            // Within the span, for the exemplar of how long the work took.
            match outcome {
                Outcome::Done { cooldown, .. } => item.cool_down(cooldown.after(took)),
                // An object that changes all the time would be tried all the time.
                Outcome::Failed { .. } if panicked => item.cool_down(Cooldown::LONGEST),
                Outcome::Failed { not_before: Some(wait), .. } if self.settings.heeds_retry_after => {
                    item.cool_down(took.saturating_add(wait.min(self.settings.backoff.max_delay)));
                }
                Outcome::Absent | Outcome::Waiting(_) | Outcome::Failed { .. } => item.done(),
            }
        });
    }

    /// Whether a key that has failed once more is given up.
    fn gives_up(&self, key: &Key, refused: bool) -> bool {
        matches!(self.after_failure(key, refused), AfterFailure::GiveUp(_))
    }

    fn after_failure(&self, key: &Key, refused: bool) -> AfterFailure {
        let refusals = self.queue.refusals(key).saturating_add(u32::from(refused));
        self.settings.after_failure(refusals, refused)
    }

    /// Returns how often the key has failed in a row. A change begins the tries of a key that was given up from the start. The change
    /// of a key that was not given up is still to be answered when the key is retried, and must not begin its backoff again.
    fn retries(&self, key: &Key, has_changed: bool) -> u32 {
        if has_changed && self.queue.is_given_up(key) {
            self.queue.forget(key);
        }
        self.queue.retries(key)
    }

    /// Sees to it that the key comes back where it must; when and why it does.
    fn follow_up(&self, key: &Key, outcome: &Outcome, panicked: bool) -> Option<(Requeue, Duration)> {
        match outcome {
            Outcome::Absent => {
                self.terminating.remove(key);
                self.queue.forget(key);
                self.queue.end_hold_off(key);
                self.queue.drop_delay(key);
                None
            }
            Outcome::Done { requeue_after, .. } => {
                self.queue.forget(key);
                let after = (*requeue_after)?;
                self.queue.add_planned(key.clone(), after);
                Some((Requeue::Planned, after))
            }
            Outcome::Waiting(kind) => {
                tracing::debug!(%kind, "Waiting for the cache to observe the last writes");
                self.waits.begin(key, kind);
                Some((Requeue::StaleCache, Duration::ZERO))
            }
            Outcome::Failed { retry: true, .. } if panicked => {
                Some((Requeue::Failure, self.queue.add_longest(key.clone())))
            }
            Outcome::Failed { error, retry, quiet, refused, requeue_after, .. } => {
                let retried = if *retry {
                    self.retry(key, error, *quiet, *refused)
                } else {
                    self.leave(key, error, *quiet)
                };
                let planned = requeue_after.map(|after| (Requeue::Planned, after));
                if let Some((_, after)) = planned {
                    self.queue.add_planned(key.clone(), after);
                }
                retried.into_iter().chain(planned).min_by_key(|(_, after)| *after)
            }
        }
    }

    /// Leaves a key that failed to its next change.
    fn leave(&self, key: &Key, error: &str, quiet: bool) -> Option<(Requeue, Duration)> {
        if quiet {
            tracing::debug!(%error, "Reconcile did not finish; will not retry until the object changes");
        } else {
            tracing::warn!(%error, "Reconcile failed; will not retry until the object changes");
        }
        self.queue.forget(key);
        None
    }

    /// Queues a key that failed, unless it was tried often enough.
    fn retry(&self, key: &Key, error: &str, quiet: bool, refused: bool) -> Option<(Requeue, Duration)> {
        let failures = self.queue.retries(key).saturating_add(1);
        let after = self.after_failure(key, refused);
        if refused {
            self.queue.count_refusal(key);
        }
        match after {
            AfterFailure::Retry => {
                if quiet {
                    tracing::debug!(%error, "Reconcile did not finish; retrying");
                } else {
                    tracing::warn!(%error, "Reconcile failed; retrying");
                }
                let key = key.clone();
                let delay =
                    if refused { self.queue.add_refused(key) } else { self.queue.add_rate_limited(key) };
                Some((Requeue::Failure, delay))
            }
            AfterFailure::GiveUp(then) => {
                tracing::error!(%error, failures, "Reconcile failed; ending retries with backoff after the maximum number of attempts");
                let Some(after) = then else {
                    self.queue.forget(key);
                    return None;
                };
                self.queue.give_up(key, after);
                Some((Requeue::Planned, after))
            }
        }
    }

    /// Returns the UID of the object at `key`, as cached, if its refused creates are withheld.
    pub(super) fn owner(&self, key: &Key) -> Option<Uid> {
        let own = self.freshness.caches.own().filter(|_| self.settings.withholds_refused_creates)?;
        Some(own.get(key)?.meta().uid.clone())
    }

    /// Returns how long creates of this owner are still withheld, if they are.
    pub(super) fn withheld_for(&self, key: &Key, owner: Option<&Uid>) -> Option<Duration> {
        self.terminating.withheld_for(key, owner?)
    }

    /// The key whose expectations hold `key` back: its own, or in a serial loop one for all.
    pub(super) fn expecting<'a>(&self, key: &'a Key) -> &'a Key {
        if self.settings.serial { &Key::EMPTY } else { key }
    }

    /// Reconciling a key has panicked. The next try may well panic, too, so it comes late; what the plan may have written is on
    /// record.
    fn panicked(&self, key: &Key, panic: &(dyn Any + Send)) -> Outcome {
        let message = panic_message(panic);
        tracing::error!(controller = self.controller, object = %key, panic = message, "Reconcile panicked");
        self.stats.panicked(key, &message);
        self.metrics.panicked(self.controller);
        Outcome::failed(format!("panicked: {message}"), true)
    }

    /// Reconciles one key now: how it ended, and the steps that it took. Calls `begin` unless the key has to wait for a cache.
    pub(super) async fn reconcile(
        &self,
        key: &Key,
        begin: &(dyn Fn() + Sync),
    ) -> (Outcome, Vec<ActionState>) {
        match self.not_yet(key).await {
            Some(waiting @ Outcome::Waiting(_)) => return (waiting, Vec::new()),
            Some(failed) => {
                begin();
                return (failed, Vec::new());
            }
            None => begin(),
        }
        self.waits.end(key);
        let owner = self.owner(key);
        let withholds_creates = self.withheld_for(key, owner.as_ref()).is_some();
        let mut tried = Tried { owner, withholds_creates, ..Tried::default() };
        let outcome = match self.look(key, &mut tried).await {
            Ok(planned_end) => self.conclude(key, planned_end, &mut tried).await,
            Err(outcome) => outcome,
        };
        self.queue.count_conflict(key, contention::is_met(tried.outdated, &tried.failures, &outcome));
        (outcome, tried.actions)
    }

    /// Observes, plans and performs until no further look is asked for, or something ends it.
    async fn look(&self, key: &Key, tried: &mut Tried) -> Result<PlanEnd, Outcome> {
        let mut sent = SentWrites::default();
        for look in 1.. {
            let (plan, note) = match self.plan(key, tried).await? {
                Some(planned) => planned,
                None if look > 1 => break,
                None => return Err(Outcome::Absent),
            };
            if let Some(write) = sent.repeated(&plan) {
                let error = format!("{write}: an identical write had no effect; check admission webhooks");
                return Ok(PlanEnd { unfinished: Some((error, false)), ..PlanEnd::default() });
            }
            let Plan { requeue_after, recheck_after, look_again, quiet, end, is_gone, has_more, .. } = plan;
            if is_gone {
                self.queue.drop_delay(key);
            }
            let unfinished = plan.retry.clone();
            tried.cooldown = tried.cooldown.max(plan.cooldown);
            tried.deadline = plan.deadline.into_iter().chain(tried.deadline).min();
            let writes = if look_again { SentWrites::repeatable(&plan) } else { Vec::new() };
            let (done, note) = self.perform(key, plan, note, tried).await?;
            if done.failures.is_empty() && !done.outdated {
                sent.add(writes);
            }
            tried.outdated |= done.outdated;
            tried.failures.extend(done.failures);
            match done.error {
                None if done.held_back.is_none() => note.commit(key),
                None => {}
                Some(error) if end => tracing::warn!(%error, "A planned request failed and is not retried"),
                Some(error) => _ = tried.error.get_or_insert(error),
            }
            if done.stopped {
                return Ok(PlanEnd::after(requeue_after.filter(|_| end)));
            }
            if let Some(wait) = done.held_back {
                // The budget limits how often the key comes back.
                let requeue_after = wait.into_iter().chain(requeue_after).min();
                return Ok(PlanEnd { is_paced: wait.is_some(), ..PlanEnd::after(requeue_after) });
            }
            if let Some(error) = unfinished {
                return Ok(PlanEnd { unfinished: Some((error, quiet)), ..PlanEnd::default() });
            }
            if look_again && look == MOST_LOOKS {
                let error = format!("reconcile did not converge after {MOST_LOOKS} passes");
                return Ok(PlanEnd { unfinished: Some((error, false)), ..PlanEnd::default() });
            }
            if !look_again {
                let recheck_after = recheck_after.filter(|_| tried.has_changed);
                let requeue_after = requeue_after.into_iter().chain(recheck_after).min();
                return Ok(PlanEnd { is_paced: has_more, ..PlanEnd::after(requeue_after) });
            }
        }
        Ok(PlanEnd::default())
    }

    /// How a reconcile ends whose plans have, once the failures in them are recorded.
    async fn conclude(&self, key: &Key, planned_end: PlanEnd, tried: &mut Tried) -> Outcome {
        if tried.has_changed {
            self.queue.end_hold_off(key);
        }
        let done = |tried: &Tried, end: &PlanEnd| {
            let again = tried.outdated.then(|| AFTER_CONFLICT.after(self.queue.conflicts(key)));
            let owner = tried.owner.as_ref().filter(|_| tried.meets_terminating);
            let withheld =
                owner.map(|_| self.withheld_for(key, owner).unwrap_or_else(|| AFTER_CONFLICT.after(0)));
            let requeue_after = self.paced(key, tried, end).into_iter().chain(again).chain(withheld).min();
            Outcome::done(tried.written.len(), requeue_after, tried.cooldown)
        };
        if !tried.failures.is_empty() {
            let end = match self.record_failure(key, tried).await {
                Ok(end) => end,
                Err(canceled) => return canceled,
            };
            if let Some(end) = end {
                if let Some(error) = &tried.error {
                    tracing::warn!(%error, "A planned request failed and is not retried");
                }
                return done(tried, &end);
            }
        }
        match (&tried.error, planned_end.unfinished.clone()) {
            (Some(error), _) => {
                // A failure as such is no progress: only a plan that asks for another pass is judged.
                let asks = planned_end.requeue_after.is_some();
                let after = if asks { self.paced(key, tried, &planned_end) } else { None };
                failed(error, after.into_iter().chain(tried.deadline).min())
            }
            (None, Some((error, quiet))) => Outcome::Failed {
                error,
                retry: true,
                quiet,
                refused: true,
                requeue_after: tried.deadline,
                not_before: None,
            },
            (None, None) => done(tried, &planned_end),
        }
    }

    /// After which delay a key is requeued whose plan asks for that. A plan that changed nothing and asks for another one at once
    /// would be made again, so the key waits for a backoff, which ends with the first plan that changes something or asks for
    /// no such thing.
    fn paced(&self, key: &Key, tried: &Tried, end: &PlanEnd) -> Option<Duration> {
        let hasty = end.requeue_after.filter(|after| *after < SHORTEST_POLL);
        if let Some(after) = hasty.filter(|_| !end.is_paced && !tried.has_changed) {
            return Some(self.queue.hold_off(key, after));
        }
        self.queue.end_hold_off(key);
        end.requeue_after
    }

    /// Whether what the caches hold can be relied on for this key; how its reconcile ends if not.
    async fn not_yet(&self, key: &Key) -> Option<Outcome> {
        match self.freshness.hold(self.expecting(key), key).await {
            Ok(behind) => behind.map(Outcome::Waiting),
            Err(error) => {
                Some(Outcome::failed(format!("compare the cache with the API server: {error}"), true))
            }
        }
    }

    /// Performs a plan and adds its steps and writes to `tried`. Its writes are on record before they are sent, and whatever ends this.
    ///
    /// # Errors
    /// A request was canceled: the reconcile ends with this outcome. The next leader or the next instance plans from the objects as they
    /// are, so a canceled write is no failure of the object.
    async fn perform(
        &self,
        key: &Key,
        plan: Plan,
        note: PlanNote,
        tried: &mut Tried,
    ) -> Result<(Executed, PlanNote), Outcome> {
        let steps = planned(&plan);
        trace::planned(&steps, plan.requeue_after);
        note.count(key);
        let Freshness { expectations, caches, .. } = &self.freshness;
        let before = Before::of(&plan, caches);
        let intent = expectations.begin(self.expecting(key), &plan, caches);
        let mut done = if tried.withholds_creates {
            self.executor.execute_in_terminating_namespace(plan).await
        } else {
            self.executor.execute(plan).await
        };
        if let Some(owner) =
            tried.owner.clone().filter(|_| done.meets_terminating && !tried.withholds_creates)
        {
            self.terminating.add(key, owner);
        }
        tried.meets_terminating |= done.meets_terminating;
        intent.answered(&done.effects, caches);
        tried.has_changed |= before.is_changed_by(&done.effects);
        note.record_effects(key, &done.effects);
        note.commit_items(key, &done.items);
        tried.actions.extend(executed(steps, &done));
        tried.written.append(&mut done.effects);
        match done.canceled.take() {
            Some(error) => Err(failed(&error, None)),
            None => Ok((done, note)),
        }
    }

    async fn plan(&self, key: &Key, tried: &Tried) -> Result<Option<(Plan, PlanNote)>, Outcome> {
        let span = child(|| tracing::debug_span!("plan", otel.status_code = tracing::field::Empty));
        self.decide(key, tried).instrument(span.clone()).await.map_err(|error| {
            span.record("otel.status_code", "ERROR");
            match error {
                ObserveError::Terminal(error) => Outcome::failed(error, false),
                ObserveError::Retry(error) => Outcome::failed(error, true),
                ObserveError::Canceled(error) => Outcome::Failed {
                    error,
                    retry: true,
                    quiet: true,
                    refused: false,
                    requeue_after: None,
                    not_before: None,
                },
            }
        })
    }

    /// Observes, in as many passes as it takes, and plans.
    async fn decide(&self, key: &Key, tried: &Tried) -> Result<Option<(Plan, PlanNote)>, ObserveError> {
        let reads = Reads::begin(tried.written.clone(), tried.withholds_creates)
            .contended_if(self.queue.conflicts(key) >= CONTENDED);
        let (reconcile, now) = (&*self.reconcile, || self.clock.now());
        let planned = self.reader.plan(reconcile, key, &tried.failures, reads, now).await?;
        self.freshness.caches.require_present_epoch().map(|()| planned)
    }

    /// After a failure: lets a room that heeds failures write down what failed (a condition, a collision count). Another one
    /// would only plan once more what has just failed. Returns how the reconcile ends if the failure was the end of it; `None` if the key
    /// is to be retried.
    ///
    /// # Errors
    /// A request was canceled: the reconcile ends with this outcome.
    async fn record_failure(&self, key: &Key, tried: &mut Tried) -> Result<Option<PlanEnd>, Outcome> {
        if !self.reconcile.heeds_failures() {
            return Ok(None);
        }
        let (plan, note) = match self.plan(key, tried).await {
            Ok(Some(planned)) => planned,
            Ok(None) => return Ok(None),
            Err(canceled @ Outcome::Failed { quiet: true, .. }) => return Err(canceled),
            Err(outcome) => {
                tracing::warn!(controller = self.controller, object = %key, ?outcome, "Failed to plan the write that records a failed reconcile");
                return Ok(None);
            }
        };
        let end = plan.end.then_some(PlanEnd::after(plan.requeue_after));
        // Its writes are not those of the reconcile: only these are counted and worth a cooldown.
        let withholds_creates = tried.withholds_creates;
        let mut recorded = Tried { owner: tried.owner.clone(), withholds_creates, ..Tried::default() };
        let done = self.perform(key, plan, note, &mut recorded).await;
        tried.actions.append(&mut recorded.actions);
        tried.has_changed |= recorded.has_changed;
        tried.meets_terminating |= recorded.meets_terminating;
        let (done, note) = done?;
        match &done.error {
            None if done.held_back.is_none() => note.commit(key),
            None => {}
            Some(error) => {
                tracing::warn!(controller = self.controller, object = %key, %error, "Failed to record a failed reconcile");
            }
        }
        Ok(end.filter(|_| done.error.is_none() && done.held_back.is_none()))
    }
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own; any set of them may hold")]
struct Tried {
    actions: Vec<ActionState>,
    written: EarlierWrites,
    failures: Vec<Failure>,
    /// The first failure for which the key is to be retried.
    error: Option<ExecuteError>,
    /// Whether a write met another version than was read, which is tolerated.
    outdated: bool,
    has_changed: bool,
    /// The UID that the object had when the reconcile began, if its refused creates are withheld.
    owner: Option<Uid>,
    /// Whether creates are not sent, because the namespace was found to be terminating before this reconcile.
    withholds_creates: bool,
    /// Whether a create was refused or withheld, because the namespace is terminating.
    meets_terminating: bool,
    cooldown: Cooldown,
    /// Latest requeue of the key although a step has failed.
    deadline: Option<Duration>,
}

#[derive(Default)]
struct PlanEnd {
    requeue_after: Option<Duration>,
    /// What the plan could not hold yet, for which the key is retried, and whether that is no error.
    unfinished: Option<(String, bool)>,
    /// Whether something else limits how often such plans follow each other.
    is_paced: bool,
}

impl PlanEnd {
    fn after(requeue_after: Option<Duration>) -> Self {
        Self { requeue_after, unfinished: None, is_paced: false }
    }
}

fn answer(asked: Vec<oneshot::Sender<Synced>>, synced: impl FnOnce() -> Synced) {
    let Some(synced) = (!asked.is_empty()).then(synced) else { return };
    for each in asked {
        // Whoever hung up does not want to know any more.
        let _ = each.send(synced.clone());
    }
}

/// Somebody else has changed the object since it was read: the next look decides anew. That happens. So does a namespace that
/// goes.
fn failed(error: &ExecuteError, requeue_after: Option<Duration>) -> Outcome {
    let quiet = match error {
        ExecuteError::Api(error) => {
            error.is_conflict() || error.is_namespace_terminating() || error.is_writes_stopped()
        }
        ExecuteError::Outdated { .. } => true,
        _ => false,
    };
    let (retry, refused) = (error.is_retriable(), error.is_refusal());
    let not_before = error.retry_after();
    Outcome::Failed { error: error.to_string(), retry, quiet, refused, requeue_after, not_before }
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no panic message".to_owned())
}
