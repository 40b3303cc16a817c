//! The manager as the admin API sees it.
//!
//! Reads are snapshots of what the parts know; writes go to the part that owns the matter. Nothing is decided here.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use super::complete::Completed;
use super::controller::Controller;
use super::controllers::obstacle;
use super::health::cache_problem;
use crate::admin::Manager;
use crate::admin::critical;
use crate::admin::manager::{
    ControllerName, ControllerState, Counts, FailureState, HealthState, LeasePolicyState, LeaseState,
    Mutation, MutationKind, Obstacle, QueueDetail, QueueName, QueueState, ReplicaState, StepDownError,
    SyncError, SyncOutcome, SyncReport, SyncRequest, WatchState,
};
use crate::admin::overrides::{Entry, HeldOverrides, OverrideSet, StoreError};
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::framework::{
    DefaultState, Explained, KeyFailure, Outcome, Phase, RunningLoop, Synced, Watched,
};
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::queue::{QueueSummary, QueuedKey};

/// The whole manager behind the admin API's trait.
pub(super) struct Facade(pub(super) Arc<Completed>);

impl Facade {
    fn state(&self, controller: &Controller) -> ControllerState {
        let descriptor = controller.descriptor;
        let runtime = &self.0.runtime;
        let loops = controller.loops();
        let phase = controller.phase();
        let watched = controller.watched();
        ControllerState {
            name: descriptor.name,
            aliases: descriptor.aliases,
            description: descriptor.description,
            gates: descriptor.gates.iter().map(|&gate| (gate, runtime.config.gates.enabled(gate))).collect(),
            enabled_by_default: descriptor.default == DefaultState::On,
            cloud: descriptor.cloud,
            special: descriptor.special,
            critical: critical::effect(descriptor.name),
            flags: self.0.controllers.flags(descriptor),
            obstacle: obstacle(&runtime.config, descriptor).or_else(|| match &phase {
                Phase::Skipped(why) => Some(Obstacle::Setting(why.clone())),
                _ => None,
            }),
            unhealthy: cache_problem(controller, &runtime.informers),
            phase,
            phase_since: controller.since(),
            service_account: descriptor
                .service_account
                .filter(|_| runtime.config.flags.use_service_account_credentials),
            watches: watched.iter().map(watch_state).collect(),
            restarts: controller.restarts(),
            counts: loops
                .iter()
                .map(|each| counts(each, each.queue().summary()))
                .fold(Counts::default(), add),
            last_error: loops
                .iter()
                .filter_map(|each| each.stats().last_error())
                .max_by_key(|failure| failure.at)
                .map(failure_state),
        }
    }

    fn loops(&self) -> impl Iterator<Item = (&'static str, RunningLoop)> {
        let all = self.0.controllers.all().iter();
        all.flat_map(|controller| {
            let name = controller.descriptor.name;
            controller.loops().into_iter().map(move |each| (name, each))
        })
    }

    /// The Lease that a mutation is about: that of the overrides, or the one by which this replica leads.
    fn lease_of(&self, mutation: MutationKind) -> Regarding {
        match mutation {
            MutationKind::Enabled | MutationKind::Disabled | MutationKind::Cleared => {
                self.0.overrides.lease()
            }
            MutationKind::SteppedDown | MutationKind::Synced => {
                let meta = self.0.main_lock.as_ref().and_then(|lock| lock.elector.lease_meta());
                meta.map_or_else(|| self.0.overrides.lease(), |meta| Regarding::of(&LEASES, &meta))
            }
        }
    }
}

impl Manager for Facade {
    fn now(&self) -> Timestamp {
        self.0.runtime.clock.now()
    }

    fn identity(&self) -> &str {
        &self.0.identity
    }

    fn names(&self) -> &[ControllerName] {
        self.0.controllers.names()
    }

    fn controllers(&self) -> Vec<ControllerState> {
        let all = self.0.controllers.all().iter();
        let mut states: Vec<_> = all.map(|controller| self.state(controller)).collect();
        states.sort_by_key(|state| state.name);
        states
    }

    fn controller(&self, name: &str) -> Option<ControllerState> {
        self.0.controllers.get(name).map(|controller| self.state(controller))
    }

    fn health(&self, name: &str) -> Option<HealthState> {
        let controller = self.0.controllers.get(name)?;
        let unhealthy = cache_problem(controller, &self.0.runtime.informers);
        Some(HealthState { phase: controller.phase(), unhealthy })
    }

    fn queue_names(&self) -> Vec<QueueName> {
        self.loops().map(|(controller, each)| QueueName { name: each.name(), controller }).collect()
    }

    fn overrides(&self) -> Arc<OverrideSet> {
        self.0.overrides.set()
    }

    fn changes(&self) -> latest::Receiver<u64> {
        self.0.event_logger.changes()
    }

    fn read_overrides(&self) -> BoxFuture<'_, Result<HeldOverrides, StoreError>> {
        Box::pin(self.0.overrides.read())
    }

    fn write_overrides<'a>(
        &'a self,
        held: &'a HeldOverrides,
        changes: &'a [(String, Entry)],
    ) -> BoxFuture<'a, Result<HeldOverrides, StoreError>> {
        Box::pin(self.0.overrides.write(held, changes))
    }

    fn leases(&self) -> Vec<LeaseState> {
        self.0.leases.list()
    }

    fn is_coordinated(&self) -> bool {
        self.0.runtime.config.gates.enabled("CoordinatedLeaderElection")
    }

    fn lease_policy(&self) -> LeasePolicyState {
        self.0.lease_policy.state()
    }

    fn replicas(&self) -> Vec<ReplicaState> {
        self.0.replicas.list()
    }

    fn step_down<'a>(&'a self, successor: Option<&'a str>) -> BoxFuture<'a, Result<(), StepDownError>> {
        Box::pin(self.0.step_down.step_down(successor))
    }

    fn queues(&self) -> Vec<QueueState> {
        let mut queues: Vec<_> =
            self.loops().map(|(name, each)| queue_state(name, &each, each.queue().summary())).collect();
        queues.sort_by_key(|queue| queue.name);
        queues
    }

    fn queue(&self, name: &str, max_keys: usize) -> Option<QueueDetail> {
        let (controller, each) = self.loops().find(|(_, each)| each.name() == name)?;
        let snapshot = each.queue().snapshot(max_keys);
        let keys = |rows: Vec<QueuedKey<Key>>| {
            rows.into_iter().take(max_keys).map(|row| (row.key, row.age)).collect()
        };
        Some(QueueDetail {
            state: queue_state(controller, &each, each.queue().summary()),
            oldest: keys(snapshot.oldest),
            in_flight: keys(snapshot.running),
            waiting: each.longest_waiting(max_keys),
            failing: each.stats().failing(max_keys).into_iter().map(failure_state).collect(),
        })
    }

    fn sync<'a>(&'a self, request: &'a SyncRequest) -> BoxFuture<'a, Result<SyncReport, SyncError>> {
        Box::pin(async move {
            let found = self
                .loops()
                .find(|(controller, each)| *controller == request.controller && each.name() == request.queue);
            let (_, each) = found.ok_or(SyncError::NotRunning)?;
            if request.explain {
                let began = Instant::now();
                let explained = each.explain(&request.key).await;
                return Ok(SyncReport { duration: began.elapsed(), ..explanation(explained) });
            }
            each.sync(request.key.clone()).await.map(report).ok_or(SyncError::NotRunning)
        })
    }

    fn announce<'a>(&'a self, mutation: &'a Mutation) -> BoxFuture<'a, ()> {
        let event = EventSpec {
            regarding: self.lease_of(mutation.action),
            warning: false,
            reason: mutation.action.reason(),
            message: mutation.message.clone(),
        };
        if mutation.action == MutationKind::Synced {
            // There may be many of these, and none changes what runs.
            self.0.recorder.emit(event);
            return Box::pin(std::future::ready(()));
        }
        Box::pin(self.0.journal.write(event))
    }
}

fn watch_state(watched: &Watched) -> WatchState {
    WatchState {
        kind: watched.kind,
        field_selector: watched.field_selector,
        cached: watched.cached(),
        synced: watched.is_synced(),
    }
}

fn counts(each: &RunningLoop, summary: QueueSummary) -> Counts {
    Counts {
        workers: each.workers,
        depth: summary.depth,
        in_flight: summary.in_flight,
        delayed: summary.delayed,
        waiting: each.waiting_keys(),
        failing: each.stats().failing_keys(),
        oldest: summary.oldest_age,
        longest_running: summary.longest_running,
        syncs: each.stats().syncs(),
        errors: each.stats().errors(),
    }
}

fn add(sum: Counts, each: Counts) -> Counts {
    Counts {
        workers: sum.workers + each.workers,
        depth: sum.depth + each.depth,
        in_flight: sum.in_flight + each.in_flight,
        delayed: sum.delayed + each.delayed,
        waiting: sum.waiting + each.waiting,
        failing: sum.failing + each.failing,
        oldest: sum.oldest.max(each.oldest),
        longest_running: sum.longest_running.max(each.longest_running),
        syncs: sum.syncs + each.syncs,
        errors: sum.errors + each.errors,
    }
}

fn queue_state(controller: &'static str, each: &RunningLoop, summary: QueueSummary) -> QueueState {
    QueueState { name: each.name(), controller, kind: each.kind(), counts: counts(each, summary) }
}

fn failure_state(failure: KeyFailure) -> FailureState {
    let KeyFailure { key, error, at, attempts } = failure;
    FailureState { key, error, at, attempts }
}

fn report(synced: Synced) -> SyncReport {
    let Synced { outcome, actions, took: duration, trace_id } = synced;
    let mut report = SyncReport {
        outcome: SyncOutcome::Done,
        actions,
        reasons: Vec::new(),
        message: String::new(),
        requeue_after: None,
        duration,
        trace_id,
    };
    match outcome {
        Outcome::Absent => report.outcome = SyncOutcome::NoObject,
        Outcome::Done { requeue_after, .. } => report.requeue_after = requeue_after,
        Outcome::Waiting(kind) => {
            report.outcome = SyncOutcome::StaleCache;
            report.message = format!("the cache of {kind} does not contain the controller's last writes yet");
        }
        Outcome::Failed { error, retry, requeue_after, .. } => {
            report.requeue_after = requeue_after;
            report.outcome = if retry { SyncOutcome::Retrying } else { SyncOutcome::Failed };
            report.message = error;
        }
    }
    report
}

/// All but its duration.
fn explanation(explained: Explained) -> SyncReport {
    let Explained { actions, reasons, requeue_after, waiting_for } = explained;
    let waiting = waiting_for
        .map(|kind| {
            format!("the reconcile waits until the cache of {kind} contains the controller's last writes")
        })
        .unwrap_or_default();
    let (outcome, actions, message) = match actions {
        Ok(Some(actions)) => (SyncOutcome::Explained, actions, waiting),
        Ok(None) => (SyncOutcome::NoObject, Vec::new(), String::new()),
        Err(error) => (SyncOutcome::Failed, Vec::new(), error),
    };
    SyncReport {
        outcome,
        actions,
        reasons,
        message,
        requeue_after,
        duration: std::time::Duration::ZERO,
        trace_id: None,
    }
}
