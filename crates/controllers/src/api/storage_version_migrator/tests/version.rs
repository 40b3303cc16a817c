//! The version of the present state, and what stands against having one.

use super::super::Versions;
use super::super::plan::version::is_comparable;
use super::fixtures::*;
use coxswain_machinery::api::system::StorageVersionMigration;
use coxswain_machinery::framework::{
    ApiError, ApiResources, DiscoveryError, ObjectPage, Observation, ObserveError, PageQuery, Read, Reads,
    Room as _,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Key, Plan};
use coxswain_machinery::wire::Str;
use std::sync::Arc;

fn observed(
    migration: &StorageVersionMigration,
    read: &Reads,
) -> Result<Observation<<Versions as coxswain_machinery::framework::Room>::View>, ObserveError> {
    let room = Versions { migrations: Lister::new(store(std::slice::from_ref(migration))) };
    room.observe(&Key::new("", "m"), &[], read)
}

fn planned(migration: &StorageVersionMigration, read: &Reads) -> Plan {
    match observed(migration, read).unwrap() {
        Observation::View(view) => {
            assert!(!Versions::reasons(&view, now()).is_empty());
            Versions::plan(&view, now())
        }
        other => panic!("{other:?}"),
    }
}

fn needs(migration: &StorageVersionMigration, read: &Reads) -> Vec<Read> {
    match observed(migration, read).unwrap() {
        Observation::Needs(reads) => reads.into_iter().map(Read::from).collect(),
        other => panic!("{other:?}"),
    }
}

fn running(age: i64) -> StorageVersionMigration {
    migration("m", age, &["Running True"])
}

/// What is asked for the version.
fn query(namespace: &str) -> PageQuery {
    PageQuery { kind: kind(), namespace: namespace.into(), limit: 1, after: Str::EMPTY }
}

fn listed(found: Result<&str, ApiError>) -> Reads {
    let page = found.map(|version| ObjectPage { resource_version: version.into(), ..ObjectPage::default() });
    Reads::default().with_resources(Ok(api(vec![things()]))).with_page(query("@fake:svm_ns!"), page)
}

/// The status of a migration that has failed for this reason.
fn failed(why: &str) -> Vec<String> {
    vec![format!(
        "update storageversionmigrations.storagemigration.k8s.io/status m: Running True \"\" \"\" before 0, \
         Failed True \"StorageVersionMigrationFailed\" {why:?} now 0 at \"\""
    )]
}

#[test]
fn the_version_is_that_of_an_empty_list_made_now() {
    let read = Reads::default().with_resources(Ok(api(vec![things()])));
    assert_eq!(needs(&running(5), &read), [Read::Page(query("@fake:svm_ns!"))]);
    let mut everywhere = things();
    everywhere.namespaced = false;
    everywhere.resource = "clusterthings".into();
    let mut of_cluster = running(5);
    of_cluster.spec.resource.resource = "clusterthings".into();
    let read = Reads::default().with_resources(Ok(api(vec![everywhere.clone()])));
    let all = PageQuery { kind: everywhere.metadata_kind(), ..query("") };
    assert_eq!(needs(&of_cluster, &read), [Read::Page(all)]);
    assert_eq!(
        written(&planned(&running(5), &listed(Ok("1234")))),
        [
            "update storageversionmigrations.storagemigration.k8s.io/status m: Running True \"\" \"\" before 0 at \"1234\""
        ]
    );
}

#[test]
fn versions_that_can_not_be_compared_end_it() {
    for (version, comparable) in [
        ("1", true),
        ("18446744073709551615", true),
        ("0", false),
        ("012", false),
        ("", false),
        ("+1", false),
        ("x", false),
    ] {
        assert_eq!(is_comparable(version), comparable, "{version}");
    }
    let why = "latest resourceVersion for example.com/v2, Resource=things is not valid: \"012\" is not a positive number";
    assert_eq!(written(&planned(&running(5), &listed(Ok("012")))), failed(why));
}

#[test]
fn only_one_that_runs_and_has_none_is_given_one() {
    let mut knows = running(5);
    knows.status.resource_version = "3".into();
    let idle = [
        migration("m", 5, &[]),
        migration("m", 5, &["Running False"]),
        migration("m", 5, &["Running True", "Failed True"]),
        migration("m", 5, &["Running True", "Succeeded True"]),
        knows,
    ];
    for migration in idle {
        assert!(matches!(observed(&migration, &listed(Ok("1"))), Ok(Observation::Nothing)), "{migration:?}");
    }
}

#[test]
fn a_resource_is_waited_for_a_minute() {
    let unknown = || Reads::default().with_resources(Ok(api(Vec::new())));
    assert_eq!(needs(&running(5), &Reads::default()), [Read::Resources]);
    assert_eq!(needs(&running(5), &unknown()), [Read::LatestResources]);
    let absent = || unknown().with_latest_resources(Ok(api(Vec::new())));
    for age in [0, 59] {
        let plan = planned(&running(age), &absent());
        assert!(plan.is_empty() && plan.retry.is_some() && plan.quiet, "{plan:?}");
    }
    assert_eq!(written(&planned(&running(60), &absent())), failed("resource does not exist in discovery"));
    // What is there by now is found.
    let came = unknown().with_latest_resources(Ok(api(vec![things()])));
    assert_eq!(needs(&running(60), &came), [Read::Page(query("@fake:svm_ns!"))]);
}

#[test]
fn what_can_not_be_found_out_is_no_absence() {
    let source = refusal(503, "ServiceUnavailable", "");
    // What is made for tests is all of the group without a name.
    let mut of_core = running(600);
    of_core.spec.resource.group = "".into();
    let unknown = DiscoveryError::Stale { group_version: "v1".to_owned() };
    let partly = || Ok(Arc::new(ApiResources::of(vec![things()], vec![unknown.clone()])));
    let read = Reads::default().with_resources(partly()).with_latest_resources(partly());
    assert!(matches!(observed(&of_core, &read), Err(ObserveError::Retry(_))));
    let failed = Reads::default().with_resources(Err(source));
    assert!(matches!(observed(&running(600), &failed), Err(ObserveError::Retry(_))));
    for code in [403, 429, 500] {
        let unlisted = listed(Err(refusal(code, "", "")));
        assert!(matches!(observed(&running(600), &unlisted), Err(ObserveError::Retry(_))), "{code}");
    }
}

#[test]
fn a_resource_that_has_gone_is_looked_for_once_more() {
    let gone = || listed(Err(refusal(404, "NotFound", "")));
    assert_eq!(needs(&running(600), &gone()), [Read::LatestResources]);
    let absent = gone().with_latest_resources(Ok(api(Vec::new())));
    assert_eq!(written(&planned(&running(600), &absent)), failed("resource does not exist in discovery"));
    let there = gone().with_latest_resources(Ok(api(vec![things()])));
    assert!(matches!(observed(&running(600), &there), Err(ObserveError::Retry(_))));
}

#[test]
fn what_can_not_be_listed_patched_and_updated_fails_at_once() {
    let why = "resource \"example.com/v2, Resource=things\" does not support discovery operations: [update patch list]";
    for verbs in [&["list", "patch"][..], &["update", "list"], &["update", "patch", "watch"], &[]] {
        let read = Reads::default().with_resources(Ok(api(vec![resource(verbs)])));
        assert_eq!(written(&planned(&running(0), &read)), failed(why), "{verbs:?}");
    }
}
