//! Informers against a scripted API server, in paused time.

mod epochs;
mod outages;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::{Encoder, TextEncoder};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::fixture::{
    Answer, Asked, PODS, Script, bookmark, damaged, encoded, error_event, event, frame, object, of_bytes,
    page, refusal, until,
};
use super::{Deliveries, Delta, Informers, InformersConfig, ListWatch};
use crate::api::AnyObject;
use crate::api::meta::ObjectMeta;
use crate::client::{FieldSelector, ListQuery};
use crate::model::Key;
use crate::telemetry::Registry;
use crate::wire::text::{held_text, raw_bytes};

fn informers<S: ListWatch>(script: &Arc<S>, watch_list: bool) -> Informers {
    informers_in(script, watch_list, &Registry::new())
}

fn informers_in<S: ListWatch>(script: &Arc<S>, watch_list: bool, registry: &Registry) -> Informers {
    let source: Arc<dyn ListWatch> = Arc::<S>::clone(script);
    let config = InformersConfig { watch_list, ..InformersConfig::default() };
    Informers::new(source, config, Handle::current(), registry).unwrap()
}

fn names(store: &super::Store) -> Vec<String> {
    let describe = |object: AnyObject| format!("{}@{}", object.meta().name, object.meta().resource_version);
    let mut names: Vec<_> = store.list().into_iter().map(describe).collect();
    names.sort();
    names
}

/// What a handler hears, as `+a@1`, `~a@2`, `-a@3`.
fn recorder() -> (super::EventHandler, Arc<Mutex<Vec<String>>>) {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&log);
    let handler = Arc::new(move |delta: Delta<'_>| {
        let sign = match (delta.old, delta.new) {
            _ if delta.resync => '=',
            (None, _) => '+',
            (Some(_), Some(_)) => '~',
            (Some(_), None) => '-',
        };
        let meta = delta.latest().unwrap().meta();
        heard.lock().push(format!("{sign}{}@{}", meta.name, meta.resource_version));
    });
    (handler, log)
}

fn watch_versions(script: &Script) -> Vec<String> {
    let version = |asked: Asked| match asked {
        Asked::List(query) => format!(
            "list rv={:?} limit={:?} continue={:?}",
            query.resource_version, query.limit, query.continue_token
        ),
        Asked::Watch(query) if query.send_initial_events => "stream".to_owned(),
        Asked::Watch(query) => format!("watch {}", query.resource_version),
    };
    script.asked().into_iter().map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_fills_the_store_and_the_watch_goes_on_in_it() {
    let (feed, live) = mpsc::channel(8);
    let script = Script::new([Answer::Live(live)]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    for chunk in [event("ADDED", "a", 3), event("ADDED", "b", 5)] {
        feed.send(chunk).await.unwrap();
    }
    until("two objects are collected", || handle.stats().collecting == 2).await;
    assert!(handle.store().is_empty(), "nothing shows before the list is complete");
    assert_eq!(handle.store().resource_version(), "");
    assert!(!handle.has_synced());

    feed.send(bookmark(7, true)).await.unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(names(handle.store()), ["a@3", "b@5"]);
    assert_eq!(handle.store().resource_version(), "7");

    for chunk in [event("MODIFIED", "a", 8), event("DELETED", "b", 9), bookmark(20, false)] {
        feed.send(chunk).await.unwrap();
    }
    until("the bookmark arrives", || handle.store().resource_version() == "20").await;
    assert_eq!(names(handle.store()), ["a@8"]);
    let mut heard = log.lock().clone();
    heard[..2].sort();
    assert_eq!(heard, ["+a@3", "+b@5", "~a@8", "-b@9"]);
    assert!(handle.stats().watch_age.is_some());
    assert_eq!(informers.problems(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pages_are_collected_and_the_watch_begins_at_the_lists_version() {
    let (_feed, live) = mpsc::channel(1);
    let script = Script::new([
        Answer::Error(refusal(422, "Invalid", None)),
        Answer::Page(page(vec![encoded("a", 1)], 9, "more")),
        Answer::Page(page(vec![encoded("b", 2)], 9, "")),
        Answer::Live(live),
    ]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, Some("spec.nodeName=n"));
    handle.wait_synced().await.unwrap();
    until("the watch is open", || script.asked().len() == 4).await;
    assert_eq!(names(handle.store()), ["a@1", "b@2"]);
    assert_eq!(
        watch_versions(&script),
        [
            "stream",
            r#"list rv=Some("0") limit=Some(500) continue=None"#,
            r#"list rv=None limit=Some(500) continue=Some("more")"#,
            "watch 9"
        ]
    );
    let selector = |asked| match asked {
        Asked::List(ListQuery { field_selector, .. }) => field_selector,
        Asked::Watch(query) => {
            assert!((300..=600).contains(&query.timeout_seconds));
            query.field_selector
        }
    };
    assert!(
        script
            .asked()
            .into_iter()
            .all(|asked| selector(asked) == Some(FieldSelector::fixed("spec.nodeName=n")))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_goes_on_where_it_was_a_hundred_times_without_a_list() {
    let script = Script::new([Answer::Cut(vec![bookmark(1, true)])]);
    for version in 2..=100 {
        let whole = event("MODIFIED", "a", version);
        // Every second connection breaks in the middle of the next event.
        let next = event("MODIFIED", "a", version + 1);
        let cut = next.slice(..next.len() / 2);
        script.push(Answer::Cut(if version % 2 == 0 { vec![whole, cut] } else { vec![whole] }));
    }
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    until("all events arrive", || handle.store().resource_version() == "100").await;
    let expected: Vec<String> =
        (2..=100).map(|at| format!("{}a@{at}", if at == 2 { '+' } else { '~' })).collect();
    assert_eq!(*log.lock(), expected, "each event once and in order");
    assert_eq!(handle.stats().relists, 0);
    let asked = watch_versions(&script);
    assert_eq!(asked[0], "stream");
    assert!((1..=99).all(|at| asked[at] == format!("watch {at}")));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_by_either_route_relists_and_tells_of_what_was_missed() {
    for in_stream in [true, false] {
        let (_feed, live) = mpsc::channel(1);
        let expiry = if in_stream {
            Answer::Watch(vec![error_event(410, "Expired")])
        } else {
            Answer::Error(refusal(410, "Gone", None))
        };
        let script = Script::new([
            Answer::Watch(vec![event("ADDED", "kept", 1), event("ADDED", "gone", 2), bookmark(3, true)]),
            expiry,
            Answer::Watch(vec![event("ADDED", "kept", 1), event("ADDED", "new", 8), bookmark(9, true)]),
            Answer::Live(live),
        ]);
        let informers = informers(&script, true);
        let handle = informers.acquire(PODS, None);
        let (handler, log) = recorder();
        let _registration = handle.add_handler("test", handler);
        handle.wait_synced().await.unwrap();
        let kept = handle.store().get(&Key::new("ns", "kept")).unwrap();
        until("the second list", || handle.stats().relists == 1).await;
        assert_eq!(names(handle.store()), ["kept@1", "new@8"]);
        assert_eq!(log.lock()[2..], ["-gone@2", "+new@8"]);
        let after = handle.store().get(&Key::new("ns", "kept")).unwrap();
        assert!(Arc::ptr_eq(&kept, &after), "what did not change is not replaced");
        until("the watch", || script.asked().len() == 4).await;
        assert_eq!(watch_versions(&script), ["stream", "watch 3", "stream", "watch 9"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lists_token_that_expires_is_followed_by_one_list_of_everything() {
    let script = Script::new([
        Answer::Page(page(vec![encoded("old", 1)], 5, "t")),
        Answer::Error(refusal(410, "Expired", None)),
        Answer::Page(page(vec![encoded("new", 7)], 8, "")),
    ]);
    let informers = informers(&script, false);
    let handle = informers.acquire(PODS, None);
    handle.wait_synced().await.unwrap();
    assert_eq!(names(handle.store()), ["new@7"]);
    assert_eq!(watch_versions(&script)[2], "list rv=None limit=None continue=None");
}

#[tokio::test(start_paused = true)]
async fn the_server_is_given_the_time_that_it_asks_for() {
    let script = Script::new([
        Answer::Error(refusal(429, "TooManyRequests", Some(20))),
        Answer::Error(refusal(500, "InternalError", None)),
        Answer::Error(refusal(500, "InternalError", None)),
        Answer::Watch(vec![bookmark(1, true)]),
    ]);
    let informers = informers(&script, true);
    informers.acquire(PODS, None).wait_synced().await.unwrap();
    let pauses = script.pauses();
    assert!((20..=40).contains(&pauses[0].as_secs()), "{pauses:?}");
    assert_eq!(pauses[1], Duration::ZERO, "a list follows the stream");
    assert!((1600..=3200).contains(&pauses[2].as_millis()), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_reported_and_stops_nobody() {
    let (feed, live) = mpsc::channel(8);
    let script = Script::new([Answer::Live(live)]);
    let registry = Registry::new();
    let informers = informers_in(&script, true, &registry);
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    let chunks = [
        frame("ADDED", "Pod", &damaged("never-read", 1)),
        event("ADDED", "a", 2),
        bookmark(3, true),
        frame("MODIFIED", "Pod", &damaged("a", 4)),
        event("ADDED", "b", 5),
    ];
    for chunk in chunks {
        feed.send(chunk).await.unwrap();
    }
    until("b is there", || handle.store().resource_version() == "5").await;
    assert_eq!(names(handle.store()), ["a@2", "b@5"], "the last readable state is kept");
    assert_eq!(handle.stats().unreadable, 2);
    assert!(informers.problems()[0].contains("2 objects cannot be decoded"), "{:?}", informers.problems());
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("coxswain_informer_unreadable_total{group=\"\",resource=\"pods\",version=\"v1\"} 2"),
        "{text}"
    );
    assert!(text.contains("informer_processing_latency_seconds_count"), "{text}");
    assert!(text.contains("informer_queued_items{group=\"\",name=\"kube-controller-manager\",resource=\"pods\",version=\"v1\"} 0"), "{text}");

    let chunks = [
        event("MODIFIED", "a", 6),
        frame("DELETED", "Pod", &damaged("never-read", 7)),
        frame("DELETED", "Pod", &damaged("b", 8)),
    ];
    for chunk in chunks {
        feed.send(chunk).await.unwrap();
    }
    until("b is gone", || handle.store().resource_version() == "8").await;
    assert_eq!(names(handle.store()), ["a@6"]);
    assert_eq!(informers.problems(), Vec::<String>::new(), "well again");
    assert_eq!(*log.lock(), ["+a@2", "+b@5", "~a@6", "-b@5"]);
}

#[tokio::test(start_paused = true)]
async fn series_of_a_custom_kind_end_with_its_last_informer() {
    let kind = crate::api::dynamic::kind("informers.test", "v1", "Foo", "foos", true);
    let answers = [(); 3].map(|()| Answer::Watch(vec![event("ADDED", "a", 1), bookmark(2, true)]));
    let (script, registry) = (Script::new(answers), Registry::new());
    let informers = informers_in(&script, true, &registry);
    let one = informers.acquire(kind, None);
    let other = informers.acquire(kind, Some("metadata.name=a"));
    let pods = informers.acquire(PODS, None);
    for handle in [&one, &other, &pods] {
        handle.wait_synced().await.unwrap();
    }
    let has_series = |resource: &str| {
        let label = format!("resource=\"{resource}\"");
        crate::telemetry::encode_text(&registry).lines().any(|line| line.contains(&label))
    };
    one.release().await;
    assert!(has_series("foos"), "the other informer counts there");
    other.release().await;
    assert!(!has_series("foos"));
    pods.release().await;
    assert!(has_series("pods"), "counters of a built-in kind go on when its informer starts again");
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_event_break_the_stream_not_the_informer() {
    let garbage = Bytes::from_static(b"\0\0\0\x03\xff\xff\xff");
    let (_feed, live) = mpsc::channel(1);
    let script = Script::new([
        Answer::Watch(vec![event("ADDED", "a", 1), bookmark(2, true), garbage.clone()]),
        Answer::Watch(vec![garbage.clone()]),
        Answer::Watch(vec![garbage]),
        Answer::Watch(vec![event("ADDED", "a", 1), event("ADDED", "b", 3), bookmark(4, true)]),
        Answer::Live(live),
    ]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    until("the watch after the second list", || script.asked().len() == 5).await;
    assert_eq!(watch_versions(&script), ["stream", "watch 2", "watch 2", "stream", "watch 4"]);
    assert_eq!(names(handle.store()), ["a@1", "b@3"]);
}

/// A list and a watch that each have one object of bytes.
fn with_bytes(objects: [Bytes; 2]) -> [Arc<Script>; 2] {
    let [listed, changed] = objects;
    let rest = || [frame("MODIFIED", "Pod", &changed), event("MODIFIED", "a", 4), event("ADDED", "b", 5)];
    let initial =
        [event("ADDED", "a", 1), frame("ADDED", "Pod", &listed), event("ADDED", "z", 1), bookmark(2, true)];
    let streamed = Script::new([Answer::Watch(initial.into_iter().chain(rest()).collect())]);
    let items = vec![encoded("a", 1), listed.clone(), encoded("z", 1)];
    let paged = Script::new([Answer::Page(page(items, 2, "")), Answer::Watch(rest().into())]);
    [streamed, paged]
}

#[tokio::test(start_paused = true)]
async fn an_object_of_any_bytes_is_cached_and_stops_nobody() {
    let name = [b'r', 0xff, 0xc3].as_slice();
    let [listed, changed] = ["1", "3"].map(|version| of_bytes(name, version));
    let held = &*held_text(name);
    for (script, watch_list) in with_bytes([listed, changed]).iter().zip([true, false]) {
        let informers = informers(script, watch_list);
        let handle = informers.acquire(PODS, None);
        until("b is there", || handle.store().resource_version() == "5").await;
        assert_eq!(names(handle.store()), ["a@4", "b@5", &format!("{held}@3"), "z@1"]);
        let found = handle.store().find(held, held).expect("found by the text form of its bytes");
        assert_eq!(*raw_bytes(&found.meta().uid.to_str()), *name);
        assert_eq!(*raw_bytes(found.meta().labels.get(held).unwrap()), *name);
        assert_eq!(informers.problems(), Vec::<String>::new());
        assert_eq!(handle.stats().unreadable, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_name_or_a_head_is_reported_and_stops_nobody() {
    // Without a name; with metadata that ends in its name; without metadata.
    let cut = |name_of: u8| Bytes::from(vec![10, 4, 50, 1, b'3', name_of]);
    let others: [[Bytes; 2]; 3] = [
        [encoded("", 1), encoded("", 3)],
        [cut(10), cut(10)],
        [Bytes::from_static(b"\xff\xff"), Bytes::from_static(b"\xff\xff")],
    ];
    for objects in others {
        for (script, watch_list) in with_bytes(objects.clone()).iter().zip([true, false]) {
            let informers = informers(script, watch_list);
            let handle = informers.acquire(PODS, None);
            until("b is there", || handle.store().resource_version() == "5").await;
            assert_eq!(names(handle.store()), ["a@4", "b@5", "z@1"]);
            assert_eq!(handle.stats().unreadable, 1, "{objects:?}");
            let asked = if watch_list {
                vec!["stream"]
            } else {
                vec!["list rv=Some(\"0\") limit=Some(500) continue=None", "watch 2"]
            };
            assert_eq!(watch_versions(script)[..asked.len()], asked, "one list is enough");
            assert!(script.asked().iter().all(|asked| !matches!(asked, Asked::Watch(query) if query.resource_version.is_empty() && !query.send_initial_events)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_nobody_knows_what_is_made_up_for_by_one_list() {
    let (_feed, live) = mpsc::channel(1);
    let deletion = frame("DELETED", "Pod", b"\xff\xff");
    let script = Script::new([
        Answer::Watch(vec![
            event("ADDED", "a", 1),
            event("ADDED", "b", 1),
            bookmark(2, true),
            deletion.clone(),
        ]),
        Answer::Watch(vec![deletion.clone()]),
        Answer::Watch(vec![deletion]),
        Answer::Watch(vec![event("ADDED", "a", 1), bookmark(4, true)]),
        Answer::Live(live),
    ]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    until("the watch after the second list", || script.asked().len() == 5).await;
    assert_eq!(names(handle.store()), ["a@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_cut_and_opened_again() {
    let (silent, live) = mpsc::channel(1);
    let (feed, second) = mpsc::channel(1);
    let script = Script::new([Answer::Live(live), Answer::Live(second)]);
    silent.send(bookmark(1, true)).await.unwrap();
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    feed.send(event("ADDED", "a", 2)).await.unwrap();
    until("the event of the second watch", || handle.store().len() == 1).await;
    assert_eq!(watch_versions(&script), ["stream", "watch 1"]);
    let silence = script.pauses()[0].as_secs();
    assert!((330..=640).contains(&silence), "{silence} s");
}

#[tokio::test(start_paused = true)]
async fn handles_share_an_informer_and_the_last_one_ends_it() {
    let (feed, live) = mpsc::channel(1);
    let script = Script::new([Answer::Live(live)]);
    let informers = informers(&script, true);
    let first = informers.acquire(PODS, None);
    let second = informers.acquire(PODS, None);
    assert!(Arc::ptr_eq(first.store(), second.store()));
    feed.send(bookmark(1, true)).await.unwrap();
    second.wait_synced().await.unwrap();
    let store = Arc::downgrade(first.store());
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!feed.is_closed(), "one handle is left");
    drop(second);
    feed.closed().await;
    until("the memory is freed", || store.strong_count() == 0).await;
    assert!(informers.stats().is_empty());
}

/// A watch of some objects need not show what was written.
#[tokio::test(start_paused = true)]
async fn who_writes_tells_whoever_watches_all_objects_of_the_resource() {
    let informers = informers(&Script::new([]), true);
    let (all, some) = (informers.acquire(PODS, None), informers.acquire(PODS, Some("metadata.name=x")));
    let [of_all, of_some] = [&all, &some].map(|handle| {
        let deliveries = Deliveries::new(Duration::from_secs(10));
        handle.store().tell(&deliveries);
        deliveries
    });
    let written = ObjectMeta { resource_version: "5".into(), ..ObjectMeta::default() };
    informers.wrote(PODS, &written);
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(9)).await;
        all.store().bookmark("4");
        some.store().bookmark("4");
    }
    assert_eq!(of_all.covered().silent_for, Some(Duration::from_secs(18)), "it counts to the first bookmark");
    assert_eq!(of_some.covered().silent_for, None);
}

#[tokio::test(start_paused = true)]
async fn different_selectors_are_different_informers() {
    let script = Script::new([]);
    let informers = informers(&script, true);
    let all = informers.acquire(PODS, None);
    let some = informers.acquire(PODS, Some("metadata.name=x"));
    let labeled = informers.acquire_selected(PODS, Some(FieldSelector::name("x")), Some("a=b"));
    assert!(!Arc::ptr_eq(all.store(), some.store()) && !Arc::ptr_eq(some.store(), labeled.store()));
    assert_eq!(informers.stats().len(), 3);
    until("all ask", || script.asked().len() == 3).await;
    let selectors = script.asked().into_iter().map(|asked| match asked {
        Asked::Watch(query) => (query.field_selector, query.label_selector),
        Asked::List(query) => panic!("a stream was expected: {query:?}"),
    });
    let selectors: std::collections::BTreeSet<_> = selectors.collect();
    let field = || Some(FieldSelector::fixed("metadata.name=x"));
    assert_eq!(selectors, [(None, None), (field(), None), (field(), Some("a=b".to_owned()))].into());
}

#[tokio::test(start_paused = true)]
async fn shutdown_joins_everything_and_waiters_hear_of_it() {
    let informers = informers(&Script::new([]), true);
    let handle = informers.acquire(PODS, None);
    let (waited, ()) = tokio::join!(handle.wait_synced(), informers.shutdown());
    assert!(waited.is_err());
    assert!(!handle.has_synced());
    let late = informers.acquire(PODS, Some("metadata.name=late"));
    assert!(late.wait_synced().await.is_err(), "nothing starts after the end");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_task_is_contained_and_the_informer_starts_again() {
    let (_feed, live) = mpsc::channel(1);
    let script = Script::new([
        Answer::Watch(vec![event("ADDED", "a", 1), bookmark(2, true)]),
        Answer::Panic,
        Answer::Watch(vec![event("ADDED", "b", 3), bookmark(4, true)]),
        Answer::Live(live),
    ]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    until("it is back", || handle.store().resource_version() == "4").await;
    assert_eq!(*log.lock(), ["+a@1", "-a@1", "+b@3"]);
    let stats = handle.stats();
    assert_eq!(stats.restarts, 1);
    assert!(stats.last_error.unwrap().contains("a bug in the source"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_reported_and_the_others_go_on() {
    let script = Script::new([Answer::Watch(vec![event("ADDED", "a", 1), bookmark(2, true)])]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    let bad = handle.add_handler("bad", Arc::new(|_| panic!("a bug in the handler")));
    let (handler, log) = recorder();
    let _good = handle.add_handler("good", handler);
    handle.wait_synced().await.unwrap();
    assert_eq!(*log.lock(), ["+a@1"]);
    assert_eq!(
        informers.problems(),
        ["pods: the handler of bad panicked 1 times; last panic: a bug in the handler"]
    );
    drop(bad);
    assert_eq!(informers.problems(), Vec::<String>::new());
    assert_eq!(handle.stats().handlers, 1);
}

/// An old state serves while a watch fails, none at all holds up all that reads it.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_not_filled_is_a_problem_soon_and_by_name() {
    // Each stream opens, and so is answered, and none comes to its end; nor is there a list.
    let fails = [
        || Answer::Watch(vec![error_event(500, "InternalError")]),
        || Answer::Error(refusal(500, "InternalError", None)),
    ];
    let script = Script::new(fails.iter().cycle().take(16).map(|fail| fail()));
    script.push(Answer::Watch(vec![bookmark(1, true)]));
    let begun = tokio::time::Instant::now();
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    assert_eq!(informers.problem_of(PODS, None), None, "a start takes its time");
    until("it is reported", || informers.problem_of(PODS, None).is_some()).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    let problem = informers.problem_of(PODS, None).unwrap();
    assert!(
        problem.starts_with("pods: not synced for 1") && problem.contains("500 InternalError"),
        "{problem}"
    );
    assert_eq!(informers.problem_of(PODS, Some("spec.nodeName=a")), None, "that one does not run");
    handle.wait_synced().await.unwrap();
    assert_eq!(informers.problem_of(PODS, None), None);
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_is_a_problem_until_it_is_over() {
    let (feed, live) = mpsc::channel(1);
    let script = Script::new((0..20).map(|_| Answer::Error(refusal(503, "ServiceUnavailable", None))));
    script.push(Answer::Live(live));
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    until("it is reported", || !informers.problems().is_empty()).await;
    assert!(informers.problems()[0].contains("503 ServiceUnavailable"), "{:?}", informers.problems());
    feed.send(bookmark(1, true)).await.unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(informers.problems(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_resync_tells_of_everything_between_one_and_two_periods() {
    let (feed, live) = mpsc::channel(1);
    let script = Script::new([Answer::Live(live)]);
    let source: Arc<dyn ListWatch> = Arc::<Script>::clone(&script);
    let config =
        InformersConfig { min_resync_period: Duration::from_secs(100), ..InformersConfig::default() };
    let informers = Informers::new(source, config, Handle::current(), &Registry::new()).unwrap();
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    feed.send([event("ADDED", "a", 1), bookmark(2, true)].concat().into()).await.unwrap();
    handle.wait_synced().await.unwrap();
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert_eq!(*log.lock(), ["+a@1"]);
    tokio::time::sleep(Duration::from_secs(101)).await;
    assert_eq!(*log.lock(), ["+a@1", "=a@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_hears_of_what_is_there_and_a_dropped_one_of_nothing() {
    let (feed, live) = mpsc::channel(1);
    let script = Script::new([Answer::Live(live)]);
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    feed.send([event("ADDED", "a", 1), bookmark(2, true)].concat().into()).await.unwrap();
    handle.wait_synced().await.unwrap();
    let (handler, log) = recorder();
    let registration = handle.add_handler("test", handler);
    assert_eq!(*log.lock(), ["+a@1"]);
    drop(registration);
    feed.send(event("MODIFIED", "a", 3)).await.unwrap();
    until("it changed", || handle.store().resource_version() == "3").await;
    assert_eq!(log.lock().len(), 1);
    assert_eq!(handle.store().get(&Key::new("ns", "a")).unwrap().meta(), object("a", 3).meta());
}
