//! The room as the framework sees it: what it watches, which keys changes concern, its page.

use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use parking_lot::Mutex;

use super::super::*;
use super::fixtures::*;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::executor::Finishers;
use coxswain_machinery::framework::{CacheSource, Pass, Read, RoomMetrics};
use coxswain_machinery::informer::Store;
use coxswain_machinery::options::Config;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Str;

struct Room {
    watches: Arc<dyn DynamicRoom>,
    built: Built,
    page: PageHandler,
}

fn room() -> Room {
    let (watches, page) = (Mutex::new(None), Mutex::new(None));
    let built = build(&Build {
        config: &Config::default(),
        gate: &|_| true,
        root_ca: None,
        finishers: &Finishers::default(),
        zones: &coxswain_machinery::zones::Zones::bundled(),
        caches: CacheSource::new(&|kind, _| Arc::new(Store::new(kind))),
        dynamic: &|room| {
            *watches.lock() = Some(room);
            Arc::default()
        },
        debug: &|handler| *page.lock() = Some(handler),
        metrics: &RoomMetrics::new(Registry::new()),
        discovered: None,
    });
    Room { built: built.unwrap(), watches: watches.into_inner().unwrap(), page: page.into_inner().unwrap() }
}

impl Room {
    fn see(&self, meta: &ObjectMeta) -> Vec<(String, String)> {
        self.told(Delta { old: None, new: Some(&partial(meta)), initial: false, resync: false })
    }

    fn lose(&self, meta: &ObjectMeta) -> Vec<(String, String)> {
        self.told(Delta { old: Some(&partial(meta)), new: None, initial: false, resync: false })
    }

    fn told(&self, delta: Delta<'_>) -> Vec<(String, String)> {
        let mut told = Vec::new();
        self.watches.changed(&THING, delta, &mut |queue, key| told.push((queue.to_owned(), key.to_string())));
        told
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let answer = (self.page)(Request::get(path).body(body).unwrap()).await;
        let status = answer.status();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }
}

fn to_delete(meta: &ObjectMeta) -> Vec<(String, String)> {
    vec![("garbage_collector_attempt_to_delete".to_owned(), meta.uid.to_string())]
}

#[test]
fn it_watches_what_can_be_deleted_without_events() {
    let room = room();
    let resource = |group: &str, name: &str, verbs: &[&str]| ApiResource {
        group: group.into(),
        resource: name.into(),
        verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
        ..ApiResource::default()
    };
    let all = ["delete", "list", "watch"];
    assert!(room.watches.wants(&resource("", "pods", &all)));
    assert!(room.watches.wants(&resource("example.com", "events", &all)));
    assert!(!room.watches.wants(&resource("", "events", &all)));
    assert!(!room.watches.wants(&resource("events.k8s.io", "events", &all)));
    assert!(!room.watches.wants(&resource("metrics.k8s.io", "pods", &["get", "list"])));
    let loops: Vec<_> = room.built.loops.iter().map(|each| (each.queue, each.settings.workers)).collect();
    let both = ["garbage_collector_attempt_to_delete", "garbage_collector_attempt_to_orphan"];
    assert_eq!(loops, both.map(|queue| (queue, 20)));
    // Versions of an aggregated API server may not be comparable.
    assert!(room.built.loops.iter().all(|each| each.settings.longest_wait.is_some()));
    assert_eq!(
        room.built.loops[0].settings.qps_factor,
        QpsFactor { qps: 2.0, burst: 1 },
        "it may read what it deletes"
    );
}

#[test]
fn it_is_skipped_when_it_is_switched_off() {
    let mut config = Config::default();
    config.flags.enable_garbage_collector = false;
    let built = build(&Build {
        config: &config,
        gate: &|_| true,
        root_ca: None,
        finishers: &Finishers::default(),
        zones: &coxswain_machinery::zones::Zones::bundled(),
        caches: CacheSource::new(&|kind, _| Arc::new(Store::new(kind))),
        dynamic: &|_| Arc::default(),
        debug: &|_| {},
        metrics: &RoomMetrics::new(Registry::new()),
        discovered: None,
    });
    assert!(matches!(built, Err(BuildError::Skipped(why)) if why.contains("enable-garbage-collector")));
}

#[test]
fn changes_become_keys() {
    let room = room();
    let owner = object("owner").at(3);
    let dependent = object("dependent").owned_by(&THING, &owner);
    assert_eq!(room.see(&dependent), to_delete(&owner), "it is looked for");
    assert_eq!(room.see(&owner), []);
    assert_eq!(room.lose(&owner.clone().at(4)), to_delete(&dependent));
    let keeper = object("keeper").orphaning();
    assert_eq!(
        room.see(&keeper),
        [("garbage_collector_attempt_to_orphan".to_owned(), "uid-keeper".to_owned())]
    );
    let mut told = Vec::new();
    room.watches.forgotten(&THING, &mut |queue, key| told.push((queue.to_owned(), key.to_string())));
    assert_eq!(told, [], "nobody is left who would refer to anyone");
}

#[test]
fn an_owner_whose_kind_is_not_known_yet_is_looked_for_again() {
    let room = room();
    let dependent = object("dependent").owned_by(&THING, &object("owner"));
    let _ = room.see(&dependent);
    let attempts = &room.built.loops[0].reconcile;
    let key = Key::new("", dependent.uid.to_str());
    let read = Reads::default().with_object(&THING, Key::of(&dependent), Ok(Some(partial(&dependent))));
    let pass = attempts.plan(&key, &[], &read, Timestamp::UNIX_EPOCH);
    let Ok(Pass::Plan(plan, _)) = pass else { panic!("{pass:?}") };
    assert!(plan.is_empty() && plan.retry.is_some_and(|why| why.contains("not discovered yet")));
}

#[test]
fn an_object_that_is_not_what_was_observed_any_more_is_read() {
    let room = room();
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = (room.see(&owner), room.see(&dependent), room.lose(&owner.at(4)));
    let attempts = &room.built.loops[0].reconcile;
    let key = Key::new("", dependent.uid.to_str());
    let refused = |verb: &'static str, kind: &'static Kind, code: u16| {
        let failure = Failure {
            what: format!("{verb} a/dependent"),
            verb,
            subresource: "",
            kind,
            key: Key::of(&dependent),
            code,
            reason: Str::EMPTY,
            message: String::new(),
            existing: None,
        };
        attempts.plan(&key, &[failure], &Reads::default(), Timestamp::UNIX_EPOCH)
    };
    let pass = refused("delete", &THING, 409);
    let Ok(Pass::Needs(needs)) = pass else { panic!("{pass:?}") };
    assert_eq!(needs, [Read::Object(&THING, Key::of(&dependent))]);
    assert!(
        matches!(refused("patch", &THING, 422), Ok(Pass::Needs(_))),
        "so is one whose patch does not fit"
    );
    for (verb, kind, code) in [("delete", &THING, 422), ("delete", &THING, 500), ("patch", &THING, 500)] {
        let pass = refused(verb, kind, code);
        assert!(matches!(pass, Ok(Pass::Nothing)), "{verb} {code} is tried again later: {pass:?}");
    }
}

/// Nothing else tells that it is gone: no watch has shown it, and it is read after up to 1,000 seconds.
#[test]
fn owner_that_a_first_list_lacks_is_looked_for_at_once() {
    let sync_errors = IntCounter::new("errors", "Errors.").unwrap();
    let hub = Hub { graph: Mutex::default(), unseen: Mutex::default(), sync_errors };
    let [owner, other] = ["owner", "other"].map(object);
    let (one, two) = (object("one").owned_by(&GADGET, &owner), object("two").owned_by(&THING, &other).at(7));
    for dependent in [&one, &two] {
        hub.graph.lock().observe(&THING, dependent, &mut AffectedObjects::default());
    }
    for unseen in [&owner, &other] {
        hub.unseen.lock().add(&Key::new("", unseen.uid.to_str()));
    }
    let synced = |kind| {
        let mut told = Vec::new();
        hub.synced(kind, &mut |queue, key| told.push((queue.to_owned(), key.to_string())));
        told
    };
    assert_eq!(synced(&GADGET), to_delete(&owner), "the other one is a Thing");
    hub.graph.lock().observe(&GADGET, &owner, &mut AffectedObjects::default());
    assert_eq!(synced(&GADGET), [], "the list has it");
}

#[tokio::test]
async fn the_graph_is_shown_whole_or_in_part() {
    let room = room();
    let owner = object("owner");
    let _ = (room.see(&owner), room.see(&object("one").owned_by(&THING, &owner)), room.see(&object("other")));
    let (status, whole) = room.get("/graph").await;
    assert_eq!(status, StatusCode::OK);
    assert!(whole.contains("uid-owner") && whole.contains("uid-other"), "{whole}");
    let (_, part) = room.get("/graph?uid=uid-one&uid=nobody").await;
    assert!(part.contains("uid-owner") && !part.contains("uid-other"), "{part}");
    assert_eq!(room.get("/").await.0, StatusCode::NOT_FOUND);
}

#[test]
fn garbage_collector_measures_the_time_for_which_an_unseen_owner_is_known() {
    let sync_errors = IntCounter::new("errors", "Errors.").unwrap();
    let hub = Arc::new(Hub { graph: Mutex::default(), unseen: Mutex::default(), sync_errors });
    let memory = Absences { hub: Arc::clone(&hub), watches: Arc::default(), searches: true };
    let key = Key::new("", "uid");
    let at = |millis: u64| {
        let time = SteadyTime::default().plus(Duration::from_millis(millis));
        hub.unseen.lock().clock = SteadyClock::stopped_at(time);
    };
    let known_for = || hub.unseen.lock().known_for(&key).as_millis();
    let found = |is_unseen: bool| memory.commit(&key, Found { is_unseen, ..Found::default() });
    // Each new dependent causes a read.
    for millis in [0, 200, 400, 600, 800, 1000] {
        at(millis);
        assert_eq!(known_for(), u128::from(millis));
        found(true);
    }
    at(31_000);
    assert_eq!(known_for(), 31_000);
    memory.commit(&key, Found { is_unknown: true, ..Found::default() });
    assert_eq!(known_for(), 31_000, "a read that fails shows nothing");
    found(false);
    assert_eq!(known_for(), 0);
    found(true);
    at(32_000);
    assert_eq!(known_for(), 1000);
    let end = ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO };
    memory.ended(&key, end);
    assert_eq!(known_for(), 0);
}

/// Both loops have keys of the same UID if an orphaning owner went out of sight.
#[test]
fn attempt_to_orphan_ends_no_search_for_an_unseen_owner() {
    let sync_errors = IntCounter::new("errors", "Errors.").unwrap();
    let hub = Arc::new(Hub { graph: Mutex::default(), unseen: Mutex::default(), sync_errors });
    let owner = object("owner");
    let key = Key::new("", owner.uid.to_str());
    let dependent = object("dependent").owned_by(&THING, &owner);
    hub.graph.lock().observe(&THING, &dependent, &mut AffectedObjects::default());
    hub.unseen.lock().add(&key);
    let turn = SearchTurn { listed: Some(hub.graph.lock().owners(&dependent.uid)), ..SearchTurn::default() };
    hub.graph.lock().record_turn(&owner.uid, turn);
    let end = |searches: bool| {
        let memory = Absences { hub: Arc::clone(&hub), watches: Arc::default(), searches };
        memory.commit(&key, Found::default());
        memory.ended(&key, ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO });
        (hub.graph.lock().search(&owner.uid).is_some(), hub.unseen.lock().since.contains_key(&key))
    };
    assert_eq!(end(false), (true, true));
    assert_eq!(end(true), (false, false));
}
