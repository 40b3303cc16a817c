//! A bounded cache with a time to live, and calls shared by all who ask the same at once.
//!
//! Keys are keyed hashes: neither holds a token or what a token could be told from.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use ring::hmac;
use tokio::time::Instant;

use super::error::ServeError;
use crate::random::HashMap;

/// What a cache is asked by.
pub(super) type Digest = [u8; 32];

/// Hashes with a key that only this process has, so that a digest tells nothing to who gets to see it.
pub(super) struct Hasher(hmac::Key);

impl Hasher {
    pub(super) fn new() -> Result<Self, ServeError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_unspecified| ServeError::Random)?;
        Ok(Self(key))
    }

    /// The digest of a list of parts; no two different lists run into the same bytes.
    pub(super) fn digest<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

struct Entry<V> {
    value: V,
    expires: Instant,
    serial: u64,
}

struct Entries<V> {
    by_key: HashMap<Digest, Entry<V>>,
    /// In the order of insertion; an entry replaced since then has another serial.
    order: VecDeque<(u64, Digest)>,
    serial: u64,
}

/// At most `capacity` values, the oldest going first.
pub(super) struct TtlCache<V> {
    capacity: usize,
    entries: Mutex<Entries<V>>,
}

impl<V: Clone> TtlCache<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let entries = Entries { by_key: HashMap::default(), order: VecDeque::new(), serial: 0 };
        Self { capacity, entries: Mutex::new(entries) }
    }

    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        let mut entries = self.entries.lock();
        let entry = entries.by_key.get(key)?;
        if entry.expires > Instant::now() {
            return Some(entry.value.clone());
        }
        entries.by_key.remove(key);
        None
    }

    /// Keeps a value; a zero time to live keeps nothing.
    pub(super) fn insert(&self, key: Digest, value: V, ttl: Duration) {
        let now = Instant::now();
        let Some(expires) = now.checked_add(ttl).filter(|_| !ttl.is_zero()) else { return };
        let mut guard = self.entries.lock();
        let entries = &mut *guard;
        entries.serial += 1;
        let serial = entries.serial;
        entries.by_key.insert(key, Entry { value, expires, serial });
        entries.order.push_back((serial, key));
        while let Some((serial, key)) = entries.order.front() {
            let current = entries.by_key.get(key).filter(|entry| entry.serial == *serial);
            let dead = current.is_none_or(|entry| entry.expires <= now);
            if !dead && entries.order.len() <= self.capacity {
                break;
            }
            if current.is_some() {
                entries.by_key.remove(key);
            }
            entries.order.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().by_key.len()
    }
}

type Flight<V> = BoxFuture<'static, V>;

/// Calls under way. Whoever asks what is being asked already waits for that answer; a call that nobody waits for
/// any more is dropped.
pub(super) struct Flights<V: Clone> {
    running: Mutex<HashMap<Digest, WeakShared<Flight<V>>>>,
}

impl<V: Clone> Default for Flights<V> {
    fn default() -> Self {
        Self { running: Mutex::new(HashMap::default()) }
    }
}

impl<V: Clone> Flights<V> {
    /// The answer of the call under this key; `start` makes the call if there is none.
    pub(super) async fn join(&self, key: Digest, start: impl FnOnce() -> Flight<V>) -> V {
        let flight = self.enter(key, start);
        let answer = flight.await;
        let mut running = self.running.lock();
        if running.get(&key).is_some_and(|flight| flight.upgrade().is_none()) {
            running.remove(&key);
        }
        answer
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.running.lock().len()
    }

    fn enter(&self, key: Digest, start: impl FnOnce() -> Flight<V>) -> Shared<Flight<V>> {
        let mut running = self.running.lock();
        if let Some(flight) = running.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        // Calls that were given up left their (dead) entries behind.
        if running.len() >= 64 {
            running.retain(|_, flight| flight.upgrade().is_some());
        }
        let flight = start().shared();
        if let Some(weak) = flight.downgrade() {
            running.insert(key, weak);
        }
        flight
    }
}

impl<V: Clone> fmt::Debug for Flights<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("running", &self.running.lock().len()).finish()
    }
}
