//! What a store can be waited for: a resource version, an object that goes. Whoever waits is woken once; nobody polls.

use std::collections::BTreeMap;

use super::Store;
use crate::api::AnyObject;
use crate::model::Key;
use crate::random::HashMap;
use crate::wire::Uid;

/// Something that a store will show in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The store has reached this resource version.
    Version(u64),
    /// The object of this UID has gone, or its deletion has begun.
    Deletion(Key, Uid),
    /// The object of this UID has gone, or nothing holds it back: it has no finalizers.
    Release(Key, Uid),
}

/// Is called once, in the informer's task. What holds for handlers holds here: it must not block or touch a store; it adds
/// keys to queues.
pub type Wake = Box<dyn FnOnce() + Send>;

impl Awaited {
    /// Whether an object, as it is held under the awaited key, is no longer in the way.
    fn is_settled_by(&self, held: Option<&AnyObject>) -> bool {
        let held = held.map(|object| object.meta());
        match self {
            Self::Version(_) => true,
            Self::Deletion(_, uid) => held.is_none_or(|meta| meta.uid != *uid || meta.is_deleting()),
            Self::Release(_, uid) => held.is_none_or(|meta| meta.uid != *uid || meta.finalizers.is_empty()),
        }
    }
}

/// Those who wait for a store.
#[derive(Default)]
pub(super) struct Waiters {
    versions: BTreeMap<u64, Vec<Wake>>,
    objects: HashMap<Key, Vec<(Awaited, Wake)>>,
}

impl Waiters {
    /// Whether anybody waits for an object.
    pub(super) fn know_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    fn add(&mut self, awaited: Awaited, wake: Wake) {
        match &awaited {
            Awaited::Version(version) => self.versions.entry(*version).or_default().push(wake),
            Awaited::Deletion(key, _) | Awaited::Release(key, _) => {
                self.objects.entry(key.clone()).or_default().push((awaited, wake));
            }
        }
    }

    /// The store is at this version.
    pub(super) fn reached(&mut self, version: &str) {
        while let Some(first) = self.versions.first_entry()
            && is_reached(version, *first.key())
        {
            first.remove().into_iter().for_each(|wake| wake());
        }
    }

    /// The object at this key is now `held`.
    pub(super) fn changed(&mut self, key: &Key, held: Option<&AnyObject>) {
        let Some(waiting) = self.objects.get_mut(key) else { return };
        let settled = waiting.extract_if(.., |(awaited, _)| awaited.is_settled_by(held));
        settled.for_each(|(_, wake)| wake());
        if waiting.is_empty() {
            self.objects.remove(key);
        }
    }

    /// Any object may have changed.
    pub(super) fn replaced(&mut self, get: impl Fn(&Key) -> Option<AnyObject>) {
        let keys: Vec<Key> = self.objects.keys().cloned().collect();
        for key in keys {
            self.changed(&key, get(&key).as_ref());
        }
    }
}

impl Store {
    /// Whether the store shows what is awaited.
    pub fn shows(&self, awaited: &Awaited) -> bool {
        match awaited {
            Awaited::Version(version) => is_reached(&self.resource_version(), *version),
            Awaited::Deletion(key, _) | Awaited::Release(key, _) => {
                awaited.is_settled_by(self.get(key).as_ref())
            }
        }
    }

    /// Calls `wake` as soon as the store shows what is awaited: now, if it does.
    pub fn when_shown(&self, awaited: Awaited, wake: Wake) {
        // What is shown changes under this lock alone: nothing comes between the look and the note.
        let mut handlers = self.handlers.lock();
        if self.shows(&awaited) {
            drop(handlers);
            wake();
        } else {
            handlers.waiters.add(awaited, wake);
        }
    }
}

/// A store whose version is no number cannot be waited for; one without a version holds nothing yet.
fn is_reached(at: &str, version: u64) -> bool {
    at.parse().map_or(!at.is_empty(), |at: u64| at >= version)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::kinds::PODS;
    use crate::api::meta::ObjectMeta;
    use crate::api::pod::Pod;
    use crate::wire::Time;

    fn pod(uid: &str, version: &str, deleting: bool, finalizers: &[&str]) -> AnyObject {
        let metadata = ObjectMeta {
            name: "a".into(),
            namespace: "ns".into(),
            uid: uid.into(),
            resource_version: version.into(),
            deletion_timestamp: if deleting { Time::from_seconds(1) } else { None },
            finalizers: finalizers.iter().map(|&name| name.into()).collect(),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    fn key() -> Key {
        Key::new("ns", "a")
    }

    /// Waits, and tells how often it was woken.
    fn wait(store: &Store, awaited: Awaited) -> impl Fn() -> usize + use<> {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let wake = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        store.when_shown(awaited, Box::new(wake));
        move || woken.load(Ordering::Relaxed)
    }

    #[test]
    fn who_waits_for_a_version_is_woken_when_it_is_reached_and_once() {
        let store = Store::new(&PODS);
        let (early, late) = (wait(&store, Awaited::Version(5)), wait(&store, Awaited::Version(7)));
        store.replace(vec![], "4");
        assert_eq!((early(), late()), (0, 0));
        store.bookmark("6");
        assert_eq!((early(), late()), (1, 0));
        store.upsert(&pod("1", "9", false, &[]));
        store.bookmark("10");
        assert_eq!((early(), late()), (1, 1));
        assert_eq!(wait(&store, Awaited::Version(10))(), 1, "it is there already");
    }

    #[test]
    fn who_waits_for_an_object_is_woken_by_that_one_alone() {
        type Change = fn(&Store);
        let deletion = || Awaited::Deletion(key(), "1".into());
        let release = || Awaited::Release(key(), "1".into());
        let cases: [(&str, Awaited, Change, usize); 9] = [
            ("a change", deletion(), |store| store.upsert(&pod("1", "6", false, &[])), 0),
            ("a deletion begins", deletion(), |store| store.upsert(&pod("1", "6", true, &["f"])), 1),
            ("it goes", deletion(), |store| store.remove(&pod("1", "6", true, &[])), 1),
            ("another of the name", deletion(), |store| store.upsert(&pod("2", "6", false, &[])), 1),
            ("a deletion that is held", release(), |store| store.upsert(&pod("1", "6", true, &["f"])), 0),
            ("nothing holds it", release(), |store| store.upsert(&pod("1", "6", true, &[])), 1),
            ("it goes for good", release(), |store| store.remove_key(&key(), "6"), 1),
            ("a list without it", release(), |store| store.replace(vec![], "6"), 1),
            ("a list with it", release(), |store| store.replace(vec![pod("1", "6", true, &["f"])], "6"), 0),
        ];
        for (what, awaited, change, woken) in cases {
            let store = Store::new(&PODS);
            store.replace(vec![pod("1", "5", false, &["f"])], "5");
            let count = wait(&store, awaited.clone());
            assert_eq!(count(), 0, "{what}: too early");
            change(&store);
            assert_eq!(count(), woken, "{what}");
            assert_eq!(store.shows(&awaited), woken == 1, "{what}");
        }
    }
}
