//! Tables of the plan, on reads that are made by hand.

use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::system::{ServerStorageVersion, StorageVersionCondition};
use coxswain_machinery::framework::{ApiError, Read};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Step, Write};
use coxswain_machinery::wire::{Message as _, Str, Time};
use proptest::prelude::*;

const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn entry(server: &str, version: &str) -> ServerStorageVersion {
    ServerStorageVersion { api_server_id: server.into(), encoding_version: version.into() }
}

/// With these entries, `SERVER VERSION` each, a field in the object and one in each entry that nobody here has heard of, and
/// the common version and condition that fit.
fn version(entries: &[&str]) -> Arc<StorageVersion> {
    let mut version = StorageVersion::default();
    version.metadata.name = "example.com.things".into();
    version.metadata.uid = "uid".into();
    version.metadata.resource_version = "7".into();
    version.metadata.generation = 3;
    let entries = entries.iter().map(|entry| entry.split_once(' ').unwrap());
    version.status.storage_versions = entries.map(|(server, version)| entry(server, version)).collect();
    let common = plan::common(&version.status.storage_versions).cloned();
    let status = if common.is_some() { "True" } else { "False" };
    version.status.common_encoding_version = common;
    version.status.conditions =
        vec![condition("Other", "True"), condition("AllEncodingVersionsEqual", status)];
    kept(&version)
}

fn condition(kind: &str, status: &str) -> StorageVersionCondition {
    StorageVersionCondition {
        r#type: kind.into(),
        status: status.into(),
        last_transition_time: Time::from_seconds(5),
        ..StorageVersionCondition::default()
    }
}

/// As it would be cached.
fn kept(version: &StorageVersion) -> Arc<StorageVersion> {
    let mut bytes = version.to_bytes();
    bytes.extend([0xfa, 0x3f, 1, b'x']);
    downcast((STORAGE_VERSIONS.decode)(&bytes.into()).unwrap()).unwrap()
}

fn lease(name: &str, namespace: &str, labels: &[(&str, &str)]) -> AnyObject {
    let mut lease = PartialObjectMetadata::default();
    lease.metadata.name = name.into();
    lease.metadata.namespace = namespace.into();
    lease.metadata.labels = labels.iter().copied().collect();
    Arc::new(lease)
}

fn of_server(name: &str) -> AnyObject {
    lease(name, NAMESPACE, &[IDENTITY])
}

fn key() -> Key {
    Key::new("", "example.com.things")
}

fn at(lease: &str) -> Key {
    Key::new(NAMESPACE, lease)
}

/// What is left when these have gone: the object that is written.
fn left(version: &Arc<StorageVersion>, gone: &[&str]) -> StorageVersion {
    let view =
        VersionView { version: Arc::clone(version), gone: gone.iter().map(|name| (*name).into()).collect() };
    let plan = Versions::plan(&view, now());
    let write = plan.writes().next().unwrap();
    assert_eq!(
        write.to_string(),
        "update storageversions.internal.apiserver.k8s.io/status example.com.things"
    );
    assert!(plan.retry.is_none() && plan.writes().count() == 1);
    let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
    assert!(bytes.ends_with(&[0xfa, 0x3f, 1, b'x']), "what is unknown stays");
    let written: Arc<StorageVersion> = downcast((STORAGE_VERSIONS.decode)(bytes).unwrap()).unwrap();
    assert_eq!(written.metadata, version.metadata);
    (*written).clone()
}

fn servers(version: &StorageVersion) -> Vec<&str> {
    version.status.storage_versions.iter().map(|entry| entry.api_server_id.as_str()).collect()
}

#[test]
fn entries_of_those_that_are_gone_leave_and_others_stay_in_order() {
    let held = version(&["c v1", "gone v1", "a v1", "gone v2", "b v1"]);
    let written = left(&held, &["gone"]);
    assert_eq!(servers(&written), ["c", "a", "b"]);
    assert_eq!(written.status.conditions[0], condition("Other", "True"), "of others");
    assert_eq!(servers(&left(&held, &["gone", "a"])), ["c", "b"]);
}

#[test]
fn what_is_derived_follows_from_what_is_left() {
    let said = |version: &StorageVersion| {
        let held = version.status.conditions.iter().find(|held| held.r#type == "AllEncodingVersionsEqual");
        let held = held.unwrap();
        assert_eq!(held.observed_generation, 3);
        let [reason, message] = match held.status.as_str() {
            "True" => ["CommonEncodingVersionSet", "Common encoding version set"],
            _ => ["CommonEncodingVersionUnset", "Common encoding version unset"],
        };
        assert_eq!((held.reason.as_str(), held.message.as_str()), (reason, message));
        let common = version.status.common_encoding_version.clone();
        (common.as_ref().map(ToString::to_string), held.last_transition_time.unwrap().seconds())
    };
    let set = |version: &str| Some(version.to_owned());
    let table = [
        ("the odd one leaves", &["a v1", "gone v2"][..], set("v1"), NOW),
        ("they agree as before", &["a v1", "gone v1"], set("v1"), 5),
        ("they differ as before", &["a v1", "b v2", "gone v1"], None, 5),
    ];
    for (what, entries, common, since) in table {
        assert_eq!(said(&left(&version(entries), &["gone"])), (common, since), "{what}");
    }
    // What was derived may be of another time.
    let mut old = (*version(&["a v2", "gone v2"])).clone();
    old.status.common_encoding_version = Some("v1".into());
    assert_eq!(said(&left(&kept(&old), &["gone"])), (set("v2"), NOW), "one version replaces another");
    let mut differs = (*version(&["a v1", "b v2", "gone v1"])).clone();
    differs.status.common_encoding_version = Some("v1".into());
    differs.status.conditions = vec![condition("AllEncodingVersionsEqual", "True")];
    assert_eq!(said(&left(&kept(&differs), &["gone"])), (None, NOW));
    let mut silent = (*version(&["a v1", "gone v1"])).clone();
    silent.status.conditions.clear();
    assert_eq!(said(&left(&kept(&silent), &["gone"])), (set("v1"), NOW), "it is new");
}

#[test]
fn an_object_of_which_nothing_is_left_is_deleted() {
    let view = VersionView { version: version(&["gone v1", "gone v2"]), gone: vec!["gone".into()] };
    let plan = Versions::plan(&view, now());
    let [Step::Write(Write { verb: Verb::Delete { uid, resource_version, .. }, tolerate, .. })] =
        &plan.steps[..]
    else {
        panic!("{plan:?}")
    };
    assert!(*uid == "uid" && resource_version.as_deref() == Some("7") && tolerate.absent);
    let nothing = VersionView { version: version(&["a v1"]), gone: Vec::new() };
    assert!(Versions::plan(&nothing, now()).is_empty());
}

fn versions_room(cached: &Arc<StorageVersion>, leases: &[AnyObject]) -> Versions {
    let [versions, held] = [&STORAGE_VERSIONS, &IDENTITY_LEASES].map(|kind| Arc::new(Store::new(kind)));
    versions.upsert(&(Arc::clone(cached) as AnyObject));
    for lease in leases {
        held.upsert(lease);
    }
    Versions { versions: Lister::new(versions), leases: Lister::new(held) }
}

fn refused() -> ApiError {
    ApiError::Timeout { request: "GET it".to_owned(), after: std::time::Duration::from_secs(1) }
}

#[test]
fn live_leases_decide_and_one_that_cannot_be_read_takes_nothing_away() {
    let held = version(&["a v1", "b v1", "c v1"]);
    let room = versions_room(&held, &[of_server("a")]);
    let gone = |read: &Reads| match room.observe(&key(), &[], read).unwrap() {
        Observation::View(view) => view.gone.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let asked = |read: &Reads| match room.observe(&key(), &[], read).unwrap() {
        Observation::Needs(reads) => reads,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(&Reads::default()), [Read::Object(&STORAGE_VERSIONS, key())]);
    let live = |entries: &[&str]| {
        let live = version(entries) as AnyObject;
        Reads::default().with_object(&STORAGE_VERSIONS, key(), Ok(Some(live)))
    };
    let of = |names: &[&str]| {
        names.iter().map(|name| Read::Object(&IDENTITY_LEASES, at(name))).collect::<Vec<_>>()
    };
    assert_eq!(asked(&live(&["a v1", "d v1", "d v2"])), of(&["a", "d"]), "those that it names now");
    let with = |read: Reads, name: &str, found| read.with_object(&IDENTITY_LEASES, at(name), found);
    let read = with(live(&["a v1", "b v1", "c v1"]), "a", Ok(None));
    let read = with(read, "b", Ok(Some(lease("b", NAMESPACE, &[]))));
    let read = with(read, "c", Ok(Some(of_server("c"))));
    assert_eq!(gone(&read), ["a", "b"], "one has none, one is of somebody else");
    let other = lease("b", NAMESPACE, &[(IDENTITY.0, "kube-scheduler")]);
    assert_eq!(gone(&with(read, "b", Ok(Some(other)))), ["a", "b"]);
    let read = with(live(&["a v1"]), "a", Err(refused()));
    let error = room.observe(&key(), &[], &read).unwrap_err();
    assert!(
        matches!(&error, ObserveError::Retry(why) if why.contains("live read of lease kube-system/a failed"))
    );
    let gone = Reads::default().with_object(&STORAGE_VERSIONS, key(), Ok(None));
    assert!(matches!(room.observe(&key(), &[], &gone).unwrap(), Observation::Nothing));
}

#[test]
fn while_the_caches_know_nobody_who_is_gone_nothing_is_read() {
    let observed = |entries: &[&str], leases: &[AnyObject]| {
        versions_room(&version(entries), leases).observe(&key(), &[], &Reads::default()).unwrap()
    };
    let is_settled = |observation: Observation<VersionView>| matches!(observation, Observation::View(view) if view.gone.is_empty());
    assert!(is_settled(observed(&["a v1", "b v1"], &[of_server("a"), of_server("b")])));
    assert!(is_settled(observed(&[], &[])), "nothing is invalid in one without entries");
    for stranger in [lease("a", NAMESPACE, &[]), lease("a", "elsewhere", &[IDENTITY])] {
        assert!(matches!(observed(&["a v1"], &[stranger]), Observation::Needs(_)));
    }
    let room = versions_room(&version(&[]), &[]);
    assert!(matches!(
        room.observe(&Key::new("", "x"), &[], &Reads::default()).unwrap(),
        Observation::Nothing
    ));
}

#[test]
fn a_lease_that_is_gone_takes_its_entries_from_all_objects() {
    let key = Key::new("", "gone");
    let observed = |read: &Reads| Leases.observe(&key, &[], read);
    let needs = |read: &Reads| match observed(read).unwrap() {
        Observation::Needs(reads) => reads,
        other => panic!("{other:?}"),
    };
    assert_eq!(needs(&Reads::default()), [Read::Object(&IDENTITY_LEASES, at("gone"))]);
    let absent = || Reads::default().with_object(&IDENTITY_LEASES, at("gone"), Ok(None));
    assert_eq!(needs(&absent()), [Read::List(&STORAGE_VERSIONS, Str::EMPTY)]);
    let named = |name: &str, entries: &[&str]| {
        let mut version = (*version(entries)).clone();
        version.metadata.name = name.into();
        kept(&version) as AnyObject
    };
    let all = vec![named("x", &["gone v1", "a v1"]), named("y", &["a v1"]), named("z", &["gone v1"])];
    let read = absent().with_list(&STORAGE_VERSIONS, Str::EMPTY, Ok(all));
    let Observation::View(view) = observed(&read).unwrap() else { panic!() };
    let plan = Leases::plan(&view, now());
    let [Step::Each(writes)] = &plan.steps[..] else { panic!("{plan:?}") };
    let writes: Vec<String> = writes.iter().map(ToString::to_string).collect();
    let kind = "storageversions.internal.apiserver.k8s.io";
    assert_eq!(writes, [format!("update {kind}/status x"), format!("delete {kind} z")]);
    assert!(reasons::of_lease(&view)[0].contains("are removed from x and z"));

    // One that came back saves its entries, whoever has it.
    for back in [of_server("gone"), lease("gone", NAMESPACE, &[])] {
        let read = Reads::default().with_object(&IDENTITY_LEASES, at("gone"), Ok(Some(back)));
        let Observation::View(view) = observed(&read).unwrap() else { panic!() };
        assert!(Leases::plan(&view, now()).is_empty());
        assert!(reasons::of_lease(&view)[0].contains("exists; "));
    }
    let read = Reads::default().with_object(&IDENTITY_LEASES, at("gone"), Err(refused()));
    assert!(matches!(observed(&read), Err(ObserveError::Retry(_))));
    let read = absent().with_list(&STORAGE_VERSIONS, Str::EMPTY, Err(refused()));
    assert!(matches!(observed(&read), Err(ObserveError::Retry(_))));
}

#[test]
fn only_the_end_of_an_api_servers_lease_wakes() {
    let woken = |old: Option<AnyObject>, new: Option<AnyObject>| {
        let mut keys = Vec::new();
        let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
        servers_that_left()(delta, &mut |key| keys.push(key.to_string()));
        keys
    };
    assert_eq!(woken(Some(of_server("a")), None), ["a"]);
    assert_eq!(woken(Some(of_server("a")), Some(of_server("a"))), [""; 0]);
    assert_eq!(woken(None, Some(of_server("a"))), [""; 0]);
    assert_eq!(woken(Some(lease("a", NAMESPACE, &[])), None), [""; 0]);
    assert_eq!(woken(Some(lease("a", NAMESPACE, &[(IDENTITY.0, "x")])), None), [""; 0]);
    assert_eq!(woken(Some(lease("a", "elsewhere", &[IDENTITY])), None), [""; 0]);
}

#[test]
fn it_says_who_is_gone() {
    let said = |entries: &[&str], gone: &[&str]| {
        let view =
            VersionView { version: version(entries), gone: gone.iter().map(|name| (*name).into()).collect() };
        Versions::reasons(&view, now()).join(" ")
    };
    assert!(said(&["a v1"], &[]).contains("all entries are kept"));
    assert!(said(&["a v1", "b v1"], &["b"]).starts_with("b has no Lease"));
    assert!(said(&["a v1", "b v1"], &["a", "b"]).contains("a and b have no Lease"));
    assert!(said(&["a v1"], &["a"]).contains("so the StorageVersion is deleted"));
}

proptest! {
    /// Exactly the entries of those that are gone leave, and what is derived is true of the rest.
    #[test]
    fn exactly_those_leave_that_are_gone(
        entries in prop::collection::vec((0..4_u8, 0..3_u8), 0..8),
        gone in prop::collection::vec(0..4_u8, 1..4),
    ) {
        let texts: Vec<String> = entries.iter().map(|(server, version)| format!("s{server} v{version}")).collect();
        let held = version(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let names: Vec<Str> = gone.iter().map(|server| Str::from(format!("s{server}"))).collect();
        let view = VersionView { version: held, gone: names };
        let plan = Versions::plan(&view, now());
        let rest: Vec<&(u8, u8)> = entries.iter().filter(|(server, _)| !gone.contains(server)).collect();
        let write = plan.writes().next().unwrap();
        match &write.verb {
            Verb::Delete { .. } => prop_assert!(rest.is_empty()),
            Verb::Update(bytes) => {
                let written: Arc<StorageVersion> = downcast((STORAGE_VERSIONS.decode)(bytes).unwrap()).unwrap();
                let expected: Vec<_> =
                    rest.iter().map(|(server, version)| entry(&format!("s{server}"), &format!("v{version}"))).collect();
                prop_assert_eq!(&written.status.storage_versions, &expected);
                let is_one = rest.iter().all(|(_, version)| *version == rest[0].1);
                prop_assert_eq!(written.status.common_encoding_version.is_some(), is_one);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
