//! Writes of a migration's status. Each replaces the object as it was seen, so nothing is said over what was not.

use bytes::Bytes;
use jiff::Timestamp;

use super::super::migration::FAILED;
use coxswain_machinery::api::kinds::STORAGE_VERSION_MIGRATIONS;
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Str, WireError, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<StorageVersionMigration>();

/// A condition that begins to hold, or to hold no more.
pub(super) struct Says {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether it names the generation that it speaks of.
    pub(super) with_generation: bool,
}

/// That a condition holds now.
pub(super) fn said(
    migration: &StorageVersionMigration,
    says: Says,
    now: Timestamp,
) -> Result<Write, WireError> {
    let Says { kind, status, reason, message, with_generation } = says;
    let generation = migration.metadata.generation;
    let said = Said {
        kind,
        status,
        reason,
        message,
        since: now.into(),
        checked: None,
        // The API server counts no generations of migrations.
        generation: (with_generation && generation != 0).then_some(generation),
    };
    Ok(update(migration, conditions::set(&migration.raw, &CONDITIONS, &[said])?))
}

/// That the migration is over, for this reason.
pub(super) fn failed(
    migration: &StorageVersionMigration,
    message: String,
    now: Timestamp,
) -> Result<Write, WireError> {
    let reason = "StorageVersionMigrationFailed";
    said(migration, Says { kind: FAILED, status: "True", reason, message, with_generation: false }, now)
}

/// The version after which nothing needs rewriting.
pub(super) fn versioned(migration: &StorageVersionMigration, version: &Str) -> Result<Write, WireError> {
    let at = path!(StorageVersionMigration, status.resourceVersion);
    let set = Edit::set_text(at, version);
    Ok(update(migration, edit(&migration.raw, &[set])?))
}

fn update(migration: &StorageVersionMigration, object: Vec<u8>) -> Write {
    let key = Key::of(&migration.metadata);
    let write = Write::new(&STORAGE_VERSION_MIGRATIONS, key, Verb::Update(Bytes::from(object))).on("status");
    Write { tolerate: Tolerate { absent: true, ..Tolerate::default() }, ..write }
}

/// The plan of one write, if that could be made.
pub(super) fn only(migration: &StorageVersionMigration, write: Result<Write, WireError>) -> Plan {
    match write {
        Ok(write) => Plan { steps: vec![Step::Write(write)], ..Plan::default() },
        Err(error) => malformed(migration, &error),
    }
}

pub(super) fn malformed(migration: &StorageVersionMigration, error: &WireError) -> Plan {
    let retry = Some(format!("storage version migration {}: {error}", migration.metadata.name));
    Plan { retry, ..Plan::default() }
}

/// The resource may be about to come.
pub(super) fn waits(migration: &StorageVersionMigration) -> Plan {
    let resource = super::super::migration::resource_key(migration);
    Plan {
        retry: Some(format!("{resource} is not served by the API server")),
        quiet: true,
        ..Plan::default()
    }
}
