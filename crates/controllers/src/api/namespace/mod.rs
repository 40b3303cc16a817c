//! Namespaces that are being deleted: their content goes, and then they do.
//!
//! The room observes the namespace, what kinds of objects the API has, and what there is of each, all read live ([`view`]);
//! it decides which collections to delete, what the conditions say, and when the finalizer `kubernetes` goes ([`plan`]).
//! See "Namespaces" in the Kubernetes documentation and KEP-5080 (ordered namespace deletion).
//!
//! One reconcile is: look; delete what is there and is not being deleted; look again; say in the conditions what remains
//! and why; let the namespace go when nothing does. Pods go first: nothing else is touched as long as there are some, unless
//! they can't be listed or the server refuses to delete them. Whatever is refused, all else goes.
//!
//! A namespace's keys are its own: while it is being deleted, its changes, each after a rest in which all API servers hear
//! of the deletion and what was being created arrives. Otherwise it is looked at again when what ends gracefully should
//! have ended, or with growing delays after errors.
//!
//! What it rests on: the API server admits nothing new into a namespace that is being deleted, so what is not there after the
//! rest never will be; which kinds there are is read after it too. Before anything is deleted the namespace is read once
//! more: one of the same name that was made anew loses nothing. Collections in which everything is being deleted
//! already are left alone, empty ones are never written to. Where the server does not tell what there is, the collection is
//! deleted unseen.
//!
//! It never touches the namespace's metadata, finalizers of others, or kinds that it can neither list nor delete at once.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::core::Namespace;
use coxswain_machinery::api::kinds::NAMESPACES;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, QpsFactor, QueueConfig, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::View;

/// The finalizer, in `spec.finalizers`, that stands for the content.
const FINALIZER: &str = "kubernetes";

/// How long a change of a namespace is debounced, as in the original.
const DEBOUNCE: Duration = Duration::from_secs(5);
/// Many requests for one namespace, and as many as the original may send.
const QPS_FACTOR: QpsFactor = QpsFactor { qps: 20.0, burst: 100 };
/// The longest wait between two attempts, as in the original.
const LONGEST_BACKOFF: Duration = Duration::from_mins(1);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "namespace-controller",
    aliases: &["namespace"],
    description: "Deletes everything in a Namespace that is being deleted.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("namespace-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "namespaces", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "namespaces/finalize", verbs: &["update"] },
        Grant { group: "", resource: "namespaces/status", verbs: &["update"] },
        Grant { group: "*", resource: "*", verbs: &["delete", "deletecollection", "list"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    let namespaces = build.watch::<Namespace>(&NAMESPACES);
    let room = Controller {
        namespaces: namespaces.lister(),
        pods_first: (build.gate)("OrderedNamespaceDeletion"),
        sync_period: flags.namespace_sync_period,
    };
    let ending: KeyMap = Arc::new(|delta: Delta<'_>, emit: &mut dyn FnMut(Key)| {
        if let Some(namespace) = delta.new.filter(|new| new.meta().is_deleting()) {
            emit(Key::of(namespace.meta()));
        }
    });
    Ok(Built {
        loops: vec![Loop {
            queue: "namespace",
            kind: Some(&NAMESPACES),
            settings: LoopSettings {
                backoff: QueueConfig { max_delay: LONGEST_BACKOFF, ..QueueConfig::default() },
                qps_factor: QPS_FACTOR,
                ..LoopSettings::with_workers(flags.concurrent_namespace_syncs)
            },
            wake_ups: vec![namespaces.wakes(ending).debounced(DEBOUNCE)],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads, and what is set.
struct Controller {
    namespaces: Lister<Namespace>,
    /// `OrderedNamespaceDeletion`.
    pods_first: bool,
    /// A namespace that waits is looked at this often at least.
    sync_period: Duration,
}

impl Room for Controller {
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, failures, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }
}
