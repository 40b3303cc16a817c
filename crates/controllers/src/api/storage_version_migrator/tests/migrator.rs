//! Which objects are written anew, how, and what ends a migration.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::memory::{Note, Position, Positions};
use super::super::plan::migrator::due;
use super::super::view::{MigratorView, Page, is_refusal};
use super::super::{Migrator, migration::is_terminal};
use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::STORAGE_VERSION_MIGRATIONS;
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::framework::{
    Memory as _, ObjectList, ObjectPage, Observation, ObserveError, Outcome, Read, Reads, ReconcileEnd,
    Room as _,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::Tolerate;
use coxswain_machinery::model::{Failure, Key, Plan, Step};
use coxswain_machinery::wire::splice::{put_bytes, put_varint_field};
use coxswain_machinery::wire::{Message as _, Str, Value};
use std::time::Duration;

fn key() -> Key {
    Key::new("", "m")
}

fn room(migration: &StorageVersionMigration, positions: &Positions) -> Migrator {
    let migrations = Lister::new(store(std::slice::from_ref(migration)));
    Migrator { migrations, positions: positions.clone() }
}

fn observed(
    migration: &StorageVersionMigration,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<MigratorView>, ObserveError> {
    room(migration, &Positions::default()).observe(&key(), failures, read)
}

fn planned(view: Result<Observation<MigratorView>, ObserveError>) -> Plan<Note> {
    match view.unwrap() {
        Observation::View(view) => {
            assert!(!Migrator::reasons(&view, now()).is_empty());
            Migrator::plan(&view, now())
        }
        other => panic!("{other:?}"),
    }
}

fn page(objects: Vec<AnyObject>, next: &str) -> ObjectPage {
    ObjectPage { objects: objects.into(), next: next.into(), resource_version: "999".into() }
}

/// As it is when the first page holds these.
fn listed(objects: Vec<AnyObject>, next: &str) -> Reads {
    Reads::default().with_resources(Ok(api(vec![things()]))).with_page(page_from(""), Ok(page(objects, next)))
}

const SUCCEEDED: &str = "update storageversionmigrations.storagemigration.k8s.io/status m: \
    Running True \"\" \"\" before 0, Succeeded True \"StorageVersionMigrationSucceeded\" \"\" now 0 at \"100\"";

fn failed(why: &str) -> Vec<String> {
    let why = format!("migration encountered unhandled error: {why}");
    vec![format!(
        "update storageversionmigrations.storagemigration.k8s.io/status m: Running True \"\" \"\" before 0, \
         Failed True \"StorageVersionMigrationFailed\" {why:?} now 0 at \"100\""
    )]
}

fn patch(name: &str, version: &str) -> String {
    let uid = object(name, version).meta().uid.to_string();
    format!(
        r#"patch things.example.com ns/{name}: storage-version-migrator-controller applies {{"apiVersion":"example.com/v2","kind":"Thing","metadata":{{"uid":"{uid}","resourceVersion":"{version}"}}}}"#
    )
}

#[test]
fn objects_of_before_are_patched_without_content_and_newer_ones_are_not() {
    let objects = vec![object("a", "99"), object("b", "100"), object("c", "101"), object("d", "3")];
    let plan = planned(observed(&begun("100"), &[], &listed(objects, "")));
    let expected = [patch("a", "99"), patch("b", "100"), patch("d", "3"), SUCCEEDED.to_owned()];
    assert_eq!(written(&plan), expected);
    let patches = plan.writes().take(3);
    let tolerated = Tolerate { conflict: true, ..Tolerate::default() };
    assert!(patches.into_iter().all(|write| write.tolerate == tolerated), "a conflict, and no other refusal");
    assert!(plan.note.is_none() && plan.requeue_after.is_none());
}

/// An encoded object of version 1 with a field of metadata that has this value.
fn with_field(name: &str, number: u32, value: Value<'_>) -> Bytes {
    let metadata = object(name, "1").meta().clone();
    let mut metadata = metadata.to_bytes();
    match value {
        Value::Bytes(bytes) => put_bytes(&mut metadata, number, bytes),
        _ => put_varint_field(&mut metadata, number, 1),
    }
    let mut whole = Vec::new();
    put_bytes(&mut whole, 1, &metadata);
    whole.into()
}

#[test]
fn objects_of_any_bytes_and_those_that_cannot_be_decoded_are_patched_like_others() {
    let read = |objects: &[Bytes]| {
        let mut list = ObjectList::default();
        for object in objects {
            list.add(kind(), object);
        }
        let page = ObjectPage { objects: list, next: Str::EMPTY, resource_version: "999".into() };
        Reads::default().with_resources(Ok(api(vec![things()]))).with_page(page_from(""), Ok(page))
    };
    // Annotations, finalizers, finalizers that are a number.
    let bytes = with_field("a", 12, Value::Bytes(b"\x0a\x01a\x12\x01\xff"));
    let held = with_field("b", 14, Value::Bytes(b"\xff"));
    let malformed = with_field("c", 14, Value::Varint(1));
    let plan = planned(observed(&begun("100"), &[], &read(&[bytes.clone(), held, malformed])));
    assert_eq!(written(&plan), [patch("a", "1"), patch("b", "1"), patch("c", "1"), SUCCEEDED.to_owned()]);
    // One that nobody can name is not passed over.
    let error = observed(&begun("100"), &[], &read(&[bytes, Bytes::from_static(b"\xff")])).unwrap_err();
    assert!(matches!(&error, ObserveError::Retry(_)), "{error:?}");
}

#[test]
fn one_is_patched_alone_and_the_others_a_few_at_a_time() {
    let objects = (0..20).map(|at| object(&format!("o{at}"), "1")).collect();
    let plan = planned(observed(&begun("100"), &[], &listed(objects, "")));
    assert_eq!(plan.steps.iter().map(Step::len).collect::<Vec<_>>(), [1, 8, 8, 3, 1]);
}

#[test]
fn a_page_is_followed_by_the_next_at_once_and_the_last_by_success() {
    let positions = Positions::default();
    let migration = begun("100");
    let plan = planned(observed(&migration, &[], &listed(vec![object("a", "1")], "on")));
    assert_eq!(written(&plan), [patch("a", "1")]);
    assert_eq!((plan.requeue_after, plan.retry.is_none()), (Some(Duration::ZERO), true));
    positions.commit(&key(), plan.note);
    // It goes on from there.
    let read = listed(Vec::new(), "");
    let needs = room(&migration, &positions).observe(&key(), &[], &read).unwrap();
    let Observation::Needs(reads) = needs else { panic!("{needs:?}") };
    assert_eq!(reads, [Read::Page(page_from("on"))]);
    let read = read.with_page(page_from("on"), Ok(page(vec![object("b", "1")], "")));
    let plan = planned(room(&migration, &positions).observe(&key(), &[], &read));
    assert_eq!(written(&plan), [patch("b", "1"), SUCCEEDED.to_owned()]);
    // A migration of the same name that was made anew begins at the beginning.
    let mut anew = migration.clone();
    anew.metadata.uid = "another".into();
    assert_eq!(positions.page(&key(), &anew.metadata.uid), "");
    positions.commit(&key(), plan.note);
    assert_eq!(positions.page(&key(), &migration.metadata.uid), "");
}

#[test]
fn a_position_is_forgotten_with_its_migration() {
    let positions = Positions::default();
    let uid = begun("1").metadata.uid;
    positions.commit(&key(), Some(Position { uid: uid.clone(), page: "on".into() }));
    for (outcome, page) in [(Outcome::Waiting(&STORAGE_VERSION_MIGRATIONS), "on"), (Outcome::Absent, "")] {
        let end = ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO };
        positions.ended(&key(), end);
        assert_eq!(positions.page(&key(), &uid), page);
    }
}

#[test]
fn a_position_that_the_server_has_forgotten_is_gone_on_from_all_the_same() {
    let positions = Positions::default();
    let migration = begun("100");
    let position = Position { uid: migration.metadata.uid.clone(), page: "old".into() };
    positions.commit(&key(), Some(position));
    let observe = |read: &Reads| room(&migration, &positions).observe(&key(), &[], read);
    let needs = |read: &Reads| match observe(read).unwrap() {
        Observation::Needs(reads) => reads,
        other => panic!("{other:?}"),
    };
    let known = || Reads::default().with_resources(Ok(api(vec![things()])));
    let expired = |next| Err(refusal(410, "Expired", next));
    let read = known().with_page(page_from("old"), expired("new"));
    assert_eq!(needs(&read), [Read::Page(page_from("new"))]);
    let read = read.with_page(page_from("new"), expired("newer"));
    assert_eq!(needs(&read), [Read::Page(page_from(""))], "twice is enough");
    // One that does not say where leaves but the beginning, and one that is refused there is no page.
    let read = known().with_page(page_from("old"), expired(""));
    assert_eq!(needs(&read), [Read::Page(page_from(""))]);
    let read = read.with_page(page_from(""), expired("new"));
    assert!(matches!(observe(&read), Err(ObserveError::Retry(_))));
}

#[test]
fn only_one_that_knows_its_version_and_has_not_ended_is_worked_on() {
    let mut over = begun("100");
    over.status.conditions = migration("m", 1, &["Running True", "Succeeded True"]).status.conditions;
    assert!(is_terminal(&over));
    let read = listed(vec![object("a", "1")], "");
    for migration in [migration("m", 100, &["Running True"]), over] {
        assert!(matches!(observed(&migration, &[], &read), Ok(Observation::Nothing)), "{migration:?}");
    }
    // Whether it is its turn does not matter any more.
    let mut idle = begun("100");
    idle.status.conditions.clear();
    assert!(matches!(observed(&idle, &[], &read), Ok(Observation::View(_))));
}

fn failure(code: u16, reason: &str) -> Failure {
    Failure {
        what: String::new(),
        verb: "patch",
        subresource: "",
        kind: kind(),
        key: Key::new("ns", "a"),
        code,
        reason: reason.into(),
        message: format!("answered {code}"),
        existing: None,
    }
}

#[test]
fn refusals_end_it_and_what_the_server_could_not_do_is_tried_again() {
    let table = [
        (403, "Forbidden", true),
        (404, "NotFound", true),
        (422, "Invalid", true),
        (400, "BadRequest", true),
        (409, "AlreadyExists", true),
        (429, "TooManyRequests", false),
        (500, "InternalError", false),
        (500, "ServerTimeout", false),
        (503, "ServiceUnavailable", false),
        (504, "Timeout", false),
        (400, "Timeout", false),
        (0, "", false),
    ];
    for (code, reason, ends) in table {
        let failures = [failure(504, "Timeout"), failure(code, reason)];
        assert_eq!(is_refusal(&failures[1]), ends, "{code} {reason}");
        let seen = observed(&begun("100"), &failures, &Reads::default());
        if ends {
            let plan = planned(seen);
            assert!(plan.end, "it is the end of it");
            assert_eq!(written(&plan), failed(&format!("answered {code}")));
        } else {
            assert!(matches!(seen, Ok(Observation::Nothing)), "{code} {reason}: {seen:?}");
        }
    }
    // That its own status could not be written says nothing about an object.
    let own = Failure { verb: "update", kind: &STORAGE_VERSION_MIGRATIONS, ..failure(422, "Invalid") };
    assert!(matches!(observed(&begun("100"), &[own], &Reads::default()), Ok(Observation::Nothing)));
}

#[test]
fn a_resource_that_went_is_waited_for_a_minute() {
    let gone = || {
        let read = Reads::default().with_resources(Ok(api(Vec::new())));
        read.with_latest_resources(Ok(api(Vec::new())))
    };
    let mut young = begun("100");
    young.metadata.creation_timestamp = migration("m", 59, &[]).metadata.creation_timestamp;
    let plan = planned(observed(&young, &[], &gone()));
    assert!(plan.is_empty() && plan.retry.is_some() && plan.quiet && plan.note.is_none());
    let plan = planned(observed(&begun("100"), &[], &gone()));
    assert!(!plan.end, "a write of it that fails is tried again");
    assert_eq!(written(&plan), failed("unable to obtain GVR from discovery"));
}

#[test]
fn objects_whose_versions_can_not_be_compared_end_it() {
    let plan = planned(observed(&begun("100"), &[], &listed(vec![object("a", "1"), object("b", "x")], "")));
    assert_eq!(
        written(&plan),
        failed("error comparing resource versions: \"x\" is not a positive number"),
        "and none of them is patched"
    );
}

proptest! {
    /// Of whatever there is, each object that is not newer is patched once, in order.
    #[test]
    fn what_is_due_is_patched_once(versions in prop::collection::vec(1_u64..200, 0..60), began in 1_u64..200) {
        let objects: Vec<AnyObject> = versions
            .iter()
            .enumerate()
            .map(|(at, version)| object(&format!("o{at}"), &version.to_string()))
            .collect();
        let page = Page { kind: kind(), objects: objects.clone(), after: Str::EMPTY, next: Str::EMPTY };
        let due: Vec<String> =
            due(&page, &began.to_string()).unwrap().iter().map(|meta| meta.name.to_string()).collect();
        let expected: Vec<String> = objects
            .iter()
            .zip(&versions)
            .filter(|(_, version)| **version <= began)
            .map(|(object, _)| object.meta().name.to_string())
            .collect();
        prop_assert_eq!(&due, &expected);
        let migration = Arc::new(begun(&began.to_string()));
        let plan = planned(observed(&migration, &[], &listed(objects, "on")));
        let patched: Vec<String> = plan.writes().map(|write| write.key.name.to_string()).collect();
        prop_assert_eq!(patched, expected);
    }
}
