//! Numbers that one seed decides.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must not be zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit as u64) as usize
    }

    /// Returns a number from `least` to `most`.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Returns true with this probability in percent.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the items, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns one of the items, each as often as its weight requires.
    pub(crate) fn weighted<'a, T>(&mut self, items: &'a [T], weight: impl Fn(&T) -> usize) -> &'a T {
        let mut at = self.below(items.iter().map(&weight).sum());
        for item in items {
            match at.checked_sub(weight(item)) {
                Some(left) => at = left,
                None => return item,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }
}

#[test]
fn weighted_choice_follows_the_weights() {
    let mut random = Random::new(7);
    let mut drawn = [0; 3];
    for _ in 0..10_000 {
        drawn[*random.weighted(&[0, 1, 2], |item| [0, 1, 3][*item])] += 1;
    }
    assert_eq!(drawn[0], 0);
    assert!((2_200..2_800).contains(&drawn[1]), "{drawn:?}");
}
