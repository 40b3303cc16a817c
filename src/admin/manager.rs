//! What the admin API needs of the manager, and the states that it hands over.
//!
//! The services know the manager through [`Manager`] alone. Its reads are snapshots, cheap and never blocking; its
//! writes are futures. A caller may hang up at any time, so a future may be dropped at any time: what it has set going
//! (a reconcile, an orderly release) must be carried to its end by the manager itself.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use super::overrides::{Entry, FlagSelection, HeldOverrides, OverrideSet, StoreError};
use coxswain_machinery::api::Kind;
pub use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
pub use coxswain_machinery::framework::{KeyWait, Phase};
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::serve::UserInfo;

/// The running manager, as the admin API sees it.
pub trait Manager: Send + Sync + 'static {
    /// The present time.
    fn now(&self) -> Timestamp;

    /// This replica's identity in the leader election.
    fn identity(&self) -> &str;

    /// The names of all controllers of the registry. They never change, and nothing is locked or computed.
    fn names(&self) -> &[ControllerName];

    /// All controllers of the registry, by name, those that are not implemented included.
    fn controllers(&self) -> Vec<ControllerState>;

    /// One controller of the registry.
    fn controller(&self, name: &str) -> Option<ControllerState>;

    /// How a controller of the registry is. Looks at no queue: callers without credentials ask for it.
    fn health(&self, name: &str) -> Option<HealthState>;

    /// The overrides as this replica last saw them, by its watch or its own writes.
    fn overrides(&self) -> Arc<OverrideSet>;

    /// Changes whenever a controller's phase, health, failure or restarts, the overrides (their expiry included),
    /// leadership or the replicas change; not with mere counts or renewals. The number means nothing.
    fn changes(&self) -> latest::Receiver<u64>;

    /// Reads the overrides from the API server, not from the watch.
    fn read_overrides(&self) -> BoxFuture<'_, Result<HeldOverrides, StoreError>>;

    /// Writes entries into the overrides that were `held`, and takes note of them at once, before its watch does.
    fn write_overrides<'a>(
        &'a self,
        held: &'a HeldOverrides,
        changes: &'a [(String, Entry)],
    ) -> BoxFuture<'a, Result<HeldOverrides, StoreError>>;

    /// The Leases that this replica fights for, the main one first; empty if leader election is off, in which case
    /// this replica leads.
    fn leases(&self) -> Vec<LeaseState>;

    /// Whether the API server chooses the leader among candidates (coordinated leader election).
    fn is_coordinated(&self) -> bool;

    /// Whether the admission policy that reserves the Leases is in force, as this replica last found it while it led.
    fn lease_policy(&self) -> LeasePolicyState;

    /// All replicas that have announced themselves, this one included, by identity.
    fn replicas(&self) -> Vec<ReplicaState>;

    /// Begins to give up all Leases that this replica holds, in an orderly way: stops its controllers, lets their
    /// reconciles in flight end, releases. Returns when they are released, or why they are not. `successor`, an
    /// identity of [`Self::replicas`], is to be next: the others are to hold back.
    fn step_down<'a>(&'a self, successor: Option<&'a str>) -> BoxFuture<'a, Result<(), StepDownError>>;

    /// The names of the queues of all running controllers. Looks into no queue.
    fn queue_names(&self) -> Vec<QueueName>;

    /// The queues of all running controllers, by name.
    fn queues(&self) -> Vec<QueueState>;

    /// One queue in detail, with at most `max_keys` keys of each sort; `None` if no running controller has it.
    fn queue(&self, name: &str, max_keys: usize) -> Option<QueueDetail>;

    /// Reconciles an object, or explains what a reconcile would do.
    fn sync<'a>(&'a self, request: &'a SyncRequest) -> BoxFuture<'a, Result<SyncReport, SyncError>>;

    /// Records a mutation as a Kubernetes Event about the Lease concerned, which takes as long as the API server does. (The
    /// audit log line is written by the services.)
    fn announce<'a>(&'a self, mutation: &'a Mutation) -> BoxFuture<'a, ()>;
}

/// The names of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerName {
    /// Permanent name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
}

/// A controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerState {
    /// Permanent name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it does.
    pub description: &'static str,
    /// Feature gates that it needs, and whether each is on.
    pub gates: Vec<(&'static str, bool)>,
    /// Whether it runs by default.
    pub enabled_by_default: bool,
    /// Whether it is left to a cloud controller manager when there is one.
    pub cloud: bool,
    /// Whether it is started by rules of its own.
    pub special: bool,
    /// The effect of stopping it, if the cluster depends on it.
    pub critical: Option<&'static str>,
    /// What the flags say.
    pub flags: FlagSelection,
    /// What stands against running it, whoever wants it.
    pub obstacle: Option<Obstacle>,
    /// What it is doing.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Timestamp,
    /// What is wrong while it runs, or waits for its caches; `None` if nothing is.
    pub unhealthy: Option<String>,
    /// Service account in `kube-system`; `None` for the manager's own credentials.
    pub service_account: Option<&'static str>,
    /// What it watches, while it runs.
    pub watches: Vec<WatchState>,
    /// How often it was started anew after a failure.
    pub restarts: u32,
    /// Its queues' figures, added up while it runs.
    pub counts: Counts,
    /// The last reconcile that failed.
    pub last_error: Option<FailureState>,
}

/// What stands against running a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A feature gate that it needs is off.
    Gate(&'static str),
    /// The cloud provider is external, or none.
    CloudProvider(String),
    /// Another flag.
    Setting(String),
    /// This version has no such controller yet.
    NotImplemented,
}

/// A watch of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchState {
    /// What is watched.
    pub kind: &'static Kind,
    /// Restricts it.
    pub field_selector: Option<&'static str>,
    /// Objects in the store.
    pub cached: usize,
    /// Whether the store has been filled.
    pub synced: bool,
}

/// Figures of one queue, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys taken at the same time.
    pub workers: usize,
    /// Keys that wait.
    pub depth: usize,
    /// Keys that are being reconciled.
    pub in_flight: usize,
    /// Keys that come back later.
    pub delayed: usize,
    /// Keys that wait for a cache.
    pub waiting: usize,
    /// Keys whose last reconcile failed.
    pub failing: usize,
    /// For how long the oldest waiting key has waited.
    pub oldest: Option<Duration>,
    /// For how long the longest reconcile has been running.
    pub longest_running: Option<Duration>,
    /// Reconciles, failed ones included.
    pub syncs: u64,
    /// Reconciles that failed.
    pub errors: u64,
}

/// A reconcile that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureState {
    /// The object.
    pub key: Key,
    /// What went wrong.
    pub error: String,
    /// When.
    pub at: Timestamp,
    /// Failures in a row; 0 where that is not known.
    pub attempts: u32,
}

/// A Lease that is fought for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// Where it is.
    pub lease: Key,
    /// Whether this replica leads.
    pub leading: bool,
    /// What it says; `None` before it was read.
    pub record: Option<coxswain_machinery::election::Record>,
}

/// The admission policy that reserves the manager's Leases for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeasePolicyState {
    /// It was not read: this replica does not lead, or cannot read it.
    #[default]
    Unknown,
    /// It is in force.
    InForce,
    /// It or its binding is missing.
    Missing,
    /// It is not that of this version.
    Different,
}

/// A replica that has announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaState {
    /// Its identity in the leader election.
    pub identity: String,
    /// Where it serves the admin API; empty if nowhere.
    pub admin_address: String,
    /// Its version.
    pub version: String,
    /// The Lease by which it leads, as `NAMESPACE/NAME`; empty for a version that announces none.
    pub lease: String,
    /// Digest of the flags by which it selects controllers; empty for a version that announces none.
    pub selection: String,
    /// When it started.
    pub started: Timestamp,
    /// When it last gave a sign of life.
    pub renewed: Timestamp,
    /// For how long a sign of life counts.
    pub lease_duration: Duration,
    /// Whether it gave one within that, measured with this machine's clock.
    pub live: bool,
}

/// Leadership that was not given up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StepDownError {
    /// It was lost, or given up by somebody else, meanwhile.
    #[error("this replica no longer leads")]
    NotLeader,
    /// The Lease could not be released.
    #[error("{0}")]
    Unavailable(String),
}

/// How a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthState {
    /// What it is doing.
    pub phase: Phase,
    /// What is wrong while it runs, or waits for its caches; `None` if nothing is.
    pub unhealthy: Option<String>,
}

/// The name of a queue of a running controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueName {
    /// Name, as in the metrics.
    pub name: &'static str,
    /// The controller.
    pub controller: &'static str,
}

/// A queue of a running controller.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// Name, as in the metrics.
    pub name: &'static str,
    /// The controller.
    pub controller: &'static str,
    /// The kind of object that its keys name; `None` if they name none.
    pub kind: Option<&'static Kind>,
    /// Figures.
    pub counts: Counts,
}

/// A queue in detail.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueDetail {
    /// The queue.
    pub state: QueueState,
    /// The keys that have waited longest, oldest first.
    pub oldest: Vec<(Key, Duration)>,
    /// Keys being reconciled, and for how long.
    pub in_flight: Vec<(Key, Duration)>,
    /// Keys that wait for a cache, those that have waited longest first.
    pub waiting: Vec<KeyWait>,
    /// Keys whose last reconcile failed, those with most failures first.
    pub failing: Vec<FailureState>,
}

/// What to reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// Permanent name of the controller.
    pub controller: &'static str,
    /// Queue, one of [`Manager::queues`].
    pub queue: &'static str,
    /// The object.
    pub key: Key,
    /// Write nothing: observe and plan only.
    pub explain: bool,
}

/// What came of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReport {
    /// How it ended.
    pub outcome: SyncOutcome,
    /// What was done, or would be.
    pub actions: Vec<ActionState>,
    /// Of an explanation: why, in sentences for users.
    pub reasons: Vec<String>,
    /// What went wrong or is waited for.
    pub message: String,
    /// When the controller wants to look again.
    pub requeue_after: Option<Duration>,
    /// How long it took.
    pub duration: Duration,
    /// Its trace.
    pub trace_id: Option<TraceId>,
}

/// How a reconcile on demand ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// All is as it should be.
    Done,
    /// It failed and is tried again.
    Retrying,
    /// It failed and only a change can help.
    Failed,
    /// The cache has not seen the last writes.
    StaleCache,
    /// There is no such object.
    NoObject,
    /// Nothing was to be done but explain.
    Explained,
}

/// A reconcile on demand that could not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The controller stopped meanwhile.
    #[error("the controller stopped")]
    NotRunning,
}

/// The id of a W3C trace.
pub type TraceId = [u8; 16];

/// Something that a caller changed, for the audit log and a Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Who.
    pub user: Arc<UserInfo>,
    /// What sort of change.
    pub action: MutationKind,
    /// What was changed: a controller's name, a Lease, a queue and key.
    pub target: String,
    /// Why.
    pub reason: String,
    /// The whole for people: `jane disabled deployment-controller until …: a storm`.
    pub message: String,
}

/// Sorts of mutations. [`Self::reason`] is an Event's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    /// A controller was enabled.
    Enabled,
    /// A controller was disabled.
    Disabled,
    /// Overrides were cleared.
    Cleared,
    /// Leadership was given up.
    SteppedDown,
    /// An object was reconciled on demand.
    Synced,
}

impl MutationKind {
    /// As an Event's reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Enabled => "ControllerEnabled",
            Self::Disabled => "ControllerDisabled",
            Self::Cleared => "OverridesCleared",
            Self::SteppedDown => "LeaderSteppedDown",
            Self::Synced => "ObjectSynced",
        }
    }
}
