//! The beginning and the end of a migration: the definition of its resource says so, if it has one, and then the migration itself.
//!
//! Whatever is applied to a definition names its `storedVersions`: under the original's field manager, who had applied them before
//! would take them away by leaving them out, and the API server would fill in the storage version alone. Old versions leave the list
//! only when a migration has succeeded, and nobody has changed the definition meanwhile.

use jiff::Timestamp;
use serde_json::json;

use super::super::migration::{RUNNING, SUCCEEDED, Turn, says};
use super::super::view::RunnerView;
use super::status::{Says, malformed, said};
use coxswain_machinery::api::kinds::CUSTOM_RESOURCE_DEFINITIONS;
use coxswain_machinery::api::system::{
    CustomResourceDefinition, CustomResourceDefinitionCondition, StorageVersionMigration,
};
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::{Str, Time};

/// Under which name fields of definitions are applied. It is the original's: what the one applied is the other's, too.
const FIELD_MANAGER: &str = "migration-runner-controller";
/// The condition of a definition.
const MIGRATING: &str = "StorageMigrating";

pub(in super::super) fn plan(view: &RunnerView, now: Timestamp) -> Plan {
    let definition = view.definition.as_deref();
    let (migration, says, apply) = match &view.turn {
        Turn::Start(migration) => {
            (migration, begins(), definition.map(|definition| start(definition, migration, now)))
        }
        Turn::Finish(migration) => {
            (migration, ends(), definition.and_then(|definition| finish(definition, migration, now)))
        }
    };
    match said(migration, says, now) {
        Ok(write) => {
            let steps = apply.into_iter().chain([write]).map(Step::Write).collect();
            Plan { steps, ..Plan::default() }
        }
        Err(error) => malformed(migration, &error),
    }
}

fn begins() -> Says {
    Says {
        kind: RUNNING,
        status: "True",
        reason: "MigrationRunning",
        message: "The migration is running".to_owned(),
        with_generation: false,
    }
}

fn ends() -> Says {
    Says {
        kind: RUNNING,
        status: "False",
        reason: "MigrationCompleted",
        message: "Migration completed".to_owned(),
        with_generation: true,
    }
}

fn start(
    definition: &CustomResourceDefinition,
    migration: &StorageVersionMigration,
    now: Timestamp,
) -> Write {
    let message = format!("Migration {} is running", migration.metadata.name);
    let stored = definition.status.stored_versions.iter().collect();
    apply(definition, ("True", "MigrationRunning", &message), stored, now)
}

/// `None` if an earlier try has said it: a second one could not tell by the generation any more whether somebody had changed the
/// definition.
fn finish(
    definition: &CustomResourceDefinition,
    migration: &StorageVersionMigration,
    now: Timestamp,
) -> Option<Write> {
    let held = definition.status.conditions.iter().find(|held| held.r#type == MIGRATING);
    if held.is_some_and(|held| held.status == "False") {
        return None;
    }
    let all = definition.status.stored_versions.iter().collect();
    if !says(migration, SUCCEEDED) {
        return Some(apply(definition, ("False", "MigrationFailed", "The migration has failed"), all, now));
    }
    let (message, stored) = match storage_version(definition).filter(|_| is_unchanged(definition, held)) {
        Some(version) => {
            ("The migration has succeeded and the stored versions have been updated", vec![version])
        }
        None => (
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
            all,
        ),
    };
    Some(apply(definition, ("False", "MigrationSucceeded", message), stored, now))
}

/// Whether the definition is as it was when the migration began.
fn is_unchanged(
    definition: &CustomResourceDefinition,
    held: Option<&CustomResourceDefinitionCondition>,
) -> bool {
    held.is_some_and(|held| held.observed_generation == definition.metadata.generation)
}

/// The version in which objects are stored.
fn storage_version(definition: &CustomResourceDefinition) -> Option<&Str> {
    definition.spec.versions.iter().find(|version| version.storage).map(|version| &version.name)
}

/// What the definition is to say, on the state of it that was read.
fn apply(
    definition: &CustomResourceDefinition,
    (status, reason, message): (&str, &str, &str),
    stored: Vec<&Str>,
    now: Timestamp,
) -> Write {
    let meta = &definition.metadata;
    let condition = json!({
        "type": MIGRATING,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": Time::from(now).to_string(),
        "observedGeneration": meta.generation,
    });
    let object = json!({
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version(),
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {
            "name": meta.name.as_str(),
            "uid": meta.uid.to_string(),
            "resourceVersion": meta.resource_version.as_str(),
        },
        "status": {
            "conditions": [condition],
            "storedVersions": stored.into_iter().map(Str::as_str).collect::<Vec<_>>(),
        },
    });
    let apply = Verb::Patch(Patch::Apply { manager: FIELD_MANAGER, force: true, object });
    Write::new(&CUSTOM_RESOURCE_DEFINITIONS, Key::of(meta), apply).on("status")
}
