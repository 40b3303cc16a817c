//! Random numbers that a seed repeats.

/// A generator of numbers (splitmix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        // The steps of the generator must not be steps from seed to seed, or the sequences of two seeds meet.
        let mixed = seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
        Self(mixed ^ mixed >> 29)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }

    /// Returns true once in `times` calls.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns any byte.
    pub fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// Returns one of these. The list is not empty.
    pub fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// Returns a text of `least` to `most` of these characters.
    pub fn text(&mut self, characters: &str, least: usize, most: usize) -> String {
        let characters: Vec<char> = characters.chars().collect();
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| characters[self.below(characters.len())]).collect()
    }

    /// Returns a number of `1` to `most` digits, often with zeros in front or at a border of a type.
    pub fn number(&mut self, most: usize) -> String {
        const BORDERS: &[&str] = &[
            "0",
            "1",
            "99",
            "100",
            "127",
            "128",
            "255",
            "256",
            "32768",
            "65535",
            "65536",
            "2147483647",
            "2147483648",
            "4294967295",
            "4294967296",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
        ];
        match self.below(8) {
            0 => self.one_of(BORDERS).to_owned(),
            1 => format!("0{}", self.text("0123456789", 1, most)),
            2 => self.text("0123456789", 1, 2),
            _ => self.text("0123456789", 1, most),
        }
    }
}
