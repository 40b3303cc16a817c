//! Randomness: pauses that are not to fall together, names that nobody else has, and the order of hash maps.
//!
//! Each thread has a generator of its own, which the system seeds; a thread that is given a seed draws the same numbers in
//! every run, and the maps that it makes have the same order. This is the only place that makes generators and hashers. It
//! is not for secrets.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng as _};
use uuid::Uuid;

struct Generator {
    numbers: StdRng,
    /// What the hashers that this thread makes have in common.
    hashes: &'static SharedSeed,
}

thread_local! {
    static GENERATOR: RefCell<Generator> =
        RefCell::new(Generator { numbers: StdRng::from_os_rng(), hashes: &SECRET });
}

/// What those who choose keys must not know, or they could have all of them fall into one bucket.
static SECRET: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(StdRng::from_os_rng().random()));

/// From now on what this thread draws follows from `seed`.
pub fn seed(seed: u64) {
    GENERATOR.set(Generator { numbers: StdRng::seed_from_u64(seed), hashes: SharedSeed::global_fixed() });
}

fn draw<T>(draw: impl FnOnce(&mut StdRng) -> T) -> T {
    GENERATOR.with_borrow_mut(|generator| draw(&mut generator.numbers))
}

/// A number from 0 to 1, which it never is.
pub fn fraction() -> f64 {
    draw(Rng::random)
}

/// A number out of a range, which is not empty.
pub fn within<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    draw(|numbers| numbers.random_range(range))
}

/// A UUID of version 4.
pub fn uuid() -> Uuid {
    uuid::Builder::from_random_bytes(draw(Rng::random)).into_uuid()
}

/// A hash map whose order its thread's generator decides. Made by `default()`.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashSeed>;

/// A hash set whose order its thread's generator decides. Made by `default()`.
pub type HashSet<T> = hashbrown::HashSet<T, HashSeed>;

/// How a map hashes: foldhash by a seed of the map's own. Two words, to be shared by tables that belong together.
#[derive(Clone, Copy, Debug)]
pub struct HashSeed {
    own: u64,
    shared: &'static SharedSeed,
}

impl Default for HashSeed {
    /// Drawn from the thread's generator.
    fn default() -> Self {
        GENERATOR
            .with_borrow_mut(|generator| Self { own: generator.numbers.random(), shared: generator.hashes })
    }
}

impl HashSeed {
    /// Drawn from the system, for tables that live as long as the process and whose order nobody sees: what a thread draws
    /// must not hang on whether it was the first to use them.
    pub fn of_process() -> Self {
        Self { own: StdRng::from_os_rng().random(), shared: &SECRET }
    }
}

impl BuildHasher for HashSeed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        FoldHasher::with_seed(self.own, self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_that_a_thread_draws() {
        let draw = || (fraction().to_bits(), within(0..u64::MAX), uuid());
        seed(7);
        let first = [draw(), draw()];
        seed(7);
        assert_eq!([draw(), draw()], first);
        seed(8);
        assert_ne!([draw(), draw()], first);
        let elsewhere = std::thread::scope(|scope| scope.spawn(draw).join().unwrap());
        assert!(!first.contains(&elsewhere), "other threads have generators of their own");
        assert_ne!(first[0], first[1]);
        assert_eq!(first[0].2.get_version_num(), 4);
    }

    #[test]
    fn a_seed_decides_the_order_of_maps() {
        let orders = || -> [Vec<u32>; 2] {
            [(); 2].map(|()| (0..100).map(|key| (key, ())).collect::<HashMap<_, _>>().into_keys().collect())
        };
        seed(7);
        let first = orders();
        HashSeed::of_process();
        seed(7);
        assert_eq!(orders(), first, "of a process is not of its threads");
        assert_ne!(first[0], first[1], "each map has an order of its own");
        seed(8);
        assert_ne!(orders(), first);
        let [here, there] = [(); 2].map(|()| std::thread::scope(|scope| scope.spawn(orders).join().unwrap()));
        assert_ne!(here, there, "without a seed nobody knows it");
    }

    /// What a map costs beside its table: as much as std's.
    #[test]
    fn a_seed_is_two_words() {
        assert_eq!(size_of::<HashSeed>(), 16);
    }
}
