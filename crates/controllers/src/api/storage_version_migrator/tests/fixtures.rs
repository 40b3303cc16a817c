//! Migrations, definitions, resources and objects, and what plans write of them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use coxswain_machinery::api::kinds::STORAGE_VERSION_MIGRATIONS;
use coxswain_machinery::api::meta::{Condition, PartialObjectMetadata, Status, StatusMetadata};
use coxswain_machinery::api::system::{
    CustomResourceDefinition, CustomResourceDefinitionCondition, CustomResourceDefinitionVersion,
    StorageVersionMigration,
};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{ApiError, ApiResource, ApiResources, PageQuery};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Plan, Write};
use coxswain_machinery::wire::{Message as _, Str, Time};

pub(super) const NOW: i64 = 1_700_000_000;
/// What no row declares: a field of the object that nobody here has heard of.
const UNKNOWN: [u8; 4] = [0xfa, 0x3f, 1, b'x'];

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// A migration of Things that was made so many seconds ago, with these conditions, `TYPE STATUS` each.
pub(super) fn migration(name: &str, age: i64, conditions: &[&str]) -> StorageVersionMigration {
    let mut migration = StorageVersionMigration::default();
    migration.metadata.name = name.into();
    migration.metadata.uid = format!("uid-{name}").as_str().into();
    migration.metadata.resource_version = "5".into();
    migration.metadata.creation_timestamp = Time::from_seconds(NOW - age);
    migration.spec.resource.group = "example.com".into();
    migration.spec.resource.resource = "things".into();
    let conditions = conditions.iter().map(|condition| condition.split_once(' ').unwrap());
    let condition = |(kind, status): (&str, &str)| Condition {
        r#type: kind.into(),
        status: status.into(),
        last_transition_time: Time::from_seconds(3),
        ..Condition::default()
    };
    migration.status.conditions = conditions.map(condition).collect();
    migration
}

/// One that has begun at this version.
pub(super) fn begun(version: &str) -> StorageVersionMigration {
    let mut migration = migration("m", 100, &["Running True"]);
    migration.status.resource_version = version.into();
    migration
}

/// As it would be cached.
pub(super) fn kept(migration: &StorageVersionMigration) -> Arc<StorageVersionMigration> {
    let mut bytes = migration.to_bytes();
    bytes.extend(UNKNOWN);
    downcast((STORAGE_VERSION_MIGRATIONS.decode)(&bytes.into()).unwrap()).unwrap()
}

pub(super) fn store(migrations: &[StorageVersionMigration]) -> Arc<Store> {
    let store = Arc::new(Store::new(&STORAGE_VERSION_MIGRATIONS));
    for migration in migrations {
        store.upsert(&(kept(migration) as AnyObject));
    }
    store
}

/// The definition of Things, in generation 3, stored in v2 now and formerly in v1; with this `StorageMigrating`, if any.
pub(super) fn definition(migrating: Option<(&str, i64)>) -> CustomResourceDefinition {
    let mut definition = CustomResourceDefinition::default();
    definition.metadata.name = "things.example.com".into();
    definition.metadata.uid = "uid-crd".into();
    definition.metadata.resource_version = "77".into();
    definition.metadata.generation = 3;
    definition.spec.versions = [("v1", false), ("v2", true)]
        .map(|(name, storage)| CustomResourceDefinitionVersion { name: name.into(), storage })
        .into();
    definition.status.stored_versions = vec!["v1".into(), "v2".into()];
    let condition = |(status, generation): (&str, i64)| CustomResourceDefinitionCondition {
        r#type: "StorageMigrating".into(),
        status: status.into(),
        observed_generation: generation,
        ..CustomResourceDefinitionCondition::default()
    };
    definition.status.conditions = migrating.map(condition).into_iter().collect();
    definition
}

pub(super) fn resource(verbs: &[&str]) -> ApiResource {
    ApiResource {
        group: "example.com".into(),
        version: "v2".into(),
        resource: "things".into(),
        kind: "Thing".into(),
        namespaced: true,
        verbs: verbs.iter().map(|verb| Str::from(*verb)).collect(),
        ..ApiResource::default()
    }
}

/// One that can be migrated.
pub(super) fn things() -> ApiResource {
    resource(&["get", "list", "patch", "update"])
}

pub(super) fn api(known: Vec<ApiResource>) -> Arc<ApiResources> {
    Arc::new(ApiResources::of(known, Vec::new()))
}

pub(super) fn object(name: &str, version: &str) -> AnyObject {
    let mut object = PartialObjectMetadata::default();
    object.metadata.namespace = "ns".into();
    object.metadata.name = name.into();
    object.metadata.uid = format!("uid-{name}").as_str().into();
    object.metadata.resource_version = version.into();
    Arc::new(object)
}

pub(super) fn refusal(code: u16, reason: &str, next: &str) -> ApiError {
    ApiError::Refused {
        request: "GET /things".to_owned(),
        code,
        reason: reason.into(),
        message: "no".to_owned(),
        status: Box::new(Status {
            metadata: StatusMetadata { r#continue: next.into() },
            ..Status::default()
        }),
        retry_after: None,
    }
}

/// A page of Things, from here on.
pub(super) fn page_from(after: &str) -> PageQuery {
    PageQuery { kind: kind(), namespace: Str::EMPTY, limit: 500, after: after.into() }
}

pub(super) fn kind() -> &'static Kind {
    things().metadata_kind()
}

/// All that a plan writes, in order: the write and what of it matters, the patch or the conditions of the status.
pub(super) fn written<N>(plan: &Plan<N>) -> Vec<String> {
    plan.writes().map(|write| format!("{write}: {}", content(write))).collect()
}

fn content(write: &Write) -> String {
    match &write.verb {
        Verb::Patch(Patch::Apply { manager, force, object }) => {
            let force = if *force { "forces" } else { "applies" };
            format!("{manager} {force} {}", said(object))
        }
        Verb::Update(bytes) => {
            assert!(bytes.windows(UNKNOWN.len()).any(|part| part == UNKNOWN), "what is unknown stays");
            let object = (STORAGE_VERSION_MIGRATIONS.decode)(bytes).unwrap();
            let migration = downcast::<StorageVersionMigration>(object).unwrap();
            assert_eq!(migration.metadata.resource_version, "5", "on the state that was seen");
            let conditions = migration.status.conditions.iter().map(|held| {
                let since = held.last_transition_time.map_or(0, Time::seconds);
                let since = if since == NOW { "now" } else { "before" };
                let Condition { r#type, status, reason, message, observed_generation, .. } = held;
                format!("{type} {status} {reason:?} {message:?} {since} {observed_generation}")
            });
            let conditions: Vec<String> = conditions.collect();
            format!("{} at {:?}", conditions.join(", "), migration.status.resource_version.as_str())
        }
        other => panic!("{other:?}"),
    }
}

fn said(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(time) = object.pointer_mut("/status/conditions/0/lastTransitionTime") {
        assert_eq!(*time, now().to_string().as_str());
        *time = "now".into();
    }
    object.to_string()
}
