//! Which documents are read, and how long they are kept.

use serde_json::json;

use super::super::documents::{Learned, is_silence, title};
use super::super::existing;
use super::fixtures::{INDEX, World, about_webs, index, policy, refused, rule, with_params};
use coxswain_machinery::framework::{ApiError, ApiResource, Observation, ObserveError, Reads, RequestUri};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;
use std::sync::Arc;
use std::time::Duration;

const WEB: &str = "/apis/example.com/v1";

#[test]
fn what_a_check_needs_is_read_and_nothing_else() {
    let read = |policy| World::of(&[policy]).reconciled().1;
    let (resources, latest, index) = (vec!["Resources"], vec!["LatestResources"], vec![INDEX]);
    assert_eq!(read(about_webs(&["true"])), [resources.clone(), index.clone(), vec![WEB]]);
    let both = policy(vec![rule(&["example.com", ""], &["v1", "v2"], &["webs", "caches"])], &["true"]);
    let documents = vec!["/api/v1", WEB, "/apis/example.com/v2"];
    assert_eq!(read(both), [resources.clone(), latest.clone(), index.clone(), documents]);
    let params = with_params(about_webs(&["true"]), "v1", "Cache");
    assert_eq!(read(params), [resources.clone(), index.clone(), vec![WEB, "/api/v1"]]);
    let unknown = policy(vec![rule(&["example.com"], &["v1"], &["nonsenses"])], &["true"]);
    assert_eq!(read(unknown), [resources, latest], "without a kind there is nothing to look up");
    let nothing = [
        policy(vec![rule(&["*"], &["v1"], &["webs"])], &["true"]),
        policy(vec![rule(&["example.com"], &["v1"], &["webs"])], &[]),
    ];
    for policy in nothing {
        assert!(read(policy).is_empty());
    }
    let mut checked = about_webs(&["true"]);
    checked.status.observed_generation = 1;
    assert!(read(checked).is_empty());
}

#[test]
fn what_was_just_installed_is_found() {
    let mut world = World::of(&[policy(vec![rule(&["late.io"], &["v1"], &["webs"])], &["true"])]);
    world.installed.push(ApiResource {
        group: "late.io".into(),
        version: "v1".into(),
        kind: "Web".into(),
        resource: "webs".into(),
        ..ApiResource::default()
    });
    let view = world.reconciled().0.unwrap().unwrap();
    assert_eq!(view.kinds.len(), 1);
    assert!(view.kinds[0].1.is_none(), "it has no document yet");
}

#[test]
fn a_document_is_read_again_when_its_hash_has_changed() {
    let mut world = World::of(&[about_webs(&["true"])]);
    assert_eq!(world.committed().last().unwrap(), &[WEB]);
    assert_eq!(world.committed().last().unwrap(), &[INDEX], "the index says that it is the same");
    world.hash = "2";
    assert_eq!(world.committed().last().unwrap(), &[WEB]);
    assert_eq!(world.committed().last().unwrap(), &[INDEX]);
    assert_eq!(
        world.room.library.versions(),
        ["apis/example.com/v1"],
        "the one takes the place of the other"
    );
    assert!(world.room.library.bytes() > 0 && world.room.library.bytes() < 4096);
}

#[test]
fn a_document_that_the_index_no_longer_lists_is_removed() {
    let world = World::of(&[about_webs(&["true"])]);
    world.committed();
    let library = &world.room.library;
    assert_eq!(library.unlisted(&index("2")), Vec::<String>::new());
    for malformed in [json!(null), json!({}), json!({ "paths": null }), json!({ "paths": [] })] {
        assert_eq!(library.unlisted(&malformed), Vec::<String>::new(), "{malformed}");
    }
    let unlisted = library.unlisted(&json!({ "paths": { "apis/apps/v1": {} } }));
    assert_eq!(unlisted, ["apis/example.com/v1"]);
    coxswain_machinery::framework::Memory::commit(
        &**library,
        &Key::new("", "a"),
        Learned { unlisted, ..Learned::default() },
    );
    assert!(library.versions().is_empty());
}

#[test]
fn documents_go_with_the_last_policy() {
    let world = World::of(&[about_webs(&["true"])]);
    world.committed();
    let wakes = existing(Arc::clone(&world.room.library));
    let mut woken = Vec::new();
    let policy = world.store.get(&Key::new("", "a")).unwrap();
    let mut other = about_webs(&["true"]);
    other.metadata.name = "b".into();
    world.put(&other);
    let gone = Delta { old: Some(&policy), new: None, initial: false, resync: false };
    world.store.remove(&policy);
    wakes(gone, &mut |key| woken.push(key));
    assert_eq!(world.room.library.versions().len(), 1, "there is another");
    let last = world.store.get(&Key::new("", "b")).unwrap();
    world.store.remove(&last);
    wakes(Delta { old: Some(&last), new: None, initial: false, resync: false }, &mut |key| woken.push(key));
    assert!(world.room.library.versions().is_empty());
    assert!(woken.is_empty(), "nobody is woken by what is gone");
    wakes(Delta { old: None, new: Some(&policy), initial: false, resync: false }, &mut |key| woken.push(key));
    assert_eq!(woken, [Key::new("", "a")]);

    // One that goes while it is checked.
    let world = World::of(&[about_webs(&["true"])]);
    let (_, learned) = world.planned().into_parts();
    world.store.remove(&world.store.get(&Key::new("", "a")).unwrap());
    coxswain_machinery::framework::Memory::commit(&*world.room.library, &Key::new("", "a"), learned);
    assert!(world.room.library.versions().is_empty());
}

#[test]
fn what_is_not_to_be_had_is_left_out_and_who_does_not_answer_is_asked_again() {
    let about_jobs = || policy(vec![rule(&["batch"], &["v1"], &["jobs"])], &["object.spec.nonsense == 1"]);
    for (code, is_left_out) in [(404, true), (403, true), (406, true), (500, true), (503, true), (429, false)]
    {
        let mut world = World::of(&[about_jobs()]);
        world.failure = code;
        match world.reconciled().0 {
            Ok(Some(view)) => assert!(is_left_out && view.kinds[0].1.is_none(), "{code}"),
            Err(ObserveError::Retry(why)) => {
                assert!(!is_left_out && why.contains("/openapi/v3/apis/batch/v1"), "{code}: {why}");
            }
            other => panic!("{code}: {other:?}"),
        }
    }
    let malformed = ApiError::Malformed { request: String::new(), what: String::new() };
    let timeout = ApiError::Timeout { request: String::new(), after: Duration::from_secs(1) };
    assert_eq!([&malformed, &timeout, &refused(500)].map(is_silence), [false, true, false]);
}

#[test]
fn without_discovery_or_an_index_nothing_is_said() {
    let world = World::of(&[about_webs(&["true"])]);
    let observed = |reads: Reads| world.observed(&reads).unwrap_err();
    let resources = Arc::new(super::fixtures::resources());
    let silent = observed(Reads::default().with_resources(Err(refused(500))));
    assert_eq!(silent, ObserveError::Retry("live read of API resources failed: no".to_owned()));
    let silent = observed(
        Reads::default()
            .with_resources(Ok(resources))
            .with_json(RequestUri::openapi_index(), Err(refused(404))),
    );
    assert_eq!(silent, ObserveError::Retry("live read of the OpenAPI index failed: no".to_owned()));
    assert!(matches!(World::of(&[]).observed(&Reads::default()), Ok(Observation::Nothing)));
}

#[test]
fn titles_are_what_the_index_says() {
    let web = title(&index("7"), "example.com", "v1").unwrap();
    assert_eq!(web.address, "/openapi/v3/apis/example.com/v1?hash=7");
    assert_eq!(web.path(), "/openapi/v3/apis/example.com/v1");
    assert_eq!(title(&index("7"), "", "v1").unwrap().path(), "/openapi/v3/api/v1");
    assert_eq!(title(&index("7"), "example.com", "v9"), None);
    for other in [
        json!(null),
        json!({ "paths": { "api/v1": {} } }),
        json!({ "paths": { "api/v1": { "serverRelativeURL": "x" } } }),
    ] {
        assert_eq!(title(&other, "", "v1"), None, "{other}");
    }
}
