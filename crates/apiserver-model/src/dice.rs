//! Randomness that follows from the seed, in streams of their own: taking a fault away leaves what users do as it was.

use std::time::Duration;

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of this name.
    pub fn new(seed: u64, name: &str) -> Self {
        let mixed = name.bytes().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
        });
        let mut dice = Self(mixed);
        dice.number();
        dice
    }

    /// The next number, of all that there are.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// A number from `from` to `to`, both included.
    pub fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1) as usize) as i64
    }

    /// Whether something happens that does so `times` times in a thousand.
    pub fn permille(&mut self, times: u32) -> bool {
        self.below(1000) < times as usize
    }

    /// One of these; `None` if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }

    /// A time between these, in milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.number() % ((to - from) * 1000 + 1))
    }
}
