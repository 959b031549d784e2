//! 128-bit hashes of states. Two states with the same fingerprint count as one. With a few million states, the
//! probability of a collision is below 10^-24.

use std::hash::{Hash, Hasher};

/// The fingerprint of a value.
pub fn fingerprint(value: &impl Hash) -> u128 {
    let mut hasher = Fingerprinter(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    value.hash(&mut hasher);
    (u128::from(mix(hasher.0, 0x9e37_79b9_7f4a_7c15)) << 64)
        | u128::from(mix(hasher.1, 0xd6e8_feb8_6659_fd93))
}

struct Fingerprinter(u64, u64);

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl Fingerprinter {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word, 0xa076_1d64_78bd_642f).wrapping_add(word);
        self.1 = mix(self.1.rotate_left(23) ^ word, 0xe703_7ed1_a0b4_28db).wrapping_add(!word);
    }
}

impl Hasher for Fingerprinter {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.add(u64::from(word));
    }
    fn write_u16(&mut self, word: u16) {
        self.add(u64::from(word));
    }
    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }
    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }
    fn write_i8(&mut self, word: i8) {
        self.add(word as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
