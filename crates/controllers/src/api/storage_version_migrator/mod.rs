//! storage-version-migrator-controller: has all stored objects of a resource written anew, in the present storage version and with
//! the present encryption key, when somebody asks for it with a StorageVersionMigration. Of custom resources it also shortens
//! `status.storedVersions`. See KEP-4192.
//!
//! | loop | keys | does |
//! |---|---|---|
//! | [`Runner`] | resources, `GROUP/RESOURCE` | one migration of each at a time, the oldest first; what definitions say of it |
//! | [`Versions`] | migrations | the version of the API's present state: what was written after that needs no rewriting |
//! | [`Migrator`] | migrations | patches without content, each of one object as it was listed |
//!
//! What it rests on: live reads. The definition is read before it is written, and the API's resources and the objects are read as
//! the migration needs them. A list that is read live is newer than the version that it is compared with, so nothing is waited for.
//! (The original reads the caches of the garbage collector: it waits for these, and never ends with a resource that the collector
//! ignores.) Each patch carries UID and resource version, so whatever happened to the object meanwhile makes it a conflict, and is
//! as good as the patch.
//! Differs: lists-by-pages.
//!
//! A migration is worked on page by page. Where it has come to is remembered and not written down: who takes over begins with the
//! first object, and changes nothing by that.
//!
//! It never changes an object's content, and never deletes or makes anything.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::STORAGE_VERSION_MIGRATIONS;
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, QpsFactor, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod memory;
mod migration;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;

use memory::{Note, Positions};
use migration::BY_RESOURCE;
use view::{MigratorView, RunnerView, VersionView};

/// Migrations that are worked on at the same time, as in the original.
const MIGRATORS: i32 = 5;
/// Many requests for one migration, and as many as the original may send.
const QPS_FACTOR: QpsFactor = QpsFactor { qps: 20.0, burst: 100 };

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "storage-version-migrator-controller",
    aliases: &["svm"],
    description: "Rewrites stored objects in the current storage version on request.",
    gates: &["StorageVersionMigrator"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("storage-version-migrator-controller"),
    event_source: None,
    writes: &[
        // An apply asks for `create` where there is no such object, and makes none: it names a UID.
        Grant { group: "*", resource: "*", verbs: &["create", "list", "patch"] },
        Grant { group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: &["get"] },
        Grant {
            group: "apiextensions.k8s.io",
            resource: "customresourcedefinitions/status",
            verbs: &["patch"],
        },
        Grant {
            group: "storagemigration.k8s.io",
            resource: "storageversionmigrations/status",
            verbs: &["update"],
        },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    // Ours needs none. But a flag that one manager takes and the other does not would come up when they take turns.
    if !build.config.flags.enable_garbage_collector {
        return Err(BuildError::Invalid("storage version migrator requires garbage collector".to_owned()));
    }
    let migrations = build.watch::<StorageVersionMigration>(&STORAGE_VERSION_MIGRATIONS);
    let positions = Positions::default();
    let runner = Runner { migrations: migrations.index(&BY_RESOURCE) };
    let versions = Versions { migrations: migrations.lister() };
    let migrator = Migrator { migrations: migrations.lister(), positions: positions.clone() };
    Ok(Built {
        loops: vec![
            Loop {
                // Both have this name in the original, whose metrics count them together.
                queue: "resource-version-controller",
                kind: None,
                settings: LoopSettings { qps_factor: QPS_FACTOR, ..LoopSettings::default() },
                wake_ups: vec![migrations.wakes(resources())],
                reconcile: Arc::new(RoomAdapter::new(runner)),
            },
            Loop {
                queue: "resource-version-controller",
                kind: Some(&STORAGE_VERSION_MIGRATIONS),
                settings: LoopSettings { qps_factor: QPS_FACTOR, ..LoopSettings::default() },
                wake_ups: vec![migrations.wakes(wake::existing())],
                reconcile: Arc::new(RoomAdapter::new(versions)),
            },
            Loop {
                queue: "storage-version-migrator-controller",
                kind: Some(&STORAGE_VERSION_MIGRATIONS),
                settings: LoopSettings {
                    qps_factor: QPS_FACTOR,
                    heeds_retry_after: true,
                    ..LoopSettings::with_workers(MIGRATORS)
                },
                // That one is gone is told, too: its position is forgotten.
                wake_ups: vec![migrations.wakes(wake::own())],
                reconcile: Arc::new(RoomAdapter::new(migrator).remembered_by(Arc::new(positions))),
            },
        ],
    })
}

/// The resources of migrations, whatever became of these.
fn resources() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<StorageVersionMigration>();
        for migration in old.into_iter().chain(new) {
            add(migration::resource_key(migration));
        }
    })
}

/// The loop that lets migrations run. Its keys are resources.
struct Runner {
    migrations: Indexed<StorageVersionMigration>,
}

impl Room for Runner {
    type View = RunnerView;

    fn observe(
        &self,
        key: &Key,
        _: &[Failure],
        read: &Reads,
    ) -> Result<Observation<RunnerView>, ObserveError> {
        view::observe_resource(self, key, read)
    }

    fn plan(view: &RunnerView, now: Timestamp) -> Plan {
        plan::runner::plan(view, now)
    }

    fn reasons(view: &RunnerView, _: Timestamp) -> Vec<String> {
        reasons::of_resource(view)
    }
}

/// The loop that finds out what the present state is.
struct Versions {
    migrations: Lister<StorageVersionMigration>,
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
        plan::version::plan(view, now)
    }

    fn reasons(view: &VersionView, now: Timestamp) -> Vec<String> {
        reasons::of_version(view, now)
    }
}

/// The loop that has objects written anew.
struct Migrator {
    migrations: Lister<StorageVersionMigration>,
    positions: Positions,
}

impl Room<Note> for Migrator {
    /// What is refused is the end of the migration.
    const HEEDS_FAILURES: bool = true;

    type View = MigratorView;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<MigratorView>, ObserveError> {
        view::observe_migration(self, key, failures, read)
    }

    fn plan(view: &MigratorView, now: Timestamp) -> Plan<Note> {
        plan::migrator::plan(view, now)
    }

    fn reasons(view: &MigratorView, now: Timestamp) -> Vec<String> {
        reasons::of_migration(view, now)
    }
}
