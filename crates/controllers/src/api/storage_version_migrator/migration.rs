//! What a StorageVersionMigration says of itself, and which one's turn it is. Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Str, Time};

pub(super) const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// For how long a resource may not be there yet, in seconds, as in the original.
const YOUNG: i64 = 60;

/// Migrations by their resources.
pub(super) static BY_RESOURCE: Index = Index { name: "resource", keys: by_resource };

fn by_resource(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let migration = any.downcast_ref::<StorageVersionMigration>();
    migration.map(|migration| Str::from(resource_key(migration).to_string())).into_iter().collect()
}

/// The key of a migration's resource: its group, and its plural name.
pub(super) fn resource_key(migration: &StorageVersionMigration) -> Key {
    let resource = &migration.spec.resource;
    Key::new(resource.group.clone(), resource.resource.clone())
}

/// Whether a condition is True.
pub(super) fn says(migration: &StorageVersionMigration, kind: &str) -> bool {
    let held = migration.status.conditions.iter().find(|held| held.r#type == kind);
    held.is_some_and(|held| held.status == "True")
}

/// Whether it is its turn.
pub(super) fn is_running(migration: &StorageVersionMigration) -> bool {
    says(migration, RUNNING)
}

/// Whether it has come to its end, of whatever sort.
pub(super) fn is_terminal(migration: &StorageVersionMigration) -> bool {
    says(migration, SUCCEEDED) || says(migration, FAILED)
}

/// Whether its resource may still be on its way into the API.
pub(super) fn is_young(migration: &StorageVersionMigration, now: Timestamp) -> bool {
    let made = migration.metadata.creation_timestamp;
    made.is_some_and(|made| Time::from(now).seconds_since(made) < YOUNG)
}

/// What is next for a resource.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// This one is over.
    Finish(Arc<StorageVersionMigration>),
    /// This one may begin.
    Start(Arc<StorageVersionMigration>),
}

/// Which migration of a resource begins or is over, of all that there are, the oldest first. One at a time is finished: each write of
/// a definition rests on the one before.
pub(super) fn turn(migrations: &[Arc<StorageVersionMigration>]) -> Option<Turn> {
    let mut running = migrations.iter().filter(|migration| is_running(migration)).peekable();
    let is_free = running.peek().is_none();
    if let Some(over) = running.find(|migration| is_terminal(migration)) {
        return Some(Turn::Finish(Arc::clone(over)));
    }
    let next = migrations.iter().find(|migration| !is_terminal(migration)).filter(|_| is_free)?;
    Some(Turn::Start(Arc::clone(next)))
}
