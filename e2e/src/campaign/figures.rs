//! Sums over the outcomes of histories.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::play::Outcome;
use crate::faults::Tally;

/// Sums over histories.
#[derive(Debug, Default)]
pub struct Figures {
    histories: BTreeMap<String, u64>,
    faults: Tally,
    writes: u64,
    kills: u64,
    jumps: u64,
    violations: u64,
    unsettled: u64,
    aborted: u64,
    slowest: Duration,
}

impl Figures {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        *self.histories.entry(outcome.history.kind.to_string()).or_default() += 1;
        self.faults.add(&outcome.faults);
        self.writes += outcome.writes;
        self.kills += outcome.kills;
        self.jumps += outcome.jumps;
        self.violations += outcome.violations.len() as u64;
        self.unsettled += u64::from(outcome.unsettled.is_some());
        self.aborted += u64::from(outcome.aborted.is_some());
        self.slowest = self.slowest.max(outcome.settled_after);
    }

    /// Whether all histories passed.
    pub fn passed(&self) -> bool {
        (self.violations, self.unsettled, self.aborted) == (0, 0, 0)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | |\n|---|---|")?;
        writeln!(f, "| histories | {} |", self.histories.values().sum::<u64>())?;
        for (kind, count) in &self.histories {
            writeln!(f, "| … {kind} | {count} |")?;
        }
        writeln!(f, "| faults | {} |", self.faults.sum())?;
        for (name, count) in &self.faults.0 {
            writeln!(f, "| … {name} | {count} |")?;
        }
        writeln!(f, "| kills of the operator | {} |", self.kills)?;
        writeln!(f, "| jumps of the operator's clock | {} |", self.jumps)?;
        writeln!(f, "| writes of the operator | {} |", self.writes)?;
        writeln!(f, "| longest time to settle | {:.0} s |", self.slowest.as_secs_f64())?;
        writeln!(f, "| violations | {} |", self.violations)?;
        writeln!(f, "| unsettled | {} |", self.unsettled)?;
        writeln!(f, "| aborted | {} |", self.aborted)
    }
}
