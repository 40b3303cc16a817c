//! Whose turn it is, and what is said of it.

use proptest::prelude::*;

use super::super::migration::{BY_RESOURCE, Turn, is_running, is_terminal, resource_key, turn};
use super::super::view::RunnerView;
use super::super::{Runner, resources};
use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::CUSTOM_RESOURCE_DEFINITIONS;
use coxswain_machinery::api::system::{CustomResourceDefinition, StorageVersionMigration};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads, Room as _};
use coxswain_machinery::informer::{Delta, Indexed};
use coxswain_machinery::model::Key;
use std::sync::Arc;

fn key() -> Key {
    Key::new("example.com", "things")
}

fn at() -> Key {
    Key::new("", "things.example.com")
}

fn observed(
    migrations: &[StorageVersionMigration],
    key: &Key,
    read: &Reads,
) -> Result<Observation<RunnerView>, ObserveError> {
    let room = Runner { migrations: Indexed::new(&store(migrations), &BY_RESOURCE) };
    room.observe(key, &[], read)
}

/// What is written when there are these migrations, and this definition.
fn writes(
    migrations: &[StorageVersionMigration],
    definition: Option<&CustomResourceDefinition>,
) -> Vec<String> {
    let found = definition.map(|definition| Arc::new(definition.clone()) as _);
    let read = Reads::default().with_object(&CUSTOM_RESOURCE_DEFINITIONS, at(), Ok(found));
    match observed(migrations, &key(), &read).unwrap() {
        Observation::Nothing => Vec::new(),
        Observation::View(view) => {
            assert!(!Runner::reasons(&view, now()).is_empty());
            written(&Runner::plan(&view, now()))
        }
        Observation::Needs(reads) => panic!("{reads:?}"),
    }
}

const STATUS: &str = "update storageversionmigrations.storagemigration.k8s.io/status";
const DEFINITION: &str = "patch customresourcedefinitions.apiextensions.k8s.io/status things.example.com: \
    migration-runner-controller forces ";

/// What is applied to a definition.
fn applied(status: &str, reason: &str, message: &str, stored: &str) -> String {
    let condition = format!(
        r#"{{"type":"StorageMigrating","status":"{status}","reason":"{reason}","message":"{message}","lastTransitionTime":"now","observedGeneration":3}}"#
    );
    let uid = definition(None).metadata.uid.to_string();
    format!(
        r#"{DEFINITION}{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things.example.com","uid":"{uid}","resourceVersion":"77"}},"status":{{"conditions":[{condition}],"storedVersions":[{stored}]}}}}"#
    )
}

fn name(turn: Option<&Turn>) -> String {
    match turn {
        Some(Turn::Start(migration)) => format!("start {}", migration.metadata.name),
        Some(Turn::Finish(migration)) => format!("finish {}", migration.metadata.name),
        None => String::new(),
    }
}

/// A migration's name, age and conditions.
type Made<'a> = (&'a str, i64, &'a [&'a str]);

#[test]
fn one_runs_at_a_time_the_oldest_first() {
    let (running, over) = (["Running True"], ["Running True", "Succeeded True"]);
    let (failed, done) = (["Running True", "Failed True"], ["Running False", "Succeeded True"]);
    let table: &[(&[Made<'_>], &str)] = &[
        (&[("b", 9, &[]), ("a", 8, &[])], "start b"),
        (&[("b", 9, &[]), ("a", 9, &[])], "start a"),
        (&[("b", 9, &running), ("a", 99, &[])], ""),
        (&[("b", 9, &over), ("a", 99, &[])], "finish b"),
        (&[("b", 9, &failed), ("a", 99, &[])], "finish b"),
        (&[("b", 9, &done), ("a", 8, &[])], "start a"),
        (&[("b", 9, &done)], ""),
        // Two that run at once: one that is over is finished, and no third begins.
        (&[("c", 10, &running), ("b", 9, &over), ("a", 99, &[])], "finish b"),
        (&[("c", 10, &over), ("b", 9, &over)], "finish c"),
        // One that ended without its turn, and one whose turn somebody took away.
        (&[("b", 9, &["Failed True"]), ("a", 8, &[])], "start a"),
        (&[("b", 9, &["Running False"]), ("a", 8, &[])], "start b"),
        (&[], ""),
    ];
    for (migrations, expected) in table {
        let migrations: Vec<_> =
            migrations.iter().map(|(name, age, says)| migration(name, *age, says)).collect();
        let read = Reads::default().with_object(&CUSTOM_RESOURCE_DEFINITIONS, at(), Ok(None));
        let turn = match observed(&migrations, &key(), &read).unwrap() {
            Observation::View(view) => Some(view.turn),
            Observation::Nothing => None,
            Observation::Needs(reads) => panic!("{reads:?}"),
        };
        assert_eq!(name(turn.as_ref()), *expected);
    }
}

#[test]
fn migrations_of_other_resources_have_their_own_turns() {
    let mut other = migration("other", 99, &["Running True"]);
    other.spec.resource.group = "example.org".into();
    let migrations = [other, migration("m", 9, &[])];
    let writes = writes(&migrations, None);
    assert_eq!(
        writes,
        [format!(r#"{STATUS} m: Running True "MigrationRunning" "The migration is running" now 0 at """#)]
    );
}

#[test]
fn a_start_is_told_by_the_definition_which_keeps_what_it_says_is_stored() {
    let writes = writes(&[migration("m", 9, &[])], Some(&definition(Some(("False", 3)))));
    let expected = [
        applied("True", "MigrationRunning", "Migration m is running", r#""v1","v2""#),
        format!(r#"{STATUS} m: Running True "MigrationRunning" "The migration is running" now 0 at """#),
    ];
    assert_eq!(writes, expected);
}

#[test]
fn versions_are_forgotten_after_a_success_that_nobody_came_across() {
    let (kept, pruned) = (r#""v1","v2""#, r#""v2""#);
    let updated = "The migration has succeeded and the stored versions have been updated";
    let mismatch = "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";
    let failed = "The migration has failed";
    let table = [
        (Some(("True", 3)), "Succeeded True", Some(("MigrationSucceeded", updated, pruned))),
        (Some(("True", 2)), "Succeeded True", Some(("MigrationSucceeded", mismatch, kept))),
        (None, "Succeeded True", Some(("MigrationSucceeded", mismatch, kept))),
        (Some(("True", 3)), "Failed True", Some(("MigrationFailed", failed, kept))),
        (Some(("True", 2)), "Failed True", Some(("MigrationFailed", failed, kept))),
        // An earlier try has said it: this one can't tell any more what had been there.
        (Some(("False", 3)), "Succeeded True", None),
        (Some(("False", 3)), "Failed True", None),
    ];
    for (held, end, expected) in table {
        let migrations = [migration("m", 9, &["Running True", end])];
        let written = writes(&migrations, Some(&definition(held)));
        let (kind, status) = end.split_once(' ').unwrap();
        let expected = expected.map(|(reason, message, stored)| applied("False", reason, message, stored));
        let expected: Vec<String> = expected
            .into_iter()
            .chain([format!(
                r#"{STATUS} m: Running False "MigrationCompleted" "Migration completed" now 0, {kind} {status} "" "" before 0 at """#
            )])
            .collect();
        assert_eq!(written, expected, "{held:?} {end}");
    }
}

#[test]
fn a_definition_is_read_live_where_there_may_be_one_and_must_be_readable() {
    let migrations = [migration("m", 9, &[])];
    let needs = observed(&migrations, &key(), &Reads::default()).unwrap();
    let Observation::Needs(reads) = needs else { panic!("{needs:?}") };
    assert_eq!(reads, [Read::Object(&CUSTOM_RESOURCE_DEFINITIONS, at())]);
    let unreadable = Err(refusal(500, "InternalError", ""));
    let read = Reads::default().with_object(&CUSTOM_RESOURCE_DEFINITIONS, at(), unreadable);
    assert!(matches!(observed(&migrations, &key(), &read), Err(ObserveError::Retry(_))));
    // What has no group has none.
    let mut core = migration("m", 9, &[]);
    core.spec.resource.group = "".into();
    core.spec.resource.resource = "secrets".into();
    let own = resource_key(&core);
    let seen = observed(&[core], &own, &Reads::default()).unwrap();
    assert!(matches!(seen, Observation::View(RunnerView { definition: None, .. })));
}

#[test]
fn a_migration_that_comes_changes_or_goes_concerns_its_resource() {
    let object: AnyObject = kept(&migration("m", 9, &[]));
    for (old, new) in [(None, Some(&object)), (Some(&object), Some(&object)), (Some(&object), None)] {
        let mut keys = Vec::new();
        let delta = Delta { old, new, initial: false, resync: false };
        resources()(delta, &mut |key| keys.push(key));
        keys.dedup();
        assert_eq!(keys, [key()]);
    }
}

fn any_migrations() -> impl Strategy<Value = Vec<Arc<StorageVersionMigration>>> {
    let says = prop::sample::subsequence(vec!["Running True", "Succeeded True", "Failed True"], 0..=2);
    prop::collection::vec((0_i64..9, says), 0..6).prop_map(|all| {
        let mut all: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(at, (age, says))| Arc::new(migration(&format!("m{at}"), age, &says)))
            .collect();
        all.sort_by_key(|each| (each.metadata.creation_timestamp, each.metadata.name.clone()));
        all
    })
}

proptest! {
    /// Whatever there is: nothing begins beside one that runs, and what is finished has ended.
    #[test]
    fn nothing_begins_beside_another(migrations in any_migrations()) {
        match turn(&migrations) {
            Some(Turn::Start(next)) => {
                prop_assert!(!migrations.iter().any(|each| is_running(each)));
                prop_assert!(!is_terminal(&next));
                let older = migrations.iter().take_while(|each| each.metadata.name != next.metadata.name);
                prop_assert!(older.into_iter().all(|each| is_terminal(each)));
            }
            Some(Turn::Finish(over)) => prop_assert!(is_running(&over) && is_terminal(&over)),
            None => prop_assert!(
                migrations.iter().any(|each| is_running(each)) || migrations.iter().all(|each| is_terminal(each))
            ),
        }
    }
}
