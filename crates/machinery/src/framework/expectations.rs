//! Expectations: a key is not reconciled again before the caches have seen what its last plan wrote.
//!
//! Without this a stale cache makes duplicates: pods that were created but not yet seen would be created again. Counting
//! expected events, as controllers traditionally do, errs when an event is missed or belongs to something else; this
//! compares resource versions instead (KEP-5504: they are comparable integers). After a write the cache of that kind must
//! have reached the version in the server's answer. After a delete the object must be gone from the cache or be seen
//! terminating; after the write that takes the last finalizer off a terminating object, whose answer shows the version
//! before, it must be gone or be seen without finalizers.
//!
//! A plan's writes are on record before the first of them is sent. Whatever ends the reconcile without an answer (a lost
//! connection, an aborted task, a panic) leaves "this may have been written" behind, which a live read made later decides:
//! the cache must have seen the newest of the objects that it finds, and that those which it does not find are gone. (Not
//! the version of the read itself, which moves on with every write of any kind: where nothing else happens to the kind, a
//! cache only hears of it by the next bookmark.)
//!
//! Expectations outlive the instance of a controller: they belong to the process, name kinds and not stores, and are
//! checked against the caches that the present instance reads. They end when they are met or when their key's object is
//! gone, never by time (but see [`LoopSettings::longest_wait`](super::LoopSettings::longest_wait)). Nothing here waits: a
//! check is a look into the caches, and changes nothing.
//!
//! A serial loop gives out values that must be unique. So when an instance of it starts, every object of its kind counts as something
//! that may have been written: by another process that led before, and not shown by a first list from an API server that lags.
//!
//! A restore of etcd ends the [epoch](crate::informer::Epoch) in which something was written. Caches of a later epoch are filled by lists
//! that began after the restore was noticed: they show each write that was answered before, unless the restore has undone it. So
//! these expectations end with the epoch. A write that has no answer by then, or is answered later, is decided by a live read.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::caches::Caches;
use crate::api::Kind;
use crate::bounds::memory_size;
use crate::executor::{Effect, WriteEffect};
use crate::informer::Awaited;
use crate::model::Key;
use crate::model::plan::Plan;
use crate::random::{HashMap, HashSet};
use crate::wire::{Str, Uid};

/// For how long the server may still carry out a request that was given up: a connection that broke, a stream that was
/// reset. What a live read tells before that is over may be too early.
pub const MAY_STILL_LAND: Duration = Duration::from_secs(1);

/// Objects of one kind and namespace that one plan may leave in doubt by name; more are looked up by a list.
const NAMED: usize = 8;

/// Below this number of keys nobody looks for those that nobody asks for any more. Each loop may keep as many.
const SWEEP_FLOOR: usize = 64;

/// The expectations of all controllers, for as long as the process lives.
#[derive(Debug, Default)]
pub struct ExpectationsRegistry(Mutex<HashMap<LoopId, Arc<Expectations>>>);

/// A loop of a controller: the controller's name, the queue's, and the number of earlier loops of the controller with that queue name.
/// Loops may share the name of their metrics, and their keys mean different objects.
type LoopId = (&'static str, &'static str, usize);

impl ExpectationsRegistry {
    /// Those of a loop, by the names of its controller and its queue, and by how many loops of that queue name come before it.
    pub fn of(&self, controller: &'static str, queue: &'static str, earlier: usize) -> Arc<Expectations> {
        Arc::clone(self.0.lock().entry((controller, queue, earlier)).or_default())
    }
}

/// The expectations of one loop's keys.
#[derive(Debug, Default)]
pub struct Expectations(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    keys: HashMap<Key, Expected>,
    /// The keys with writes that were given up, by kind and namespace of what they may have written: a live read concerns these
    /// and no others, of which there may be a hundred thousand.
    given_up: HashMap<(&'static Kind, Str), HashSet<Key>>,
    /// How many keys there were after the last sweep.
    swept: usize,
    /// The number of the latest epoch of which caches were seen.
    epoch: u64,
}

/// What was written for one key.
#[derive(Debug)]
struct Expected {
    since: Instant,
    /// The version of the key's own object, when something was last written for it.
    object_version: Option<u64>,
    awaited: Vec<(&'static Kind, Awaited)>,
    unanswered: Vec<Unanswered>,
}

/// Something that may have been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The kind of object.
    pub kind: &'static Kind,
    /// Where; without a name, anywhere in the namespace.
    pub place: Key,
    /// When nobody waited for the answer any more; `None` while somebody does.
    given_up: Option<Instant>,
}

/// What a live read found.
#[derive(Clone, Debug, Default)]
pub struct LiveObjects {
    /// Resource version of the read.
    pub version: u64,
    /// The newest version of an object; `None` where there is none.
    pub newest: Option<u64>,
    /// The objects.
    pub uids: HashSet<Uid>,
}

impl LiveObjects {
    /// One more object was found.
    pub fn add(&mut self, uid: Uid, version: u64) {
        self.newest = self.newest.max(Some(version));
        self.uids.insert(uid);
    }
}

/// Whether a key may be reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The caches have seen everything.
    Ready,
    /// They have not yet: the first thing that they lack.
    Waiting(&'static Kind, Awaited),
    /// This may have been written. It must be read live, not before [`Unanswered::readable_at`], and what is there be given to
    /// [`Expectations::found`].
    Unanswered(Unanswered),
}

impl Expectations {
    /// A plan is about to be performed for `key`: from here on its writes may have been made, until they are answered.
    pub fn begin<'a>(&'a self, key: &'a Key, plan: &Plan, caches: &Caches) -> Intent<'a> {
        let mut unanswered = Vec::new();
        for write in plan.writes().filter(|write| caches.cover(write.kind)) {
            note(&mut unanswered, write.kind, &write.key);
        }
        if !unanswered.is_empty() {
            let mut pending = self.in_epoch_of(caches);
            pending.sweep(caches);
            let expected = pending.keys.entry(key.clone()).or_insert_with(Expected::new);
            expected.object_version = caches.own_version(key);
            expected.unanswered.append(&mut unanswered);
        }
        Intent { expectations: self, key }
    }

    /// An instance of the loop starts: from here on any object of the loop's kind may have been written by another process, until a live
    /// list shows that the cache is not behind. Each instance needs a list of its own. Does nothing if the loop's keys name no objects.
    pub fn require_current(&self, key: &Key, caches: &Caches) {
        let Some(kind) = caches.own_kind() else { return };
        // The list may begin at once: no request of this process is under way.
        let now = Instant::now();
        let since = now.checked_sub(MAY_STILL_LAND).unwrap_or(now);
        let all = Unanswered { kind, place: Key::EMPTY, given_up: Some(since) };
        let mut pending = self.in_epoch_of(caches);
        let Pending { keys, given_up, .. } = &mut *pending;
        given_up.entry((kind, Str::EMPTY)).or_default().insert(key.clone());
        let expected = keys.entry(key.clone()).or_insert_with(Expected::new);
        let is_same =
            |each: &Unanswered| each.kind == all.kind && each.place == all.place && each.given_up.is_some();
        // An instance that has ended before its list leaves its own entry, which the next list decides as well.
        if !expected.unanswered.iter().any(is_same) {
            expected.unanswered.push(all);
        }
    }

    /// A live read of `place`, begun at `began`, has found this. The caches must have seen it before the keys concerned
    /// are reconciled: all that may have written there and gave up early enough.
    pub fn found(
        &self,
        kind: &'static Kind,
        place: &Key,
        began: Instant,
        live: &LiveObjects,
        caches: &Caches,
    ) {
        // Most of the keys share one place: the namespace.
        let mut missing: HashMap<Key, Vec<(Key, Uid)>> = HashMap::default();
        let mut pending = self.in_epoch_of(caches);
        let concerned = (kind, place.namespace.clone());
        let mut waiting = pending.given_up.remove(&concerned).unwrap_or_default();
        waiting.retain(|key| {
            let Some(expected) = pending.keys.get_mut(key) else { return false };
            let is_told = |each: &mut Unanswered| each.is_told_by(kind, place, began);
            let told: Vec<Unanswered> = expected.unanswered.extract_if(.., is_told).collect();
            for Unanswered { place, .. } in told {
                let gone = missing
                    .entry(place)
                    .or_insert_with_key(|place| caches.missing(kind, place, live).collect());
                let gone = gone.iter().map(|(key, uid)| Awaited::Deletion(key.clone(), uid.clone()));
                expected.awaited.extend(gone.map(|awaited| (kind, awaited)));
                if let Some(newest) = live.newest {
                    expected.require(kind, newest);
                }
            }
            expected.unanswered.iter().any(|each| each.is_filed_under(&concerned))
        });
        if !waiting.is_empty() {
            pending.given_up.insert(concerned, waiting);
        }
    }

    /// Whether `key` may be reconciled.
    pub fn check(&self, key: &Key, caches: &Caches) -> Readiness {
        let pending = self.in_epoch_of(caches);
        pending.keys.get(key).map_or(Readiness::Ready, |expected| expected.check(key, caches))
    }

    /// `key` is reconciled now: what was expected has come.
    pub fn met(&self, key: &Key) {
        let mut pending = self.0.lock();
        if let Some(expected) = pending.keys.remove(key) {
            pending.unfile(key, &expected);
        }
    }

    /// Returns what is expected in the epoch of these caches.
    fn in_epoch_of(&self, caches: &Caches) -> MutexGuard<'_, Pending> {
        let (mut pending, epoch) = (self.0.lock(), caches.epoch().number());
        if pending.epoch < epoch {
            pending.epoch = epoch;
            pending.forget_answers();
        }
        pending
    }

    /// How long ago the first of the writes was made that `key` may have to wait for.
    pub fn waited(&self, key: &Key) -> Duration {
        self.0.lock().keys.get(key).map(|expected| expected.since.elapsed()).unwrap_or_default()
    }

    /// Number of keys of which something is expected.
    pub fn len(&self) -> usize {
        self.0.lock().keys.len()
    }

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The writes of a plan that is being performed. When this is dropped before they are [`Intent::answered`], they may have been
/// made.
#[derive(Debug)]
#[must_use = "when the intent is dropped, the results of the plan's writes count as unknown"]
pub struct Intent<'a> {
    expectations: &'a Expectations,
    key: &'a Key,
}

impl Intent<'_> {
    /// The plan has come to its end: this is what it did, and the caches must see it. After the end of the epoch the answers count for
    /// nothing: each may be of either epoch, so all writes are given up.
    pub fn answered(self, effects: &[Effect], caches: &Caches) {
        if caches.epoch().is_over() {
            return;
        }
        let mut pending = self.expectations.in_epoch_of(caches);
        let Some(expected) = pending.keys.get_mut(self.key) else { return };
        expected.unanswered.retain(|each| each.given_up.is_some());
        for effect in effects.iter().filter(|effect| caches.cover(effect.kind)) {
            expected.record(effect);
        }
        if expected.unanswered.is_empty() && expected.awaited.is_empty() {
            pending.keys.remove(self.key);
        }
    }
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        let mut pending = self.expectations.0.lock();
        let Pending { keys, given_up, .. } = &mut *pending;
        let Some(expected) = keys.get_mut(self.key) else { return };
        for each in expected.unanswered.iter_mut().filter(|each| each.given_up.is_none()) {
            each.given_up = Some(Instant::now());
            let filed = (each.kind, each.place.namespace.clone());
            given_up.entry(filed).or_default().insert(self.key.clone());
        }
    }
}

impl Pending {
    /// Forgets all answers. What has none is kept until it is decided, or the key's object is absent from any later cache: versions of
    /// before the restore do not count.
    fn forget_answers(&mut self) {
        self.keys.retain(|_, expected| {
            expected.object_version = expected.object_version.map(|_| 0);
            expected.awaited.clear();
            !expected.unanswered.is_empty()
        });
        self.swept = 0;
    }

    /// Forgets what nobody will ask for: keys that had no object of their own, or lost it, and are not queued again. Costs
    /// next to nothing for each key that comes, and keeps no more than twice what is really expected.
    fn sweep(&mut self, caches: &Caches) {
        if self.keys.len() >= memory_size(SWEEP_FLOOR).max(self.swept * 2) {
            self.keys.retain(|key, expected| expected.check(key, caches) != Readiness::Ready);
            self.swept = self.keys.len();
            let Self { keys, given_up, .. } = self;
            given_up.retain(|_, waiting| {
                waiting.retain(|key| keys.contains_key(key));
                !waiting.is_empty()
            });
        }
    }

    /// Nothing is expected of a key any more.
    fn unfile(&mut self, key: &Key, expected: &Expected) {
        for each in &expected.unanswered {
            let filed = (each.kind, each.place.namespace.clone());
            if let Some(waiting) = self.given_up.get_mut(&filed) {
                waiting.remove(key);
                if waiting.is_empty() {
                    self.given_up.remove(&filed);
                }
            }
        }
    }
}

impl Expected {
    fn new() -> Self {
        Self { since: Instant::now(), object_version: None, awaited: Vec::new(), unanswered: Vec::new() }
    }

    fn check(&self, key: &Key, caches: &Caches) -> Readiness {
        if self.object_version.is_some_and(|version| caches.is_own_gone(key, version)) {
            return Readiness::Ready;
        }
        if let Some(unanswered) = self.unanswered.first() {
            return Readiness::Unanswered(unanswered.clone());
        }
        match self.awaited.iter().find(|(kind, awaited)| !caches.show(kind, awaited)) {
            Some((kind, awaited)) => Readiness::Waiting(kind, awaited.clone()),
            None => Readiness::Ready,
        }
    }

    fn record(&mut self, effect: &Effect) {
        match &effect.change {
            WriteEffect::Stored(version) => self.require_text(effect.kind, version),
            WriteEffect::Released(uid, version) => {
                self.require_text(effect.kind, version);
                self.awaited.push((effect.kind, Awaited::Release(effect.key.clone(), uid.clone())));
            }
            WriteEffect::Deleted(uid) => {
                self.awaited.push((effect.kind, Awaited::Deletion(effect.key.clone(), uid.clone())));
            }
            WriteEffect::Unknown => {
                // It is given up when the intent is dropped, which is now.
                note(&mut self.unanswered, effect.kind, &effect.key);
            }
            WriteEffect::Swept | WriteEffect::Nothing => {}
        }
    }

    fn require_text(&mut self, kind: &'static Kind, version: &str) {
        if let Ok(version) = version.parse() {
            self.require(kind, version);
        }
    }

    fn require(&mut self, kind: &'static Kind, version: u64) {
        for (held, awaited) in &mut self.awaited {
            if let Awaited::Version(at) = awaited
                && *held == kind
            {
                *at = version.max(*at);
                return;
            }
        }
        self.awaited.push((kind, Awaited::Version(version)));
    }
}

impl Unanswered {
    /// From when on a live read tells what became of it; `None` while its answer may still come.
    pub fn readable_at(&self) -> Option<Instant> {
        self.given_up.map(|at| at + MAY_STILL_LAND)
    }

    /// Whether it was given up, and is of this kind and namespace.
    fn is_filed_under(&self, (kind, namespace): &(&'static Kind, Str)) -> bool {
        self.given_up.is_some() && self.kind == *kind && self.place.namespace == *namespace
    }

    /// Whether a live read of `place` that was begun at `began` tells what became of it.
    fn is_told_by(&self, kind: &'static Kind, place: &Key, began: Instant) -> bool {
        let is_there =
            self.place == *place || (place.name.is_empty() && self.place.namespace == place.namespace);
        self.kind == kind && is_there && self.readable_at().is_some_and(|at| at <= began)
    }
}

/// Notes one more write, unless a note covers it already; many of one namespace become one note of the namespace.
fn note(unanswered: &mut Vec<Unanswered>, kind: &'static Kind, place: &Key) {
    let is_near = |each: &Unanswered| {
        each.kind == kind && each.given_up.is_none() && each.place.namespace == place.namespace
    };
    let near = || unanswered.iter().filter(|each| is_near(each));
    if near().any(|each| each.place.name.is_empty() || each.place == *place) {
        return;
    }
    let place = if near().count() < NAMED {
        place.clone()
    } else {
        unanswered.retain(|each| !is_near(each));
        Key::new(place.namespace.clone(), "")
    };
    unanswered.push(Unanswered { kind, place, given_up: None });
}

#[cfg(test)]
mod tests;
