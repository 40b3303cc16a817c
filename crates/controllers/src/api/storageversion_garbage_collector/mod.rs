//! Takes out of StorageVersions what API servers said of themselves that are gone, and deletes those of which nothing is left. See
//! KEP-2339, and KEP-1965 for the Leases by which API servers are known.
//!
//! | loop | change of | keys |
//! |---|---|---|
//! | [`Leases`] | an API server's Lease that is gone | its name |
//! | [`Versions`] | a StorageVersion that is there | its own |
//!
//! What it rests on: live reads. An entry goes when its API server's Lease is not there, or is somebody else's; that it could not be
//! read takes nothing away. (The original drops an entry then, and the API server writes it again within ten minutes.) Every
//! write carries the UID and resource version of the object as it was read.
//! Differs: live-leases.
//!
//! It never writes a Lease. One that has merely expired protects: the API server deletes it itself.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{IDENTITY_LEASES, STORAGE_VERSIONS};
use coxswain_machinery::api::meta::{ObjectMeta, PartialObjectMetadata};
use coxswain_machinery::api::system::StorageVersion;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;

use view::{LeaseView, VersionView};

/// Where API servers have their Leases.
const NAMESPACE: &str = "kube-system";
/// The label of API servers' Leases, and its value.
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "storageversion-garbage-collector-controller",
    aliases: &["storage-version-gc"],
    description: "Removes storage versions of API servers that no longer exist.",
    gates: &["APIServerIdentity", "StorageVersionAPI"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("storage-version-garbage-collector"),
    event_source: None,
    writes: &[
        Grant { group: "coordination.k8s.io", resource: "leases", verbs: &["get", "list", "watch"] },
        Grant {
            group: "internal.apiserver.k8s.io",
            resource: "storageversions",
            verbs: &["delete", "get", "list", "watch"],
        },
        Grant { group: "internal.apiserver.k8s.io", resource: "storageversions/status", verbs: &["update"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let in_namespace = "metadata.namespace=kube-system";
    let leases = build.watch_selected::<PartialObjectMetadata>(&IDENTITY_LEASES, in_namespace);
    let versions = build.watch::<StorageVersion>(&STORAGE_VERSIONS);
    let collector = Versions { versions: versions.lister(), leases: leases.lister() };
    Ok(Built {
        loops: vec![
            Loop {
                queue: "storage_version_garbage_collector_leases",
                kind: None,
                settings: LoopSettings::default(),
                wake_ups: vec![leases.wakes(servers_that_left())],
                reconcile: Arc::new(RoomAdapter::new(Leases)),
            },
            Loop {
                queue: "storage_version_garbage_collector_storageversions",
                kind: Some(&STORAGE_VERSIONS),
                settings: LoopSettings::default(),
                wake_ups: vec![versions.wakes(wake::existing())],
                reconcile: Arc::new(RoomAdapter::new(collector)),
            },
        ],
    })
}

/// Whether a Lease is an API server's.
fn is_of_server(lease: &ObjectMeta) -> bool {
    let (label, value) = IDENTITY;
    lease.namespace == NAMESPACE && lease.labels.get(label).is_some_and(|held| held == value)
}

/// The name of an API server's Lease that is gone.
fn servers_that_left() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let (Some(old), None) = delta.typed::<PartialObjectMetadata>()
            && is_of_server(&old.metadata)
        {
            add(Key::new("", old.metadata.name.clone()));
        }
    })
}

/// The loop that follows API servers that leave. Its keys are their names.
struct Leases;

impl Room for Leases {
    type View = LeaseView;

    fn observe(
        &self,
        key: &Key,
        _: &[Failure],
        read: &Reads,
    ) -> Result<Observation<LeaseView>, ObserveError> {
        view::observe_lease(key, read)
    }

    fn plan(view: &LeaseView, now: Timestamp) -> Plan {
        plan::of_lease(view, now)
    }

    fn reasons(view: &LeaseView, _: Timestamp) -> Vec<String> {
        reasons::of_lease(view)
    }
}

/// The loop that looks at each StorageVersion.
struct Versions {
    versions: Lister<StorageVersion>,
    leases: Lister<PartialObjectMetadata>,
}

impl Room for Versions {
    type View = VersionView;

    fn observe(
        &self,
        key: &Key,
        _: &[Failure],
        read: &Reads,
    ) -> Result<Observation<VersionView>, ObserveError> {
        view::observe_version(self, key, read)
    }

    fn plan(view: &VersionView, now: Timestamp) -> Plan {
        plan::of_version(view, now)
    }

    fn reasons(view: &VersionView, _: Timestamp) -> Vec<String> {
        reasons::of_version(view)
    }
}
