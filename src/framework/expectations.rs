//! Expectations: a key is not reconciled again before the caches have seen what its last plan wrote.
//!
//! Without this a stale cache makes duplicates: pods that were created but not yet seen would be created again. Counting
//! expected events, as controllers traditionally do, errs when an event is missed or belongs to something else; this
//! compares resource versions instead (KEP-5504: they are comparable integers). After a write the cache of that kind must
//! have reached the version in the server's answer; after a delete the object must be gone from the cache or be seen
//! terminating; after a write whose answer was lost, it must have seen what a live read made later finds: the newest of
//! the objects there, and that those which are not there are gone. (Not the version of the read itself, which moves on
//! with every write of any kind: where nothing else happens to the kind, a cache only hears of it by the next bookmark.)
//!
//! Nothing here waits: a check is a look into the stores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::Kind;
use crate::executor::{Effect, WriteEffect};
use crate::informer::Store;
use crate::model::Key;
use crate::wire::Uid;

/// After this long an expectation is given up, as in the original: better a reconcile on an odd cache than none.
pub const EXPECTATION_TIMEOUT: Duration = Duration::from_mins(5);

/// The expectations of one loop's keys.
#[derive(Debug)]
pub struct Expectations {
    stores: Vec<Arc<Store>>,
    pending: Mutex<HashMap<Key, Pending>>,
}

#[derive(Debug)]
struct Pending {
    since: Instant,
    /// Per store the version that it must reach.
    versions: Vec<(usize, u64)>,
    /// Objects that must be gone or terminating.
    gone: Vec<(usize, Key, Uid)>,
    /// What may have been written without an answer: its kind and where; without a name where the server gives one.
    uncertain: Vec<(&'static Kind, Key)>,
}

/// What a live read found of the objects that a lost write may have touched.
#[derive(Clone, Debug, Default)]
pub struct LiveObjects {
    /// Resource version of the read.
    pub version: u64,
    /// UID and resource version of each object.
    pub objects: Vec<(Uid, u64)>,
}

/// Whether a key may be reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The caches have seen everything.
    Ready,
    /// They have not yet; the first kind that is behind.
    Waiting(&'static Kind),
    /// This may have been written without an answer; without a name, any object of the namespace. It must be read live
    /// and what is there given to [`Expectations::found`].
    Uncertain(&'static Kind, Key),
    /// They did not within [`EXPECTATION_TIMEOUT`]; the expectation is dropped.
    GivenUp(&'static Kind),
}

impl Expectations {
    /// Expectations over the stores that the loop reads.
    pub fn new(stores: Vec<Arc<Store>>) -> Self {
        Self { stores, pending: Mutex::default() }
    }

    fn store_of(&self, kind: &'static Kind) -> Option<usize> {
        self.stores.iter().position(|store| store.kind() == kind)
    }

    /// The store of a kind, if the loop reads one.
    pub(super) fn store(&self, kind: &'static Kind) -> Option<&Store> {
        self.store_of(kind).map(|at| &*self.stores[at])
    }

    /// Remembers what the caches must see before `key` is reconciled again.
    pub fn record(&self, key: &Key, effects: &[Effect]) {
        for effect in effects {
            let Some(at) = self.store_of(effect.kind) else { continue };
            match &effect.change {
                WriteEffect::Stored(version) => {
                    if let Ok(version) = version.parse() {
                        self.require(key, at, version);
                    }
                }
                WriteEffect::Deleted(uid) => {
                    let mut pending = self.pending.lock();
                    pending.entry(key.clone()).or_insert_with(Pending::new).gone.push((
                        at,
                        effect.key.clone(),
                        uid.clone(),
                    ));
                }
                WriteEffect::Unknown => {
                    let mut pending = self.pending.lock();
                    let uncertain = &mut pending.entry(key.clone()).or_insert_with(Pending::new).uncertain;
                    let written = (effect.kind, effect.key.clone());
                    if !uncertain.contains(&written) {
                        uncertain.push(written);
                    }
                }
                WriteEffect::Swept | WriteEffect::Nothing => {}
            }
        }
    }

    /// A live read has found this of what was `written` without an answer. The cache must have seen it before `key` is
    /// reconciled.
    pub fn found(&self, key: &Key, kind: &'static Kind, written: &Key, found: &LiveObjects) {
        let at = self.store_of(kind);
        let missing = at.map(|at| missing(&self.stores[at], written, found)).unwrap_or_default();
        if let Some(pending) = self.pending.lock().get_mut(key) {
            pending.uncertain.retain(|(held, at)| *held != kind || at != written);
            pending.gone.extend(
                at.into_iter()
                    .flat_map(|at| missing.iter().map(move |(key, uid)| (at, key.clone(), uid.clone()))),
            );
        }
        if let (Some(at), Some(newest)) = (at, found.objects.iter().map(|(_, version)| *version).max()) {
            self.require(key, at, newest);
        }
    }

    fn require(&self, key: &Key, at: usize, version: u64) {
        let mut all = self.pending.lock();
        let pending = all.entry(key.clone()).or_insert_with(Pending::new);
        match pending.versions.iter_mut().find(|(held, _)| *held == at) {
            Some((_, held)) => *held = version.max(*held),
            None => pending.versions.push((at, version)),
        }
    }

    /// Whether `key` may be reconciled.
    pub fn check(&self, key: &Key) -> Readiness {
        let mut all = self.pending.lock();
        let Some(pending) = all.get_mut(key) else { return Readiness::Ready };
        if let Some((kind, written)) = pending.uncertain.first() {
            return Readiness::Uncertain(kind, written.clone());
        }
        pending.versions.retain(|&(at, version)| !has_reached(&self.stores[at], version));
        pending.gone.retain(|(at, key, uid)| {
            self.stores[*at]
                .get(key)
                .is_some_and(|held| held.meta().uid == *uid && !held.meta().is_deleting())
        });
        let behind =
            pending.versions.first().map(|(at, _)| *at).or_else(|| pending.gone.first().map(|(at, ..)| *at));
        let Some(at) = behind else {
            all.remove(key);
            return Readiness::Ready;
        };
        let kind = self.stores[at].kind();
        if pending.since.elapsed() < EXPECTATION_TIMEOUT {
            return Readiness::Waiting(kind);
        }
        all.remove(key);
        Readiness::GivenUp(kind)
    }

    /// How long `key` has waited since the first of the writes that the caches have not seen.
    pub fn waited(&self, key: &Key) -> Duration {
        self.pending.lock().get(key).map(|pending| pending.since.elapsed()).unwrap_or_default()
    }

    /// Number of keys that wait.
    pub fn len(&self) -> usize {
        self.pending.lock().len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Pending {
    fn new() -> Self {
        Self { since: Instant::now(), versions: Vec::new(), gone: Vec::new(), uncertain: Vec::new() }
    }
}

/// What the store holds of the `written` objects and a later live read did not find.
fn missing(store: &Store, written: &Key, found: &LiveObjects) -> Vec<(Key, Uid)> {
    let held = if written.name.is_empty() {
        store.list_namespace(&written.namespace)
    } else {
        store.get(written).into_iter().collect()
    };
    let older = |version: &str| version.parse().is_ok_and(|version: u64| version <= found.version);
    let is_found = |uid: &Uid| found.objects.iter().any(|(live, _)| live == uid);
    let metas = held.iter().map(|object| object.meta());
    let missing = metas.filter(|meta| older(&meta.resource_version) && !is_found(&meta.uid));
    missing.map(|meta| (Key::of(meta), meta.uid.clone())).collect()
}

/// A store without a comparable version can't be waited for.
fn has_reached(store: &Store, version: u64) -> bool {
    let at = store.resource_version();
    at.parse().map_or(!at.is_empty(), |at: u64| at >= version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AnyObject;
    use crate::api::core::Pod;
    use crate::api::kinds::{PODS, SECRETS};
    use crate::api::meta::ObjectMeta;
    use crate::wire::Time;

    fn pod(name: &str, version: &str, deleting: bool) -> AnyObject {
        let metadata = ObjectMeta {
            name: name.into(),
            namespace: "ns".into(),
            uid: name.into(),
            resource_version: version.into(),
            deletion_timestamp: if deleting { Time::from_seconds(1) } else { None },
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    fn effect(kind: &'static Kind, change: WriteEffect) -> Effect {
        Effect { kind, key: Key::new("ns", "a"), change, what: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_the_version_that_it_wrote() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.replace(vec![], "9");
        expectations.record(
            &key,
            &[
                effect(&PODS, WriteEffect::Stored("10".into())),
                effect(&PODS, WriteEffect::Stored("8".into())),
                effect(&SECRETS, WriteEffect::Stored("99".into())),
            ],
        );
        assert_eq!(expectations.check(&key), Readiness::Waiting(&PODS));
        assert_eq!(expectations.check(&Key::new("ns", "other")), Readiness::Ready);
        store.upsert(&pod("a", "10", false));
        assert_eq!(expectations.check(&key), Readiness::Ready);
        assert!(expectations.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_until_what_it_deleted_is_seen_going() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.upsert(&pod("a", "5", false));
        expectations.record(&key, &[effect(&PODS, WriteEffect::Deleted("a".into()))]);
        assert_eq!(expectations.check(&key), Readiness::Waiting(&PODS));
        store.upsert(&pod("a", "6", true));
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }

    fn lost(name: &str) -> Effect {
        Effect { key: Key::new("ns", name), ..effect(&PODS, WriteEffect::Unknown) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_create_waits_for_what_a_live_read_found() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.replace(vec![pod("a", "11", false)], "19");
        expectations.record(&key, &[lost(""), lost("")]);
        assert_eq!(expectations.check(&key), Readiness::Uncertain(&PODS, Key::new("ns", "")));
        // The read is at 30, and nothing will happen to pods after 20.
        let objects = vec![("a".into(), 11), ("b".into(), 20)];
        expectations.found(&key, &PODS, &Key::new("ns", ""), &LiveObjects { version: 30, objects });
        assert_eq!(expectations.check(&key), Readiness::Waiting(&PODS));
        store.upsert(&pod("b", "20", false));
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_create_that_was_not_carried_out_waits_for_nothing() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.replace(vec![pod("a", "11", false)], "19");
        expectations.record(&key, &[lost("")]);
        let objects = vec![("a".into(), 11)];
        expectations.found(&key, &PODS, &Key::new("ns", ""), &LiveObjects { version: 30, objects });
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_delete_waits_until_what_is_not_there_is_gone() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.replace(vec![pod("a", "5", false), pod("b", "6", false)], "9");
        expectations.record(&key, &[lost("a")]);
        expectations.found(
            &key,
            &PODS,
            &Key::new("ns", "a"),
            &LiveObjects { version: 12, objects: Vec::new() },
        );
        assert_eq!(expectations.check(&key), Readiness::Waiting(&PODS));
        store.remove(&pod("a", "10", true));
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_newer_than_the_live_read_need_not_go() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![Arc::clone(&store)]);
        let key = Key::new("ns", "rs");
        store.replace(vec![pod("a", "40", false)], "40");
        expectations.record(&key, &[lost("")]);
        expectations.found(
            &key,
            &PODS,
            &Key::new("ns", ""),
            &LiveObjects { version: 30, objects: Vec::new() },
        );
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn an_expectation_is_given_up_in_the_end() {
        let store = Arc::new(Store::new(&PODS));
        let expectations = Expectations::new(vec![store]);
        let key = Key::new("ns", "rs");
        expectations.record(&key, &[effect(&PODS, WriteEffect::Stored("10".into()))]);
        assert_eq!(expectations.waited(&Key::new("ns", "other")), Duration::ZERO);
        tokio::time::advance(EXPECTATION_TIMEOUT).await;
        assert_eq!(expectations.waited(&key), EXPECTATION_TIMEOUT);
        assert_eq!(expectations.check(&key), Readiness::GivenUp(&PODS));
        assert_eq!(expectations.check(&key), Readiness::Ready);
    }
}
