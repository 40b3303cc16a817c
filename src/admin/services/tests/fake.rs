//! A manager that is data: controllers that change their phase when told to, overrides in memory.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::admin::critical;
use crate::admin::manager::*;
use crate::admin::overrides::{Entry, FlagSelection, HeldOverrides, Order, OverrideSet, StoreError};
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::api::kinds::{DEPLOYMENTS, PODS, REPLICA_SETS, SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::election::Record;
use coxswain_machinery::framework::{DefaultState, Descriptor};
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::{Clock as _, ManualClock, SharedClock};
use coxswain_machinery::options::{self, Invocation, Selection};
use coxswain_machinery::wire::Str;

/// A part of the manager that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// Reconciles of syncs that begin.
    Syncs,
    /// Writes of Events.
    Events,
}

/// How the next write of overrides ends.
pub(crate) enum NextWrite {
    /// A conflict; whoever caused it wrote this.
    Conflict(Vec<(String, Entry)>),
    /// A refusal.
    Refused,
    /// Carried out, and its answer lost.
    LostAnswer,
    /// Carried out, then another order for the same controllers, and its answer lost.
    Overtaken(Order),
    /// Lost, and its answer too.
    Lost,
    /// Carried out, and nobody answers from then on.
    LostForGood,
    /// Carried out only when the next write arrives, and its answer lost.
    Late,
}

pub(crate) struct Fake {
    clock: Arc<ManualClock>,
    changes: latest::Sender<u64>,
    names: Vec<ControllerName>,
    pub(crate) state: Mutex<State>,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own that a test chooses")]
pub(crate) struct State {
    pub(crate) controllers: Vec<ControllerState>,
    pub(crate) overrides: OverrideSet,
    pub(crate) next_writes: Vec<NextWrite>,
    pub(crate) writes: usize,
    pub(crate) away: bool,
    pub(crate) leases: Vec<LeaseState>,
    pub(crate) replicas: Vec<ReplicaState>,
    pub(crate) stepped_down: Vec<Option<String>>,
    pub(crate) synced: Vec<SyncRequest>,
    pub(crate) announced: Vec<Mutation>,
    pub(crate) sync_stops: bool,
    /// What does not end as long as this holds.
    pub(crate) hangs: Option<Hang>,
    /// How long each request takes, and its answer as long again.
    pub(crate) latency: Duration,
    /// The entries that are stored when the next write arrives.
    pub(crate) late: Option<OverrideSet>,
    /// Nothing may be read.
    pub(crate) untouchable: bool,
    pub(crate) lease_policy: LeasePolicyState,
    pub(crate) coordinated: bool,
    /// How often the states of all controllers, or the details of a queue, were computed.
    pub(crate) computed: usize,
}

pub(crate) const ME: &str = "node-a_1";
pub(crate) const OTHER: &str = "node-b_2";

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn controller(name: &'static str, aliases: &'static [&'static str]) -> ControllerState {
    ControllerState {
        name,
        aliases,
        description: "Keeps things as they should be.",
        gates: vec![],
        enabled_by_default: true,
        cloud: false,
        special: false,
        critical: None,
        flags: FlagSelection { enabled: true, named: false, fixed: false },
        obstacle: None,
        phase: Phase::Running,
        phase_since: at(0),
        unhealthy: None,
        service_account: Some(name),
        watches: vec![WatchState { kind: &PODS, field_selector: None, cached: 7, synced: true }],
        restarts: 0,
        counts: Counts { workers: 5, depth: 2, oldest: Some(Duration::from_secs(1)), ..Counts::default() },
        last_error: None,
    }
}

fn replica(identity: &str, address: &str) -> ReplicaState {
    ReplicaState {
        identity: identity.to_owned(),
        admin_address: address.to_owned(),
        version: "v0.1.0".to_owned(),
        lease: "kube-system/kube-controller-manager".to_owned(),
        selection: "5e1ec7ed00000000".to_owned(),
        started: at(-100),
        renewed: at(0),
        lease_duration: Duration::from_secs(15),
        live: true,
    }
}

pub(crate) fn record(holder: &str) -> Record {
    Record {
        holder: holder.into(),
        duration_seconds: 15,
        acquired: at(-50),
        renewed: at(0),
        transitions: 3,
        successor: Str::EMPTY,
    }
}

impl Fake {
    pub(crate) fn new() -> Self {
        let gated = ControllerState {
            gates: vec![("ClusterTrustBundle", false)],
            obstacle: Some(Obstacle::Gate("ClusterTrustBundle")),
            phase: Phase::Skipped("the feature gate ClusterTrustBundle is off".to_owned()),
            ..controller("bundle-controller", &[])
        };
        let off = ControllerState {
            enabled_by_default: false,
            flags: FlagSelection { enabled: false, named: false, fixed: false },
            phase: Phase::Disabled,
            ..controller("token-cleaner-controller", &["tokencleaner"])
        };
        let cloud = ControllerState {
            cloud: true,
            obstacle: Some(Obstacle::CloudProvider("there is no cloud provider".to_owned())),
            phase: Phase::Skipped("there is no cloud provider".to_owned()),
            ..controller("service-lb-controller", &["service"])
        };
        let missing = ControllerState {
            obstacle: Some(Obstacle::NotImplemented),
            phase: Phase::NotImplemented,
            ..controller("job-controller", &["job"])
        };
        let controllers = vec![
            gated,
            controller("deployment-controller", &["deployment"]),
            missing,
            controller("replicaset-controller", &["replicaset"]),
            cloud,
            ControllerState {
                special: true,
                critical: Some("token Secrets stay empty"),
                ..controller("serviceaccount-token-controller", &["serviceaccount-token"])
            },
            off,
        ];
        Self::with(controllers)
    }

    /// The controllers of the registry, which run if these flags select them and nothing stands against them.
    pub(crate) fn of_registry(flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| OsString::from(*flag));
        let Invocation::Run(startup) = options::parse(flags, REGISTRY).unwrap() else {
            panic!("it is to run")
        };
        let config = startup.config;
        let of_row = |row: &'static Descriptor| {
            let Selection { selected, named } = config.selection(row);
            let flags = FlagSelection { enabled: selected, named, fixed: config.overrides_only_disable() };
            let obstacle =
                row.cloud.then(|| Obstacle::CloudProvider("there is no cloud provider".to_owned()));
            ControllerState {
                enabled_by_default: row.default == DefaultState::On,
                special: row.special,
                critical: critical::effect(row.name),
                phase: if selected && obstacle.is_none() { Phase::Running } else { Phase::Disabled },
                flags,
                obstacle,
                ..controller(row.name, row.aliases)
            }
        };
        let fake = Self::with(REGISTRY.iter().map(of_row).collect());
        fake.state.lock().replicas[0].selection = config.selection_digest();
        fake
    }

    fn with(controllers: Vec<ControllerState>) -> Self {
        let lease = LeaseState {
            lease: Key::new("kube-system", "kube-controller-manager"),
            leading: true,
            record: Some(record(ME)),
        };
        let names =
            controllers.iter().map(|state| ControllerName { name: state.name, aliases: state.aliases });
        Self {
            clock: Arc::new(ManualClock::new(at(0))),
            changes: latest::Sender::new(0),
            names: names.collect(),
            state: Mutex::new(State {
                controllers,
                overrides: OverrideSet::default(),
                next_writes: vec![],
                writes: 0,
                away: false,
                leases: vec![lease],
                replicas: vec![replica(ME, "10.0.0.1:10257"), replica(OTHER, "10.0.0.2:10257")],
                stepped_down: vec![],
                synced: vec![],
                announced: vec![],
                sync_stops: false,
                hangs: None,
                latency: Duration::ZERO,
                late: None,
                untouchable: false,
                lease_policy: LeasePolicyState::Unknown,
                coordinated: false,
                computed: 0,
            }),
        }
    }

    pub(crate) fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock) as _
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Changes something, as something that is watched.
    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn set_phase(&self, name: &str, phase: Phase) {
        self.set(|state| state.controller(name).phase = phase);
    }

    /// Makes another replica the leader.
    pub(crate) fn lose(&self, holder: &str) {
        self.set(|state| {
            state.leases[0].leading = false;
            state.leases[0].record = Some(record(holder));
        });
    }
}

impl Fake {
    fn all_queues(&self) -> Vec<QueueState> {
        if !self.state.lock().leases.first().is_none_or(|lease| lease.leading) {
            return vec![];
        }
        vec![
            queue("deployment", "deployment-controller", &DEPLOYMENTS, 2),
            queue("replicaset", "replicaset-controller", &REPLICA_SETS, 0),
            queue("serviceaccount_tokens_secret", "serviceaccount-token-controller", &SECRETS, 0),
            queue("serviceaccount_tokens_service", "serviceaccount-token-controller", &SERVICE_ACCOUNTS, 0),
        ]
    }

    /// The state, for a read that takes time in proportion to what there is.
    fn reads(&self) -> parking_lot::MutexGuard<'_, State> {
        let state = self.state.lock();
        assert!(!state.untouchable, "read before the caller was authorized");
        state
    }

    /// The time that a request takes, or its answer.
    async fn travel(&self) {
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }

    fn write(&self, held: &HeldOverrides, changes: &[(String, Entry)]) -> Result<HeldOverrides, StoreError> {
        let mut state = self.state.lock();
        state.writes += 1;
        if let Some(late) = state.late.take() {
            state.overrides = late;
        }
        let next = if state.next_writes.is_empty() { None } else { Some(state.next_writes.remove(0)) };
        let written = held.set.with(changes);
        let outcome = match next {
            None if state.overrides == held.set => {
                state.overrides = written.clone();
                Ok(HeldOverrides { set: written, raw: Bytes::new() })
            }
            None => Err(StoreError::Conflict),
            Some(NextWrite::Conflict(others)) => {
                state.overrides = state.overrides.with(&others);
                Err(StoreError::Conflict)
            }
            Some(NextWrite::Refused) => Err(StoreError::Unavailable("403 Forbidden".to_owned())),
            Some(NextWrite::LostAnswer) => {
                state.overrides = written;
                Err(StoreError::Unknown("timeout".to_owned()))
            }
            Some(NextWrite::Overtaken(order)) => {
                let mut version = written.next_version();
                let others = changes.iter().map(|(name, entry)| {
                    let entry = Entry { order, user: "joe".to_owned(), version, ..entry.clone() };
                    version += 1;
                    (name.clone(), entry)
                });
                state.overrides = written.with(&others.collect::<Vec<_>>());
                Err(StoreError::Unknown("timeout".to_owned()))
            }
            Some(NextWrite::LostForGood) => {
                state.overrides = written;
                state.away = true;
                Err(StoreError::Unknown("timeout".to_owned()))
            }
            Some(NextWrite::Late) => {
                state.late = Some(written);
                Err(StoreError::Unknown("timeout".to_owned()))
            }
            Some(NextWrite::Lost) => Err(StoreError::Unknown("timeout".to_owned())),
        };
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
        outcome
    }
}

impl State {
    pub(crate) fn controller(&mut self, name: &str) -> &mut ControllerState {
        self.controllers.iter_mut().find(|state| state.name == name).unwrap()
    }
}

fn queue(
    name: &'static str,
    controller: &'static str,
    kind: &'static coxswain_machinery::api::Kind,
    depth: usize,
) -> QueueState {
    QueueState {
        name,
        controller,
        kind: Some(kind),
        counts: Counts { workers: 5, depth, ..Counts::default() },
    }
}

impl Manager for Fake {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn identity(&self) -> &str {
        ME
    }

    fn names(&self) -> &[ControllerName] {
        &self.names
    }

    fn controllers(&self) -> Vec<ControllerState> {
        let mut state = self.reads();
        state.computed += 1;
        state.controllers.clone()
    }

    fn controller(&self, name: &str) -> Option<ControllerState> {
        self.reads().controllers.iter().find(|state| state.name == name).cloned()
    }

    fn health(&self, name: &str) -> Option<HealthState> {
        let state = self.state.lock();
        let found = state.controllers.iter().find(|state| state.name == name)?;
        Some(HealthState { phase: found.phase.clone(), unhealthy: found.unhealthy.clone() })
    }

    fn queue_names(&self) -> Vec<QueueName> {
        self.all_queues()
            .iter()
            .map(|queue| QueueName { name: queue.name, controller: queue.controller })
            .collect()
    }

    fn overrides(&self) -> Arc<OverrideSet> {
        Arc::new(self.reads().overrides.clone())
    }

    fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    fn read_overrides(&self) -> BoxFuture<'_, Result<HeldOverrides, StoreError>> {
        Box::pin(async move {
            self.travel().await;
            let state = self.reads();
            if state.away {
                return Err(StoreError::Unavailable("connection refused".to_owned()));
            }
            Ok(HeldOverrides { set: state.overrides.clone(), raw: Bytes::new() })
        })
    }

    fn write_overrides<'a>(
        &'a self,
        held: &'a HeldOverrides,
        changes: &'a [(String, Entry)],
    ) -> BoxFuture<'a, Result<HeldOverrides, StoreError>> {
        Box::pin(async move {
            self.travel().await;
            let outcome = self.write(held, changes);
            self.travel().await;
            outcome
        })
    }

    fn leases(&self) -> Vec<LeaseState> {
        self.state.lock().leases.clone()
    }

    fn is_coordinated(&self) -> bool {
        self.state.lock().coordinated
    }

    fn lease_policy(&self) -> LeasePolicyState {
        self.state.lock().lease_policy
    }

    fn replicas(&self) -> Vec<ReplicaState> {
        self.state.lock().replicas.clone()
    }

    fn step_down<'a>(&'a self, successor: Option<&'a str>) -> BoxFuture<'a, Result<(), StepDownError>> {
        Box::pin(async move {
            self.travel().await;
            if !self.state.lock().leases[0].leading {
                return Err(StepDownError::NotLeader);
            }
            self.state.lock().stepped_down.push(successor.map(str::to_owned));
            self.lose("");
            self.travel().await;
            Ok(())
        })
    }

    fn queues(&self) -> Vec<QueueState> {
        drop(self.reads());
        self.all_queues()
    }
    fn queue(&self, name: &str, max_keys: usize) -> Option<QueueDetail> {
        let state = self.queues().into_iter().find(|queue| queue.name == name)?;
        self.state.lock().computed += 1;
        let keys = (0..3).map(|each| (Key::new("ns", format!("key-{each}")), Duration::from_secs(9 - each)));
        let failure =
            FailureState { key: Key::new("ns", "bad"), error: "quota".to_owned(), at: at(0), attempts: 4 };
        Some(QueueDetail {
            state,
            oldest: keys.take(max_keys).collect(),
            in_flight: vec![],
            waiting: vec![KeyWait { key: Key::new("ns", "late"), kind: &PODS, age: Duration::from_secs(7) }],
            failing: vec![failure],
        })
    }

    fn sync<'a>(&'a self, request: &'a SyncRequest) -> BoxFuture<'a, Result<SyncReport, SyncError>> {
        let mut state = self.reads();
        state.synced.push(request.clone());
        if state.hangs == Some(Hang::Syncs) {
            return Box::pin(std::future::pending());
        }
        let (outcome, result) = if request.explain {
            (SyncOutcome::Explained, ActionResult::Planned)
        } else {
            (SyncOutcome::Done, ActionResult::Done)
        };
        let action = ActionState {
            verb: ActionVerb::Update,
            kind: &DEPLOYMENTS,
            key: request.key.clone(),
            uid: "u".into(),
            subresource: "status",
            summary: format!("update deployments.apps/status {}", request.key),
            result,
            code: None,
        };
        let report = SyncReport {
            outcome,
            actions: vec![action],
            reasons: if request.explain { vec!["1 of 3 replicas is there".to_owned()] } else { vec![] },
            message: String::new(),
            requeue_after: Some(Duration::from_secs(10)),
            duration: Duration::from_millis(2),
            trace_id: Some([1; 16]),
        };
        Box::pin(std::future::ready(if state.sync_stops { Err(SyncError::NotRunning) } else { Ok(report) }))
    }

    fn announce<'a>(&'a self, mutation: &'a Mutation) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.travel().await;
            while self.state.lock().hangs == Some(Hang::Events) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.state.lock().announced.push(mutation.clone());
        })
    }
}
