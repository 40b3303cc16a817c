//! Informers before and after a restore of etcd.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::fixture::{Answer, PODS, Script, bookmark, encoded, error_event, event, page, until};
use super::{informers, names, recorder, refusal, watch_versions};
use crate::api::dynamic;

/// A stream of these pods, which ends at a version, and then the watch, which the server ends as expired.
fn expires(pods: &[(&str, u32)], version: u32) -> Answer {
    let mut chunks: Vec<_> = pods.iter().map(|(name, at)| event("ADDED", name, *at)).collect();
    chunks.push(bookmark(version, true));
    chunks.push(error_event(410, "Expired"));
    Answer::Watch(chunks)
}

/// A stream of these pods, and then the watch, which stays open.
async fn stays(script: &Script, pods: &[(&str, u32)], version: u32) -> mpsc::Sender<bytes::Bytes> {
    let (feed, live) = mpsc::channel(8);
    for (name, at) in pods {
        feed.send(event("ADDED", name, *at)).await.unwrap();
    }
    feed.send(bookmark(version, true)).await.unwrap();
    script.push(Answer::Live(live));
    feed
}

/// The answer to the read that confirms an older list.
fn confirmed_at(version: u32) -> Answer {
    Answer::Page(page(vec![encoded("a", 3)], version, ""))
}

/// A consistent read of as little as possible.
const CONFIRMS: &str = "list rv=None limit=Some(1) continue=None";

/// A backend that lagged has caught up a second later.
#[tokio::test(start_paused = true)]
async fn older_list_ends_no_epoch_unless_a_second_read_confirms_it() {
    for (list, confirmations, number) in [
        (5, vec![confirmed_at(9)], 0),
        (5, vec![Answer::Error(refusal(500, "InternalError", None)), confirmed_at(8)], 1),
        (5, vec![confirmed_at(0)], 0),
        (0, vec![], 0),
    ] {
        let script = Script::new([expires(&[("a", 3), ("b", 8)], 9)]);
        let _feed = stays(&script, &[("a", 3)], list).await;
        let reads = confirmations.len();
        for answer in confirmations {
            script.push(answer);
        }
        let informers = informers(&script, true);
        let handle = informers.acquire(PODS, None);
        until("it has listed again", || handle.stats().relists == 1).await;
        until("the cache shows the list", || names(handle.store()) == ["a@3"]).await;
        let asked = [vec!["stream"; 2], vec![CONFIRMS; reads]].concat();
        assert_eq!(watch_versions(&script), asked);
        assert_eq!(informers.epochs().present().number(), number, "{asked:?}");
    }
}

/// A list from the cache of an API server could be of before the restore.
#[tokio::test(start_paused = true)]
async fn informer_that_was_never_filled_makes_a_consistent_list_in_a_new_epoch() {
    let script = Script::new([]);
    let (feed, live) = mpsc::channel(8);
    script.push(Answer::Live(live));
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    feed.send(event("ADDED", "a", 3)).await.unwrap();
    until("an object is collected", || handle.stats().collecting == 1).await;
    assert!(informers.epochs().present().compare(&"test", 9, 5).is_some());
    script.push(Answer::Page(page(vec![encoded("a", 3)], 5, "")));
    handle.wait_synced().await.unwrap();
    assert_eq!(watch_versions(&script)[..2], ["stream", "list rv=None limit=Some(500) continue=None"]);
}

#[tokio::test(start_paused = true)]
async fn list_that_is_older_than_the_cache_ends_the_epoch() {
    let script = Script::new([expires(&[("a", 3), ("b", 8)], 9)]);
    let feed = stays(&script, &[("a", 3)], 5).await;
    script.push(confirmed_at(5));
    let informers = informers(&script, true);
    let epoch = informers.epochs().present();
    let handle = informers.acquire(PODS, None);
    until("the epoch is over", || epoch.is_over()).await;
    until("the cache shows the older state", || names(handle.store()) == ["a@3"]).await;
    assert_eq!(informers.epochs().present().number(), 1);

    // Later callers get an informer of the new epoch; earlier callers keep theirs.
    let _feed = stays(&script, &[("a", 3), ("c", 6)], 6).await;
    let fresh = informers.acquire(PODS, None);
    fresh.wait_synced().await.unwrap();
    assert_eq!(
        (names(fresh.store()), names(handle.store())),
        (vec!["a@3".into(), "c@6".into()], vec!["a@3".into()])
    );
    let same = informers.acquire(PODS, None);
    assert!(Arc::ptr_eq(same.store(), fresh.store()));
    sleep(Duration::from_mins(1)).await;
    let asked = ["stream", "stream", CONFIRMS, "stream"];
    assert_eq!(watch_versions(&script), asked, "the list that ended the epoch is not repeated");
    assert_eq!(informers.epochs().present().number(), 1);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_not_older_end_no_epoch() {
    for version in [9, 10] {
        let script = Script::new([expires(&[("a", 3)], 9)]);
        let _feed = stays(&script, &[("a", 3)], version).await;
        let informers = informers(&script, true);
        let handle = informers.acquire(PODS, None);
        until("it has listed again", || handle.stats().relists == 1).await;
        assert_eq!(informers.epochs().present().number(), 0, "{version}");
        let again = informers.acquire(PODS, None);
        assert!(Arc::ptr_eq(again.store(), handle.store()));
    }
}

/// The first list may come from the cache of an API server that lags, later ones may not.
#[tokio::test(start_paused = true)]
async fn only_consistent_lists_are_compared_with_the_cache() {
    let expired = Answer::Watch(vec![error_event(410, "Expired")]);
    let script = Script::new([
        Answer::Page(page(vec![encoded("a", 3)], 9, "")),
        expired,
        Answer::Page(page(vec![encoded("a", 3)], 9, "")),
    ]);
    let informers = informers(&script, false);
    let handle = informers.acquire(PODS, None);
    until("it has listed again", || handle.stats().relists == 1).await;
    let asked = watch_versions(&script);
    assert!(asked[0].starts_with("list rv=Some(\"0\")") && asked[2].starts_with("list rv=None"), "{asked:?}");
    assert_eq!(informers.epochs().present().number(), 0);

    // After a restore even the first is consistent: a cache that lags could lack what was written since.
    assert!(informers.epochs().present().compare(&"test", 9, 8).is_some());
    script.push(Answer::Page(page(vec![], 4, "")));
    let fresh = informers.acquire(PODS, None);
    fresh.wait_synced().await.unwrap();
    let asked = watch_versions(&script);
    assert!(asked.iter().skip(3).any(|asked| asked.starts_with("list rv=None")), "{asked:?}");
    assert!(asked.iter().skip(3).all(|asked| !asked.contains("rv=Some")), "{asked:?}");
}

/// A restored API server sends nothing to a watch from a later version, so the watch does not end by itself.
#[tokio::test(start_paused = true)]
async fn informer_that_is_held_over_the_end_of_an_epoch_lists_again() {
    let script = Script::new([]);
    let feed = stays(&script, &[("a", 3), ("b", 8)], 9).await;
    let informers = informers(&script, true);
    let handle = informers.acquire(PODS, None);
    let (handler, log) = recorder();
    let _registration = handle.add_handler("test", handler);
    handle.wait_synced().await.unwrap();
    let _feed = stays(&script, &[("a", 3), ("c", 5)], 5).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(watch_versions(&script), ["stream"], "nothing happens in an epoch");
    assert!(informers.epochs().present().compare(&"test", 9, 5).is_some());
    until("the cache shows the older state", || names(handle.store()) == ["a@3", "c@5"]).await;
    assert_eq!(*log.lock(), ["+a@3", "+b@8", "-b@8", "+c@5"]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(watch_versions(&script), ["stream"; 2]);
    assert_eq!(informers.epochs().present().number(), 1, "its list is of the new epoch");
    drop(feed);
}

/// Versions of aggregated API servers are their own.
#[tokio::test(start_paused = true)]
async fn lists_of_custom_kinds_end_no_epoch() {
    let kind = dynamic::kind("epochs.ex.io", "v1", "Foo", "foos", true);
    let script = Script::new([
        Answer::Page(page(vec![], 9, "")),
        Answer::Watch(vec![error_event(410, "Expired")]),
        Answer::Page(page(vec![], 5, "")),
    ]);
    let informers = informers(&script, false);
    let handle = informers.acquire(kind, None);
    until("it has listed again", || handle.stats().relists == 1).await;
    assert_eq!(handle.store().resource_version(), "5");
    assert_eq!(informers.epochs().present().number(), 0);
}
