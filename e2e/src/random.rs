//! Chance that can be played again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A series of numbers that a seed decides (splitmix64).
pub struct Random(u64);

impl Random {
    /// The series of the seed in `E2E_SEED`, or of a new one; returns the seed too, to be printed.
    pub fn seeded() -> (Self, u64) {
        let wanted = std::env::var("E2E_SEED").ok();
        let wanted = wanted.and_then(|text| text.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = wanted.unwrap_or_else(|| now.map_or(0, |time| time.as_millis() as u64));
        (Random(seed), seed)
    }

    /// The series of this seed.
    pub fn of(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below this one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A place in a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A time between these, in milliseconds.
    pub fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }
}

/// Any number, which this one decides.
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
