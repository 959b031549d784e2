//! Sums over the outcomes of histories, in the form of the table in docs/guard.md.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::actors::Actor;
use super::ended::OWN_CONTROLLER;
use super::variant::Variant;

/// The outcome of a history in a variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Seed of the history.
    pub seed: u64,
    /// The variant.
    pub variant: Variant,
    /// A digest of the operator's program and the history.
    pub build: String,
    /// How many matches were played.
    pub matches: u64,
    /// How many matches were ended, by the name of the client that ended them.
    pub ended: BTreeMap<String, u64>,
    /// How often another client was refused a request that would have ended pods.
    pub refused: u64,
    /// How often the operator was killed.
    pub kills: u64,
    /// What went wrong. With guarded pods, this includes what the judge found, and drains and deletions that did not
    /// complete.
    pub failures: Vec<String>,
}

impl Record {
    /// Whether nothing went wrong. Only the guarded variant promises that no match is ended.
    pub fn passed(&self) -> bool {
        let keeps_promise = self.variant != Variant::Guarded || self.ended.is_empty();
        keeps_promise && self.failures.is_empty()
    }
}

/// The records of each variant, displayed as sums.
#[derive(Debug, Default)]
pub struct Table(BTreeMap<Variant, Vec<Record>>);

impl Table {
    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        self.0.entry(record.variant).or_default().push(record);
    }

    /// Whether all records passed.
    pub fn passed(&self) -> bool {
        self.0.values().flatten().all(Record::passed)
    }

    /// A row with one cell per variant: the sum of a figure over the variant's records.
    fn row(&self, name: &str, figure: impl Fn(&Record) -> u64) -> String {
        let sum = |variant| {
            let records = self.0.get(&variant).into_iter().flatten();
            records.map(&figure).sum::<u64>().to_string()
        };
        let cells = Variant::ALL.map(sum).join(" | ");
        format!("| {name} | {cells} |")
    }

    /// The names of all clients that may have ended a match, the expected ones first.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Actor::all().map(|actor| actor.name().to_owned()).collect();
        names.push(OWN_CONTROLLER.to_owned());
        for name in self.0.values().flatten().flat_map(|it| it.ended.keys()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = Variant::ALL.map(|it| it.to_string()).join(" | ");
        writeln!(f, "| matches ended by | {headings} |\n|---|---|---|---|---|")?;
        for name in self.names() {
            let count_in = |it: &Record| it.ended.get(&name).copied().unwrap_or(0);
            writeln!(f, "{}", self.row(&name, count_in))?;
        }
        let ended = |it: &Record| it.ended.values().sum();
        writeln!(f, "{}", self.row("**all**", ended))?;
        writeln!(f, "{}", self.row("matches", |it| it.matches))?;
        writeln!(f, "{}", self.row("histories", |_| 1))?;
        writeln!(f, "{}", self.row("kills of the operator", |it| it.kills))?;
        writeln!(f, "{}", self.row("requests refused", |it| it.refused))?;
        let failures = |it: &Record| it.failures.len() as u64;
        writeln!(f, "{}", self.row("violations, and what did not complete", failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seed: u64, variant: Variant, by: &str, count: u64) -> Record {
        Record {
            seed,
            variant,
            build: String::new(),
            matches: 5,
            ended: BTreeMap::from([(by.to_owned(), count)]),
            refused: 1,
            kills: 0,
            failures: Vec::new(),
        }
    }

    #[test]
    fn records_add_up_and_unknown_clients_have_a_row() {
        let mut table = Table::default();
        table.add(record(1, Variant::Unguarded, "`kubectl drain`", 2));
        table.add(record(2, Variant::Unguarded, "`kubectl drain`", 1));
        table.add(record(1, Variant::Budget, "a stranger", 4));
        let text = table.to_string();
        for line in [
            "| `kubectl drain` | 0 | 3 | 0 | 0 |",
            "| a stranger | 0 | 0 | 4 | 0 |",
            "| **all** | 0 | 3 | 4 | 0 |",
            "| matches | 0 | 10 | 5 | 0 |",
            "| histories | 0 | 2 | 1 | 0 |",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(table.passed());
        table.add(record(3, Variant::Guarded, "`kubectl drain`", 1));
        assert!(!table.passed());
    }
}
