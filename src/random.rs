//! Randomness: pauses that are not to fall together, and names that nobody else has.
//!
//! Each thread has a generator of its own, which the system seeds; a thread that is given a seed draws the same numbers in
//! every run. This is the only place that makes generators. It is not for secrets.

use std::cell::RefCell;

use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng as _};
use uuid::Uuid;

thread_local! {
    static GENERATOR: RefCell<StdRng> = RefCell::new(StdRng::from_os_rng());
}

/// From now on what this thread draws follows from `seed`.
pub fn seed(seed: u64) {
    GENERATOR.set(StdRng::seed_from_u64(seed));
}

/// A number from 0 to 1, which it never is.
pub fn fraction() -> f64 {
    GENERATOR.with_borrow_mut(Rng::random)
}

/// A number out of a range, which is not empty.
pub fn within<T: SampleUniform>(range: impl SampleRange<T>) -> T {
    GENERATOR.with_borrow_mut(|generator| generator.random_range(range))
}

/// A UUID of version 4.
pub fn uuid() -> Uuid {
    uuid::Builder::from_random_bytes(GENERATOR.with_borrow_mut(Rng::random)).into_uuid()
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
}
