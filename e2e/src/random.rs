//! Reproducible random numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A sequence of numbers determined by a seed (splitmix64).
pub struct Random(u64);

impl Random {
    /// Uses the seed in `E2E_SEED`, or a new one. Also returns the seed, so that it can be printed.
    pub fn seeded() -> (Self, u64) {
        let wanted = std::env::var("E2E_SEED").ok();
        let wanted = wanted.and_then(|text| text.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = wanted.unwrap_or_else(|| now.map_or(0, |time| time.as_millis() as u64));
        (Random(seed), seed)
    }

    /// Uses this seed.
    pub fn from_seed(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An index into a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A duration of at least `least` and less than `most` milliseconds.
    pub fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }
}

/// A hash of a number.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
