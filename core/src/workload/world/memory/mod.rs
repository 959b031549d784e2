//! What is remembered about a workload between plans: what the API server said about earlier writes, because no object
//! shows it. A new operator begins without it.

mod rehearsals;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub(super) use rehearsals::Rehearsals;
pub use tally::Tally;

use super::{Backoff, GuardState, GuardedPlayers, Revision, Verdict};
use crate::observed::Kind;
use crate::sidecar_set::Sidecars;
use crate::workload::decision::Failures;
use crate::write::{Attempt, Outcome, Remember, Stop, Write};

/// How many taken names are remembered. Those that are forgotten would be refused again.
const MAX_TAKEN: usize = 1_000;

/// What is remembered about one workload between plans, mainly responses of the API server.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The API server's verdicts on pods, by revision.
    pub verdicts: BTreeMap<String, Verdict>,
    /// The revisions of the SidecarSets that applied to these pods when the verdicts were given.
    sidecars: Vec<String>,
    /// Revisions whose last pod was refused. The next plan tries to create only one pod of each.
    refused: BTreeSet<String>,
    /// Names that new pods and revisions cannot get, because objects of other owners have them.
    pub taken: BTreeSet<String>,
    /// The kinds of write that the API server refused last time.
    pub failures: Failures,
    /// What the API server said about changes of single pods.
    pub rehearsals: Rehearsals,
    /// The delay before pods that ended as soon as they started are replaced.
    pub backoff: Option<Backoff>,
    /// Whether the policy and the budget that guard the workload's pods are in force; None if that is not known.
    pub guard: Option<GuardState>,
    /// Guarded pods that may have players and that the operator has not deleted.
    pub players: GuardedPlayers,
}

impl Remember for Memory {
    type Results = Tally;
    const MAX_WRITES: usize = 64;

    fn begin(&mut self, kind: Kind) -> Tally {
        Tally::begin(kind, self)
    }

    fn settle(&mut self, tally: Tally, now: Timestamp) -> Result<Outcome, Stop> {
        tally.settle(self, now)
    }
}

impl Memory {
    /// Records names that objects of other owners have. A client that may create pods can take one name after another.
    fn record_taken(&mut self, names: BTreeSet<String>) {
        if self.taken.len() >= MAX_TAKEN {
            self.taken.clear();
        }
        self.taken.extend(names);
    }

    /// Before a plan: forgets verdicts on revisions that no longer exist, and all of them if the SidecarSets that apply to the
    /// pods have changed.
    pub fn begin_plan(&mut self, revisions: &[Arc<Revision>], sidecars: &[Arc<Sidecars>]) {
        let sidecars: Vec<String> = sidecars.iter().map(|it| it.new_pods_identity()).collect();
        if self.sidecars != sidecars {
            self.verdicts.clear();
            self.refused.clear();
            self.sidecars = sidecars;
        }
        let exists = |name: &str| revisions.iter().any(|it| it.name == name);
        self.verdicts.retain(|revision, _| exists(revision));
        self.refused.retain(|revision| exists(revision));
    }

    /// Forgets refusals of writes that are no longer planned, so that a later refusal is reported again.
    pub fn retain_failures(&mut self, writes: &[Write], now: Timestamp) {
        let held: BTreeSet<Attempt> = self.failures.held(now).collect();
        let is_planned = |attempt| writes.iter().any(|it| it.serves(attempt));
        self.failures.retain(|attempt| held.contains(&attempt) || is_planned(attempt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_taken_names_are_remembered() {
        let mut memory = Memory::default();
        for number in 0..10 * MAX_TAKEN {
            memory.record_taken([format!("game-{number}")].into());
            assert!(memory.taken.len() <= MAX_TAKEN);
            assert!(memory.taken.contains(&format!("game-{number}")));
        }
    }
}
