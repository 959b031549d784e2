//! What histories added up to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::play::Ended;
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
    broken: u64,
    slowest: Duration,
}

impl Figures {
    /// One more has ended.
    pub fn add(&mut self, ended: &Ended) {
        *self
            .histories
            .entry(ended.history.kind.to_string())
            .or_default() += 1;
        self.faults.add(&ended.faults);
        self.writes += ended.writes;
        self.kills += ended.kills;
        self.jumps += ended.jumps;
        self.violations += ended.violations.len() as u64;
        self.unsettled += u64::from(ended.unsettled.is_some());
        self.broken += u64::from(ended.broken.is_some());
        self.slowest = self.slowest.max(ended.settled_after);
    }

    /// Whether all is as it must be.
    pub fn are_good(&self) -> bool {
        (self.violations, self.unsettled, self.broken) == (0, 0, 0)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | |\n|---|---|")?;
        writeln!(
            f,
            "| histories | {} |",
            self.histories.values().sum::<u64>()
        )?;
        for (kind, count) in &self.histories {
            writeln!(f, "| … {kind} | {count} |")?;
        }
        writeln!(f, "| faults | {} |", self.faults.sum())?;
        for (name, count) in &self.faults.0 {
            writeln!(f, "| … {name} | {count} |")?;
        }
        writeln!(f, "| kills of the operator | {} |", self.kills)?;
        writeln!(f, "| jumps of its clock | {} |", self.jumps)?;
        writeln!(f, "| its writes | {} |", self.writes)?;
        writeln!(
            f,
            "| longest until settled | {:.0} s |",
            self.slowest.as_secs_f64()
        )?;
        writeln!(f, "| violations | {} |", self.violations)?;
        writeln!(f, "| unsettled | {} |", self.unsettled)?;
        writeln!(f, "| not played to the end | {} |", self.broken)
    }
}
