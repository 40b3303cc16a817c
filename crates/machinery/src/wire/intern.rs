//! One shared copy of what many cached objects repeat: strings and whole label sets.
//!
//! The pools hold strong references and are swept when they have doubled since the last sweep, so an entry that
//! nobody uses any more is dropped and the cost stays constant per insertion. A lookup never allocates: a label set
//! is found by the texts of the message being decoded, and only a new one is copied. Nothing here is ever on a path
//! that awaits.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use arcstr::ArcStr;
use hashbrown::HashTable;
use parking_lot::Mutex;

use super::text::Str;
use crate::random::HashSeed;

/// A sorted list of key and value.
pub(super) type Pairs = [(Str, Str)];

/// Shards keep the lock uncontended while many informers decode at once.
const SHARDS: usize = 16;
/// A pool smaller than this is not worth sweeping.
const SWEEP_FLOOR: usize = 1024;

/// A pointer that is counted.
trait Counted: Clone {
    /// Whether anyone beside the pool holds it.
    fn is_used(&self) -> bool;
}

impl<T: ?Sized> Counted for Arc<T> {
    fn is_used(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}

impl Counted for ArcStr {
    fn is_used(&self) -> bool {
        // One that is not counted is never freed.
        ArcStr::strong_count(self).is_none_or(|count| count > 1)
    }
}

struct Shard<T> {
    table: HashTable<T>,
    sweep_at: usize,
}

impl<T: Counted> Shard<T> {
    /// Drops entries that nobody uses.
    fn sweep(&mut self, rehash: impl Fn(&T) -> u64) {
        self.table.retain(|held| held.is_used());
        self.sweep_at = (self.table.len() * 2).max(SWEEP_FLOOR / SHARDS);
        self.table.shrink_to_fit(rehash);
    }
}

struct Pool<T> {
    hasher: HashSeed,
    shards: [Mutex<Shard<T>>; SHARDS],
}

impl<T: Counted> Pool<T> {
    fn new() -> Self {
        let shard = || Mutex::new(Shard { table: HashTable::new(), sweep_at: SWEEP_FLOOR / SHARDS });
        Self { hasher: HashSeed::of_process(), shards: std::array::from_fn(|_| shard()) }
    }

    /// The table takes its bucket from the lowest bits of the hash and its tag from the highest.
    fn shard(&self, hash: u64) -> &Mutex<Shard<T>> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<T> {
        self.shard(hash).lock().table.find(hash, |held| same(held)).cloned()
    }

    /// Files `value`, unless another thread has filed its equal meanwhile, and returns the one that is filed.
    fn put(&self, hash: u64, value: T, same: impl Fn(&T) -> bool, rehash: impl Fn(&T) -> u64) -> T {
        let mut shard = self.shard(hash).lock();
        if let Some(found) = shard.table.find(hash, |held| same(held)) {
            return found.clone();
        }
        if shard.table.len() >= shard.sweep_at {
            shard.sweep(&rehash);
        }
        shard.table.insert_unique(hash, value.clone(), |held| rehash(held));
        value
    }

    /// Drops entries that nobody uses from all shards.
    #[cfg(any(test, feature = "testing"))]
    fn sweep(&self, rehash: impl Fn(&T) -> u64) {
        for shard in &self.shards {
            shard.lock().sweep(&rehash);
        }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().table.len()).sum()
    }
}

static TEXTS: LazyLock<Pool<ArcStr>> = LazyLock::new(Pool::new);
static PAIRS: LazyLock<Pool<Arc<Pairs>>> = LazyLock::new(Pool::new);

pub(super) fn text(text: &str) -> ArcStr {
    let pool = &*TEXTS;
    let hash = pool.hasher.hash_one(text);
    pool.find(hash, |held| held == text).unwrap_or_else(|| {
        pool.put(hash, ArcStr::from(text), |held| held == text, |held| pool.hasher.hash_one(held.as_str()))
    })
}

/// The shared copy of a set of pairs; `pairs` are sorted and without duplicates.
pub(super) fn pairs<T: AsRef<str>>(pairs: &[(T, T)]) -> Arc<Pairs> {
    let pool = &*PAIRS;
    let hash = hash_pairs(pool.hasher, pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())));
    let same = |held: &Arc<Pairs>| {
        held.len() == pairs.len()
            && held
                .iter()
                .zip(pairs)
                .all(|(held, new)| held.0 == *new.0.as_ref() && held.1 == *new.1.as_ref())
    };
    if let Some(found) = pool.find(hash, same) {
        return found;
    }
    let shared = |(key, value): &(T, T)| (Str::interned(key.as_ref()), Str::interned(value.as_ref()));
    let value = pairs.iter().map(shared).collect::<Arc<Pairs>>();
    pool.put(hash, value, same, |held| hash_pairs(pool.hasher, held.iter().map(|(k, v)| (&**k, &**v))))
}

fn hash_pairs<'a>(hasher: HashSeed, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut state = hasher.build_hasher();
    for pair in pairs {
        pair.hash(&mut state);
    }
    state.finish()
}

/// A pool of values of another sort, of which equal ones are kept once.
pub struct Interner<T>(Pool<Arc<T>>);

impl<T: Hash + Eq> Interner<T> {
    /// An empty pool.
    pub fn new() -> Self {
        Self(Pool::new())
    }

    /// The one shared copy of `value`.
    pub fn share(&self, value: T) -> Arc<T> {
        let hash = self.0.hasher.hash_one(&value);
        if let Some(found) = self.0.find(hash, |held| **held == value) {
            return found;
        }
        let value = Arc::new(value);
        self.0.put(hash, Arc::clone(&value), |held| *held == value, |held| self.0.hasher.hash_one(held))
    }
}

impl<T: Hash + Eq> Default for Interner<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Drops all strings and maps that nobody uses. A test calls it before it measures memory; otherwise insertions do it.
#[cfg(any(test, feature = "testing"))]
pub fn sweep_interned() {
    let hasher = PAIRS.hasher;
    PAIRS.sweep(|held| hash_pairs(hasher, held.iter().map(|(key, value)| (&**key, &**value))));
    TEXTS.sweep(|held| TEXTS.hasher.hash_one(held.as_str()));
}

/// How much the pools hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternStats {
    /// Distinct strings.
    pub texts: usize,
    /// Distinct label and annotation sets.
    pub maps: usize,
}

/// The pools' present sizes, entries awaiting a sweep included.
pub fn intern_stats() -> InternStats {
    InternStats { texts: TEXTS.len(), maps: PAIRS.len() }
}
