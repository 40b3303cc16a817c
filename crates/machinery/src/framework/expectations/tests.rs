//! Expectations over stores that the test fills, in paused time.

use bytes::Bytes;
use tokio::time::advance;

use super::*;
use crate::api::AnyObject;
use crate::api::kinds::{PODS, REPLICA_SETS, SECRETS};
use crate::api::meta::ObjectMeta;
use crate::api::pod::Pod;
use crate::informer::{Epochs, Store};
use crate::model::plan::{Step, Verb, Write};
use crate::telemetry::Registry;
use crate::wire::Time;

fn pod_held_by(name: &str, version: &str, deleting: bool, finalizers: &[&str]) -> AnyObject {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "ns".into(),
        uid: name.into(),
        resource_version: version.into(),
        deletion_timestamp: if deleting { Time::from_seconds(1) } else { None },
        finalizers: finalizers.iter().map(|&name| name.into()).collect(),
        ..ObjectMeta::default()
    };
    Arc::new(Pod { metadata, ..Pod::default() })
}

fn pod(name: &str, version: &str, deleting: bool) -> AnyObject {
    pod_held_by(name, version, deleting, &[])
}

/// A loop whose keys name pods, which it writes as well.
struct Bench {
    expectations: Arc<Expectations>,
    store: Arc<Store>,
    caches: Caches,
}

impl Bench {
    fn new() -> Self {
        Self::on(Arc::default())
    }

    /// Another instance, with caches that are yet to be filled.
    fn on(expectations: Arc<Expectations>) -> Self {
        let store = Arc::new(Store::new(&PODS));
        Self { expectations, caches: Caches::new(Some(&PODS), vec![Arc::clone(&store)]), store }
    }

    fn check(&self, key: &Key) -> Readiness {
        let first = self.expectations.check(key, &self.caches);
        assert_eq!(self.expectations.check(key, &self.caches), first, "a check changes nothing");
        first
    }

    fn is_ready(&self) -> bool {
        self.check(&key()) == Readiness::Ready
    }

    /// Writes these pods, and is answered so.
    fn write(&self, effects: &[Effect]) {
        let names: Vec<&str> = effects.iter().map(|effect| effect.key.name.as_str()).collect();
        self.begin(&key(), &names).answered(effects, &self.caches);
    }

    fn begin<'a>(&'a self, key: &'a Key, names: &[&str]) -> Intent<'a> {
        let write = |name: &&str| Write::new(&PODS, Key::new("ns", *name), Verb::Create(Bytes::new()));
        let steps = vec![Step::Each(names.iter().map(write).collect())];
        self.expectations.begin(key, &Plan { steps, ..Plan::default() }, &self.caches)
    }

    /// What must be read live first.
    fn unanswered(&self, key: &Key) -> Unanswered {
        let Readiness::Unanswered(lost) = self.check(key) else { panic!("{:?}", self.check(key)) };
        lost
    }

    /// What comes of a live read of `place` at `version`.
    fn found(&self, place: &str, version: u64, pods: &[(&str, u64)]) {
        let mut live = LiveObjects { version, ..LiveObjects::default() };
        for (uid, version) in pods {
            live.add((*uid).into(), *version);
        }
        self.expectations.found(&PODS, &Key::new("ns", place), Instant::now(), &live, &self.caches);
    }
}

fn key() -> Key {
    Key::new("ns", "owner")
}

fn effect(name: &str, change: WriteEffect) -> Effect {
    Effect { kind: &PODS, key: Key::new("ns", name), subresource: "", change, answer: None }
}

fn waiting(version: u64) -> Readiness {
    Readiness::Waiting(&PODS, Awaited::Version(version))
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_the_version_that_it_wrote_and_without_end() {
    let bench = Bench::new();
    bench.store.replace(vec![], "9");
    let elsewhere = Effect { kind: &SECRETS, ..effect("a", WriteEffect::Stored("99".into())) };
    let stored = |version: &str| effect("a", WriteEffect::Stored(version.into()));
    bench.write(&[stored("10"), stored("8"), elsewhere]);
    assert_eq!(bench.check(&key()), waiting(10));
    assert_eq!(bench.check(&Key::new("ns", "other")), Readiness::Ready);
    advance(Duration::from_hours(24)).await;
    assert_eq!(
        (bench.check(&key()), bench.expectations.waited(&key())),
        (waiting(10), Duration::from_hours(24))
    );
    bench.store.upsert(&pod("a", "10", false));
    assert!(bench.is_ready());
    bench.expectations.met(&key());
    assert!(bench.expectations.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_wrote_nothing_expects_nothing() {
    let bench = Bench::new();
    bench.store.replace(vec![], "9");
    bench.write(&[effect("a", WriteEffect::Nothing), effect("", WriteEffect::Swept)]);
    assert!(bench.expectations.is_empty());
    let plan = Plan {
        steps: vec![Step::Write(Write::new(&SECRETS, key(), Verb::Create(Bytes::new())))],
        ..Plan::default()
    };
    drop(bench.expectations.begin(&key(), &plan, &bench.caches));
    assert!(bench.expectations.is_empty(), "nobody reads secrets");
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_until_what_it_deleted_is_seen_going() {
    let bench = Bench::new();
    bench.store.upsert(&pod("a", "5", false));
    bench.write(&[effect("a", WriteEffect::Deleted("a".into()))]);
    assert!(!bench.is_ready());
    bench.store.upsert(&pod("a", "6", true));
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_last_finalizer_must_be_seen_gone() {
    // The server deletes it and answers with the version before: the cache is there already, and tells nothing.
    let released = || effect("a", WriteEffect::Released("a".into(), "6".into()));
    let bench = Bench::new();
    bench.store.replace(vec![pod_held_by("a", "6", true, &["last"])], "6");
    bench.write(&[released()]);
    bench.store.bookmark("9");
    assert!(!bench.is_ready(), "it terminated before");
    bench.store.remove(&pod("a", "7", true));
    assert!(bench.is_ready());

    // One that has time left to terminate stays, without finalizers.
    let bench = Bench::new();
    bench.store.replace(vec![pod_held_by("a", "5", true, &["last"])], "5");
    bench.write(&[released()]);
    assert!(!bench.is_ready());
    bench.store.upsert(&pod("a", "6", true));
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_written_is_on_record_before_it_is_sent() {
    let bench = Bench::new();
    bench.store.replace(vec![pod("a", "11", false)], "19");
    let own = key();
    let intent = bench.begin(&own, &["", "", "named"]);
    assert_eq!(bench.unanswered(&own).readable_at(), None, "the answers may still come");
    // The task is aborted, or panics.
    drop(intent);
    let gave_up = Instant::now();
    assert_eq!(bench.unanswered(&own).place, Key::new("ns", ""));
    assert_eq!(bench.unanswered(&own).readable_at(), Some(gave_up + MAY_STILL_LAND));
    bench.found("", 30, &[("a", 11)]);
    assert!(!bench.is_ready(), "a read that comes at once may come too early");
    advance(MAY_STILL_LAND).await;
    // The read is at 30, and nothing will happen to pods after 20.
    bench.found("", 30, &[("a", 11), ("b", 20)]);
    assert_eq!(bench.check(&own), waiting(20), "a list tells of the named one, too");
    bench.store.upsert(&pod("b", "20", false));
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn answers_take_the_place_of_what_may_have_been_written() {
    let bench = Bench::new();
    bench.store.replace(vec![], "19");
    bench.write(&[effect("", WriteEffect::Stored("25".into())), effect("", WriteEffect::Unknown)]);
    assert_eq!(bench.unanswered(&key()).place, Key::new("ns", ""));
    advance(MAY_STILL_LAND).await;
    bench.found("", 30, &[]);
    assert_eq!(bench.check(&key()), waiting(25));
    bench.write(&[effect("", WriteEffect::Stored("26".into()))]);
    assert_eq!(bench.check(&key()), waiting(26));
}

#[tokio::test(start_paused = true)]
async fn one_live_read_serves_all_keys_of_its_place() {
    let bench = Bench::new();
    bench.store.replace(vec![], "19");
    let keys: Vec<Key> = (0..1000).map(|at| Key::new("ns", at.to_string())).collect();
    for key in &keys {
        drop(bench.begin(key, &[""]));
    }
    advance(MAY_STILL_LAND).await;
    let late = Key::new("ns", "late");
    drop(bench.begin(&late, &[""]));
    bench.found("", 30, &[("a", 20)]);
    assert!(keys.iter().all(|key| bench.check(key) == waiting(20)));
    assert_eq!(bench.unanswered(&late).place, Key::new("ns", ""), "this one was read for too early");
    bench.store.bookmark("20");
    assert!(keys.iter().all(|key| bench.check(key) == Readiness::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_live_read_concerns_the_keys_that_have_something_to_learn_from_it_and_no_others() {
    let bench = Bench::new();
    let filed = |namespace: &str| {
        let pending = bench.expectations.0.lock();
        let waiting = pending.given_up.get(&(&PODS, namespace.into()));
        let mut names: Vec<_> = waiting.into_iter().flatten().map(|key| key.name.to_string()).collect();
        names.sort();
        names
    };
    let keys = ["a", "b", "c", "d"].map(|name| Key::new("ns", name));
    drop(bench.begin(&keys[0], &[""]));
    drop(bench.begin(&keys[1], &["", "x"]));
    bench.begin(&keys[2], &["y"]).answered(&[], &bench.caches);
    let under_way = bench.begin(&keys[3], &["z"]);
    assert_eq!(filed("ns"), ["a", "b"], "the others' answers came, or may come");
    advance(MAY_STILL_LAND).await;
    // Given up later than the read began, and so still to be read.
    drop(under_way);
    bench.found("", 20, &[]);
    assert_eq!(filed("ns"), ["d"]);
    assert!(matches!(bench.check(&keys[3]), Readiness::Unanswered(_)));
    bench.expectations.met(&keys[3]);
    assert!(bench.expectations.0.lock().given_up.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_writes_by_name_are_looked_up_by_one_list() {
    let bench = Bench::new();
    let names: Vec<String> = (0..100).map(|at| at.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    drop(bench.begin(&key(), &names[..NAMED]));
    drop(bench.begin(&Key::new("ns", "many"), &names));
    advance(MAY_STILL_LAND).await;
    assert_eq!(bench.unanswered(&key()).place, Key::new("ns", "0"));
    assert_eq!(bench.unanswered(&Key::new("ns", "many")).place, Key::new("ns", ""));
    bench.found("", 30, &[]);
    assert!(bench.is_ready());
    assert_eq!(bench.check(&Key::new("ns", "many")), Readiness::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_lost_delete_waits_until_what_is_not_there_is_gone() {
    let bench = Bench::new();
    bench.store.replace(vec![pod("a", "5", false), pod("b", "6", false)], "9");
    bench.write(&[effect("a", WriteEffect::Unknown)]);
    advance(MAY_STILL_LAND).await;
    bench.found("a", 12, &[]);
    assert!(!bench.is_ready());
    bench.store.remove(&pod("a", "10", true));
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_is_newer_than_the_live_read_need_not_go() {
    let bench = Bench::new();
    bench.store.replace(vec![pod("a", "40", false)], "40");
    bench.write(&[effect("", WriteEffect::Unknown)]);
    advance(MAY_STILL_LAND).await;
    bench.found("", 30, &[]);
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn expectations_outlive_the_caches_that_they_were_made_on() {
    let registry = ExpectationsRegistry::default();
    let before = Bench::on(registry.of("test-controller", "test", 0));
    before.store.replace(vec![], "9");
    before.write(&[effect("a", WriteEffect::Stored("10".into()))]);
    drop(before);
    let other = Bench::on(registry.of("test-controller", "another", 0));
    assert!(other.is_ready());
    let twin = Bench::on(registry.of("test-controller", "test", 1));
    assert!(twin.is_ready(), "another loop of the same queue name has keys of its own");
    let after = Bench::on(registry.of("test-controller", "test", 0));
    assert_eq!(after.check(&key()), waiting(10), "nothing is there yet");
    after.store.replace(vec![], "9");
    assert_eq!(after.check(&key()), waiting(10), "a list from an API server that lags");
    after.store.replace(vec![], "11");
    assert!(after.is_ready());
    let without = Caches::new(None, vec![Arc::new(Store::new(&REPLICA_SETS))]);
    assert_eq!(
        after.expectations.check(&key(), &without),
        Readiness::Ready,
        "what nobody reads misleads nobody"
    );
}

#[tokio::test(start_paused = true)]
async fn expectations_end_with_the_object_of_their_key() {
    let bench = Bench::new();
    bench.store.replace(vec![pod("owner", "5", false)], "5");
    bench.write(&[effect("a", WriteEffect::Stored("10".into())), effect("", WriteEffect::Unknown)]);
    assert!(!bench.is_ready());
    // A restart on a cache that is older than what was seen tells nothing.
    let older = Bench::on(Arc::clone(&bench.expectations));
    older.store.replace(vec![], "4");
    assert!(!older.is_ready());
    bench.store.remove(&pod("owner", "6", true));
    assert!(bench.is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_any_more_is_swept() {
    let bench = Bench::new();
    bench.store.replace(vec![], "9");
    for at in 0..10 * SWEEP_FLOOR {
        let key = Key::new("ns", at.to_string());
        let version = (10 + at).to_string();
        bench
            .begin(&key, &["a"])
            .answered(&[effect("a", WriteEffect::Stored(version.clone().into()))], &bench.caches);
        assert!(bench.expectations.len() <= SWEEP_FLOOR, "{}", bench.expectations.len());
        assert_eq!(bench.check(&key), waiting(10 + at as u64), "what is expected is kept");
        bench.store.bookmark(&version);
    }
}

/// The caches of the next instance, in a later epoch.
fn after_restore(bench: &Bench, epochs: &Arc<Epochs>) -> Bench {
    let next = Bench::on(Arc::clone(&bench.expectations));
    Bench { caches: next.caches.in_epoch(epochs.present()), ..next }
}

#[tokio::test(start_paused = true)]
async fn answers_of_before_a_restore_are_waited_for_no_longer() {
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let bench = Bench::new();
    let bench = Bench { caches: bench.caches.in_epoch(epochs.present()), ..bench };
    bench.store.replace(vec![pod("owner", "900", false), pod("b", "901", false)], "1000");
    let effects =
        [effect("a", WriteEffect::Stored("1001".into())), effect("b", WriteEffect::Deleted("b".into()))];
    bench.write(&effects);
    assert!(!bench.is_ready());
    // An instance of the same epoch waits, however old its cache is.
    let lagging = Bench::on(Arc::clone(&bench.expectations));
    lagging.store.replace(vec![pod("owner", "900", false), pod("b", "901", false)], "950");
    assert!(!lagging.is_ready());

    let _epoch = epochs.present().compare(&"pods", 1000, 950).unwrap();
    assert!(!bench.is_ready(), "the caches of before never show it");
    let after = after_restore(&bench, &epochs);
    after.store.replace(vec![pod("owner", "900", false), pod("b", "901", false)], "955");
    assert!(after.is_ready(), "the deletion was undone, and the creation never was");
    after.write(&[effect("a", WriteEffect::Stored("960".into()))]);
    assert_eq!(after.check(&key()), waiting(960), "what is written in the new epoch is waited for");
    after.store.bookmark("960");
    assert!(after.is_ready());
}

#[tokio::test(start_paused = true)]
async fn write_that_is_answered_after_a_restore_is_looked_up() {
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let bench = Bench::new();
    let bench = Bench { caches: bench.caches.in_epoch(epochs.present()), ..bench };
    bench.store.replace(vec![], "1000");
    let key = key();
    let (late, unanswered) = (bench.begin(&key, &["a"]), Key::new("ns", "other"));
    drop(bench.begin(&unanswered, &["b"]));
    let _epoch = epochs.present().compare(&"pods", 1000, 950).unwrap();
    // The fresh cache was listed before this write was carried out, or after it was undone.
    late.answered(&[effect("a", WriteEffect::Stored("956".into()))], &bench.caches);
    let after = after_restore(&bench, &epochs);
    after.store.replace(vec![], "955");
    for (key, name) in [(&key, "a"), (&unanswered, "b")] {
        assert_eq!(after.unanswered(key).place, Key::new("ns", name));
    }
    advance(MAY_STILL_LAND).await;
    after.found("a", 960, &[("a", 956)]);
    assert_eq!(after.check(&key), waiting(956), "it is there, and the cache must show it");
    after.store.upsert(&pod("a", "956", false));
    assert!(after.is_ready());
}

#[tokio::test(start_paused = true)]
async fn key_whose_object_a_restore_has_undone_expects_nothing() {
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let bench = Bench::new();
    let bench = Bench { caches: bench.caches.in_epoch(epochs.present()), ..bench };
    let keys: Vec<Key> = (0..=2 * SWEEP_FLOOR).map(|at| Key::new("ns", at.to_string())).collect();
    bench.store.replace(keys.iter().map(|key| pod(&key.name, "900", false)).collect(), "1000");
    for key in &keys {
        drop(bench.begin(key, &["a"]));
    }
    let _epoch = epochs.present().compare(&"pods", 1000, 800).unwrap();
    let after = after_restore(&bench, &epochs);
    assert_eq!(after.unanswered(&keys[0]).place, Key::new("ns", "a"), "an empty cache says nothing");
    after.store.replace(vec![pod("0", "700", false)], "805");
    assert_eq!(after.unanswered(&keys[0]).place, Key::new("ns", "a"));
    assert!(keys[1..].iter().all(|key| after.check(key) == Readiness::Ready));
    after.write(&[effect("a", WriteEffect::Stored("806".into()))]);
    assert_eq!(after.expectations.len(), 2, "those of keys that are gone are forgotten");
}

#[tokio::test(start_paused = true)]
async fn cache_that_an_old_list_filled_is_compared_with_a_live_list() {
    let bench = Bench::new();
    let keyless = Caches::new(None, vec![Arc::clone(&bench.store)]);
    bench.expectations.require_current(&Key::EMPTY, &keyless);
    assert!(bench.expectations.is_empty(), "the loop has no kind");
    bench.store.replace(vec![pod("a", "5", false), pod("b", "6", false)], "9");
    for _ in 0..2 {
        bench.expectations.require_current(&Key::EMPTY, &bench.caches);
    }
    let all = bench.unanswered(&Key::EMPTY);
    assert_eq!(all.place, Key::new("", ""));
    assert!(all.readable_at().is_some_and(|at| at <= Instant::now()), "the list need not wait");
    let mut live = LiveObjects { version: 30, ..LiveObjects::default() };
    live.add("a".into(), 5);
    live.add("c".into(), 20);
    bench.expectations.found(&PODS, &Key::EMPTY, Instant::now(), &live, &bench.caches);
    let deletion = Awaited::Deletion(Key::new("ns", "b"), "b".into());
    assert_eq!(bench.check(&Key::EMPTY), Readiness::Waiting(&PODS, deletion));
    bench.store.remove(&pod("b", "15", true));
    assert_eq!(bench.check(&Key::EMPTY), waiting(20));
    bench.store.upsert(&pod("c", "20", false));
    assert_eq!(bench.check(&Key::EMPTY), Readiness::Ready);
    bench.expectations.met(&Key::EMPTY);
    assert!(bench.expectations.is_empty() && bench.expectations.0.lock().given_up.is_empty());
}
