//! What both loops remember: what was written and the caches do not show yet, which volume is being bound, what failed a moment ago.
//! No binding rests on it: it saves conflicts, and the API server decides. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use coxswain_machinery::api::Object;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::Memory;
use coxswain_machinery::informer::{Awaited, Lister, downcast};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::{ExponentialBackoff, KeyBackoffs};
use coxswain_machinery::model::clock::SteadyClock;
#[cfg(test)]
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

use super::facts::is_meant_for;
use super::note::{Note, Recycling};
use super::recycler::Recycler;

const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_millis(500), Duration::from_secs(122));

/// What is remembered.
#[derive(Debug)]
pub(super) struct Ledger {
    claims: Lister<PersistentVolumeClaim>,
    volumes: Lister<PersistentVolume>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    claims: HashMap<Key, Arc<PersistentVolumeClaim>>,
    volumes: HashMap<Key, Arc<PersistentVolume>>,
    /// Volumes by name that a claim takes, and claims by key that take one.
    reserved: HashMap<Str, Reservation>,
    takers: HashMap<Key, Str>,
    /// Recyclings that have begun, by the volumes' keys. Each of them holds for one release of one volume.
    recyclers: HashMap<Key, Recycler>,
    /// Measures backoffs and the age of recyclings. The wall clock may be set while one runs.
    clock: SteadyClock,
    failures: KeyBackoffs<(Key, Uid)>,
}

#[derive(Debug)]
struct Reservation {
    claim: Key,
    /// The volume as it was read: once the cache shows another version, it shows what was written.
    version: Str,
    in_flight: bool,
}

impl Ledger {
    pub(super) fn new(claims: Lister<PersistentVolumeClaim>, volumes: Lister<PersistentVolume>) -> Self {
        let held = Held {
            claims: HashMap::default(),
            volumes: HashMap::default(),
            reserved: HashMap::default(),
            takers: HashMap::default(),
            recyclers: HashMap::default(),
            clock: SteadyClock::start(),
            failures: KeyBackoffs::new(BACKOFF),
        };
        Self { claims, volumes, held: Mutex::new(held) }
    }

    /// A claim as it was written last, or as the cache has it.
    pub(super) fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        let cached = self.claims.get(key)?;
        let written = self.held.lock().claims.get(key).cloned();
        Some(written.filter(|written| is_ahead(&self.claims, written, &cached)).unwrap_or(cached))
    }

    /// A volume as it was written last, or as the cache has it.
    pub(super) fn volume(&self, key: &Key) -> Option<Arc<PersistentVolume>> {
        let cached = self.volumes.get(key)?;
        let written = self.held.lock().volumes.get(key).cloned();
        Some(written.filter(|written| is_ahead(&self.volumes, written, &cached)).unwrap_or(cached))
    }

    /// Volumes that were written last as those that are meant for a claim, where the cache does not show that yet.
    pub(super) fn written_for(&self, claim: &ObjectMeta) -> Vec<Arc<PersistentVolume>> {
        let meant: Vec<Key> = {
            let held = self.held.lock();
            let meant = held.volumes.iter().filter(|(_, volume)| is_meant_for(volume, claim));
            meant.map(|(key, _)| key.clone()).collect()
        };
        let latest = meant.iter().filter_map(|key| self.volume(key));
        latest.filter(|volume| is_meant_for(volume, claim)).collect()
    }

    /// Whether a volume is being bound, or was bound a moment ago, to another claim than this.
    pub(super) fn is_taken(&self, volume: &PersistentVolume, claim: &Key) -> bool {
        let held = self.held.lock();
        held.reserved.get(&volume.metadata.name).is_some_and(|reserved| {
            reserved.claim != *claim
                && (reserved.in_flight || reserved.version == volume.metadata.resource_version)
        })
    }

    /// Whether the writes that bind a volume are under way.
    pub(super) fn is_being_bound(&self, volume: &str) -> bool {
        self.held.lock().reserved.get(volume).is_some_and(|reserved| reserved.in_flight)
    }

    /// The recycling that has begun last at a volume's key. It may be another volume's, or that of an earlier release.
    pub(super) fn recycler(&self, volume: &Key) -> Option<Recycler> {
        self.held.lock().recyclers.get(volume).cloned()
    }

    /// Whether the backoff of an object runs after an operation on it has failed.
    pub(super) fn backs_off(&self, key: &Key, uid: &Uid) -> bool {
        let held = self.held.lock();
        held.failures.remaining(&(key.clone(), uid.clone()), held.clock.now()).is_some()
    }

    /// A plan for a key is about to be carried out.
    pub(super) fn planned(&self, key: &Key, note: &Note) {
        let mut held = self.held.lock();
        if note.recycling == Some(Recycling::Succeeded)
            && let Some(recycler) = held.recyclers.get_mut(key)
        {
            recycler.succeed();
        }
        if note.reserves.is_none() && !note.answers.is_empty() {
            // Still the same reconcile.
            return;
        }
        held.release(key);
        if let Some((volume, version)) = &note.reserves {
            let reservation = Reservation { claim: key.clone(), version: version.clone(), in_flight: true };
            held.reserved.insert(volume.clone(), reservation);
            held.takers.insert(key.clone(), volume.clone());
        }
    }

    /// A reconcile of a key has ended; whether it failed.
    pub(super) fn ended(&self, key: &Key, has_failed: bool) {
        let mut held = self.held.lock();
        if has_failed {
            held.release(key);
        } else if let Some(volume) = held.takers.get(key).cloned()
            && let Some(reserved) = held.reserved.get_mut(&volume)
        {
            reserved.in_flight = false;
        }
        let shown = |version: &Str, shows: &dyn Fn(Awaited) -> bool| {
            version.parse().is_ok_and(|version| shows(Awaited::Version(version)))
        };
        let (claims, volumes) = (&self.claims, &self.volumes);
        held.claims.retain(|_, written| {
            !shown(&written.metadata.resource_version, &|awaited| claims.store().shows(&awaited))
        });
        held.volumes.retain(|_, written| {
            !shown(&written.metadata.resource_version, &|awaited| volumes.store().shows(&awaited))
        });
    }

    /// Returns the time since a recycling began.
    pub(super) fn age(&self, recycler: &Recycler) -> Duration {
        self.held.lock().clock.now().since(recycler.begun())
    }

    /// Stops the clock at a time, for tests.
    #[cfg(test)]
    pub(super) fn stop_clock(&self, at: SteadyTime) {
        self.held.lock().clock = SteadyClock::stopped_at(at);
    }

    /// What is left of it, for tests: objects, reservations.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.claims.len() + held.volumes.len(), held.reserved.len())
    }
}

impl Held {
    fn release(&mut self, claim: &Key) {
        if let Some(volume) = self.takers.remove(claim)
            && self.reserved.get(&volume).is_some_and(|reserved| reserved.claim == *claim)
        {
            self.reserved.remove(&volume);
        }
    }
}

/// Whether an object that was written is newer than the cache: an object of the same UID whose version the cache has not reached.
fn is_ahead<T: Object>(lister: &Lister<T>, written: &T, cached: &T) -> bool {
    let version = written.meta().resource_version.parse();
    written.meta().uid == cached.meta().uid
        && version.is_ok_and(|version| !lister.store().shows(&Awaited::Version(version)))
}

impl Memory<Note> for Ledger {
    fn commit(&self, key: &Key, note: Note) {
        let mut held = self.held.lock();
        for answer in note.answers {
            let at = Key::of(answer.meta());
            if let Some(volume) = downcast::<PersistentVolume>(answer.clone()) {
                held.volumes.insert(at, volume);
            } else if let Some(claim) = downcast::<PersistentVolumeClaim>(answer) {
                held.claims.insert(at, claim);
            }
        }
        match note.recycling {
            Some(Recycling::Begins(release, at)) => {
                let recycler = Recycler::begins(release, at, held.clock.now());
                held.recyclers.insert(key.clone(), recycler);
            }
            Some(Recycling::Created(pod)) => {
                if let Some(begun) = held.recyclers.remove(key) {
                    held.recyclers.insert(key.clone(), begun.with_pod(pod));
                }
            }
            Some(Recycling::Succeeded | Recycling::Ended) => drop(held.recyclers.remove(key)),
            None => {}
        }
        if let Some(uid) = note.failed {
            let now = held.clock.now();
            held.failures.fail((key.clone(), uid), now);
            held.failures.sweep(now);
        }
    }
}
