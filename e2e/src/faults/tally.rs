//! How often each fault happened.

use std::collections::BTreeMap;

/// The number of faults by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    /// Counts one fault.
    pub fn count(&mut self, fault: &'static str) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        for (name, times) in &other.0 {
            *self.0.entry(name).or_default() += times;
        }
    }

    /// The number of faults.
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }
}
