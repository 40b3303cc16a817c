//! One shared copy of what many cached objects repeat: strings and whole label sets.
//!
//! The pools hold strong references and are swept when they have doubled since the last sweep, so an entry that
//! nobody uses any more is dropped and the cost stays constant per insertion. Nothing here is ever on a path that
//! awaits.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, LazyLock};

use hashbrown::HashTable;
use parking_lot::Mutex;

use super::text::Str;

/// A sorted list of key and value.
pub(super) type Pairs = [(Str, Str)];

/// Shards keep the lock uncontended while many informers decode at once.
const SHARDS: usize = 16;
/// A pool smaller than this is not worth sweeping.
const SWEEP_FLOOR: usize = 1024;

struct Shard<T: ?Sized> {
    table: HashTable<Arc<T>>,
    sweep_at: usize,
}

struct Pool<T: ?Sized> {
    hasher: RandomState,
    shards: [Mutex<Shard<T>>; SHARDS],
}

impl<T: ?Sized + Hash + Eq> Pool<T>
where
    for<'a> Arc<T>: From<&'a T>,
{
    fn new() -> Self {
        let shard = || Mutex::new(Shard { table: HashTable::new(), sweep_at: SWEEP_FLOOR / SHARDS });
        Self { hasher: RandomState::new(), shards: std::array::from_fn(|_| shard()) }
    }

    fn get(&self, value: &T) -> Arc<T> {
        let hash = self.hasher.hash_one(value);
        let mut shard = self.shards[(hash >> 60) as usize % SHARDS].lock();
        if let Some(found) = shard.table.find(hash, |held| **held == *value) {
            return Arc::clone(found);
        }
        if shard.table.len() >= shard.sweep_at {
            shard.table.retain(|held| Arc::strong_count(held) > 1);
            shard.sweep_at = (shard.table.len() * 2).max(SWEEP_FLOOR / SHARDS);
            shard.table.shrink_to_fit(|held| self.hasher.hash_one(&**held));
        }
        let held = Arc::<T>::from(value);
        shard.table.insert_unique(hash, Arc::clone(&held), |held| self.hasher.hash_one(&**held));
        held
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().table.len()).sum()
    }
}

static TEXTS: LazyLock<Pool<str>> = LazyLock::new(Pool::new);
static PAIRS: LazyLock<Pool<Pairs>> = LazyLock::new(Pool::new);

pub(super) fn text(text: &str) -> Arc<str> {
    TEXTS.get(text)
}

pub(super) fn pairs(pairs: &Pairs) -> Arc<Pairs> {
    PAIRS.get(pairs)
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
