//! The descriptor of a controller: one row of the registry.

use std::sync::Arc;

use super::dynamic::{DynamicRoom, DynamicWatches};
use super::metrics::RoomMetrics;
use super::room::Reconcile;
use super::settings::LoopSettings;
use super::watch::{CacheSource, WakeUp, Watch};
use crate::api::{Kind, Object};
use crate::client::ApiResources;
use crate::executor::Finishers;
use crate::serve::PageHandler;
use crate::wire::Str;
use crate::zones::Zones;

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
    /// The CA bundle to publish: `--root-ca-file`, or the one of the kubeconfig, empty if no CA is known. `None` if it must not be published.
    pub root_ca: Option<Str>,
    /// What can finish objects: whether there is a key to sign with.
    pub finishers: &'a Finishers,
    /// Time zones.
    pub zones: &'a Zones,
    /// What it watches, see [`Build::watch`].
    pub caches: CacheSource<'a>,
    /// Watches whatever the API has that the room wants, for as long as the controller lives; to be asked for once.
    pub dynamic: &'a dyn Fn(Arc<dyn DynamicRoom>) -> Arc<DynamicWatches>,
    /// Answers requests for `/debug/controllers/NAME` and all below it for as long as the controller lives.
    pub debug: &'a dyn Fn(PageHandler),
    /// Metrics of its own.
    pub metrics: &'a RoomMetrics,
    /// Which resources the API has; see [`Build::resources`].
    pub discovered: Option<&'a ApiResources>,
}

impl<'a> Build<'a> {
    /// Which resources the API has, for a controller that hangs on that. The framework asks when this is called first, and
    /// builds once more with the answer; so it is to be called before anything else.
    ///
    /// # Errors
    /// They are not known yet: to be handed on.
    pub fn resources(&self) -> Result<&'a ApiResources, BuildError> {
        self.discovered.ok_or(BuildError::Undiscovered)
    }

    /// The first of these kinds that the API server serves; the controller is skipped if it serves none.
    ///
    /// # Errors
    /// See [`Build::resources`]; a group that can't be found out about is no reason to skip.
    pub fn first_served(&self, kinds: &[&'static Kind]) -> Result<&'static Kind, BuildError> {
        let resources = self.resources()?;
        // Linear: a controller names two or three versions of its kind, once.
        let unknown =
            |kind: &Kind| resources.failures().any(|failure| failure.group_version() == kind.api_version());
        let served = |kind: &&&'static Kind| resources.all().any(|resource| resource.is(kind));
        if let Some(kind) = kinds.iter().find(served) {
            return Ok(kind);
        }
        if let Some(kind) = kinds.iter().find(|kind| unknown(kind)) {
            return Err(BuildError::NotYet(format!("discovery of {} is incomplete", kind.api_version())));
        }
        let names: Vec<_> =
            kinds.iter().map(|kind| format!("{} ({})", kind.resource, kind.api_version())).collect();
        Err(BuildError::Skipped(format!("not served: {}", names.join(", "))))
    }
}

impl Build<'_> {
    /// Watches all objects of a kind for as long as the controller lives.
    pub fn watch<T: Object>(&self, kind: &'static Kind) -> Watch<T> {
        self.caches.watch(kind, None)
    }

    /// Watches the objects of a kind whose fields match.
    pub fn watch_selected<T: Object>(&self, kind: &'static Kind, field_selector: &'static str) -> Watch<T> {
        self.caches.watch(kind, Some(field_selector))
    }
}

/// A controller that can't start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A flag stands against it: it is skipped, and this is why.
    #[error("skipped: {0}")]
    Skipped(String),
    /// It needs to know which resources the API has, and is built once more with them.
    #[error("the API resources are not discovered yet")]
    Undiscovered,
    /// Something is not known yet: it is tried again.
    #[error("{0}")]
    NotYet(String),
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
    /// How it works.
    pub settings: LoopSettings,
    /// The watches whose changes queue its keys.
    pub wake_ups: Vec<WakeUp>,
    /// What is done with a key.
    pub reconcile: Arc<dyn Reconcile>,
}
