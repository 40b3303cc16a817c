//! The descriptor of a controller: one row of the registry.

use std::sync::Arc;

use super::dynamic::{DynamicRoom, DynamicWatches};
use super::metrics::RoomMetrics;
use super::room::Reconcile;
use crate::api::Kind;
use crate::informer::{Delta, Store};
use crate::model::Key;
use crate::serve::PageHandler;
use crate::wire::Str;

/// Whether a controller runs when `--controllers` does not name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultState {
    /// Part of `*`.
    On,
    /// Only when named.
    Off,
}

/// Everything there is to know about a controller without running it.
pub struct Descriptor {
    /// Its permanent name, as `--controllers` takes it.
    pub name: &'static str,
    /// Other names that `--controllers` takes.
    pub aliases: &'static [&'static str],
    /// What it does, in one sentence.
    pub description: &'static str,
    /// Feature gates, all of which must be on.
    pub gates: &'static [&'static str],
    /// Whether it runs when it is not named.
    pub default: DefaultState,
    /// Whether it is left to a cloud controller manager when `--cloud-provider=external`.
    pub cloud: bool,
    /// Whether it is started by its own rules (the service-account token controller: first, with the root client).
    pub special: bool,
    /// The service account in `kube-system` whose credentials it uses; `None` for the manager's own.
    pub service_account: Option<&'static str>,
    /// What its events name as their source, where that is not its name.
    pub event_source: Option<&'static str>,
    /// What its role must let it write; checked against the bootstrap roles.
    pub writes: &'static [Grant],
    /// Builds it; `None` as long as it is not implemented.
    pub build: Option<BuildFn>,
}

/// Makes a controller.
pub type BuildFn = fn(&Build<'_>) -> Result<Built, BuildError>;

/// Verbs on a resource that a controller uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// API group; empty for core.
    pub group: &'static str,
    /// Resource, or `resource/subresource`.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// What every controller's role grants it for its events.
pub const EVENTS_GRANT: Grant =
    Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] };

/// What a controller gets to build itself from.
pub struct Build<'a> {
    /// The manager's configuration.
    pub config: &'a crate::options::Config,
    /// Whether a feature gate is on; `false` for an unknown one.
    pub gate: &'a dyn Fn(&str) -> bool,
    /// The CA bundle to publish: `--root-ca-file`, or the one of the kubeconfig.
    pub root_ca: Option<Str>,
    /// Whether there is a key to sign service-account tokens with.
    pub can_sign_tokens: bool,
    /// The store of a watch, which the framework starts for as long as the controller lives.
    pub store: &'a dyn Fn(&'static Kind, Option<&'static str>) -> Arc<Store>,
    /// Watches whatever the API has that the room wants, for as long as the controller lives; to be asked for once.
    pub dynamic: &'a dyn Fn(Arc<dyn DynamicRoom>) -> Arc<DynamicWatches>,
    /// Answers requests for `/debug/controllers/NAME` and all below it for as long as the controller lives.
    pub debug: &'a dyn Fn(PageHandler),
    /// Metrics of its own.
    pub metrics: &'a RoomMetrics,
}

/// A controller that can't start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A flag stands against it: it is skipped, and this is why.
    #[error("skipped: {0}")]
    Skipped(String),
    /// Something it needs is wrong: the manager does not start.
    #[error("{0}")]
    Invalid(String),
}

/// A controller ready to run: one or more loops.
pub struct Built {
    /// Its loops, each with a queue of its own.
    pub loops: Vec<Loop>,
}

/// One work queue and what is done with its keys.
pub struct Loop {
    /// Name of the queue in `workqueue_*` metrics, as the original names it.
    pub queue: &'static str,
    /// The kind of object that its keys name; `None` if they name none.
    pub kind: Option<&'static Kind>,
    /// Workers that take keys at the same time.
    pub workers: usize,
    /// The watches whose changes concern it.
    pub watches: Vec<Watch>,
    /// What is done with a key.
    pub reconcile: Arc<dyn Reconcile>,
}

/// How many workers a `--concurrent-…-syncs` flag asks for; at least one, so that nothing ever stands still.
pub fn workers(configured: i32) -> usize {
    usize::try_from(configured).unwrap_or(0).max(1)
}

/// A watch, and which keys a change concerns.
pub struct Watch {
    /// What is watched.
    pub kind: &'static Kind,
    /// Restricts it to the objects whose fields match; `None` for all.
    pub field_selector: Option<&'static str>,
    /// Says which keys a change concerns. It must not block and must not
    /// read the store that changed.
    pub keys: KeyMap,
}

/// Says which keys a change concerns, by handing each to its second argument.
pub type KeyMap = Arc<dyn Fn(Delta<'_>, &mut dyn FnMut(Key)) + Send + Sync>;
