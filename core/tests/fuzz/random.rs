//! Random numbers and texts, the same on every machine, so that a failure can be reproduced from its seed.

/// An xorshift64* generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    /// A sequence of words, some of them repeated many times. It ends once it is longer than `limit` bytes.
    pub fn words(&mut self, vocabulary: &[&str], limit: usize) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(24) {
            let word = self.pick(vocabulary);
            let times = match self.below(40) {
                0 => 1 + self.below(400),
                1..=4 => 2 + self.below(8),
                _ => 1,
            };
            for _ in 0..times {
                text.push_str(word);
            }
            if text.len() > limit {
                break;
            }
        }
        text
    }

    /// Returns the text; in a third of all cases, some bytes are inserted, removed, changed or repeated.
    pub fn mutate(&mut self, text: String) -> String {
        if self.below(3) > 0 {
            return text;
        }
        let mut bytes = text.into_bytes();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.insert(at, self.next() as u8),
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 if at < bytes.len() => bytes[at] = self.next() as u8,
                _ => {
                    let end = (at + self.below(20)).min(bytes.len());
                    let part = bytes[at.min(end)..end].to_vec();
                    bytes.extend(part);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
