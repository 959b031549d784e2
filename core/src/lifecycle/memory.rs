//! What is remembered about a Cluster between plans: what the API server said about earlier writes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::observed::Kind;
use crate::write::{Change, Outcome, Refusal, Refused, Remember, Results, Stop, Write};

/// The memory of one Cluster.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Why the API server refused to create runs, by the name of the run.
    pub refused: BTreeMap<String, String>,
    /// The last refusal of another write: of a node, a pod or the Cluster itself. Those after it depend on it, and were
    /// not made.
    pub refused_write: Option<Refused>,
}

impl Memory {
    /// Forgets refusals of runs that are no longer planned.
    pub fn retain_refused(&mut self, writes: &[Write]) {
        let is_planned = |name: &String| {
            writes.iter().any(|write| match write.change() {
                Change::CreateHookRun(run) => run.metadata.name.as_ref() == Some(name),
                _ => false,
            })
        };
        self.refused.retain(|name, _| is_planned(name));
    }

    /// Forgets the refusal of a write that would be attempted again now, and that no plan makes anymore. Returns whether
    /// there was one, so that the status no longer shows it.
    pub fn forgets_refusal(&mut self, has_writes: bool, now: Timestamp) -> bool {
        let is_over = |it: &Refused| !has_writes && it.held_until(now).is_none();
        self.refused_write.take_if(|it| is_over(it)).is_some()
    }
}

impl Remember for Memory {
    type Results = Tally;
    /// A record that was not written must keep the writes after it from being made.
    const MAX_WRITES: usize = 1;

    fn begin(&mut self, _kind: Kind) -> Tally {
        Tally::default()
    }

    fn settle(&mut self, tally: Tally, now: Timestamp) -> Result<Outcome, Stop> {
        self.refused.retain(|name, _| !tally.started.contains(name));
        self.refused.extend(tally.refused);
        if let Some(Refusal::Rejected(message)) = &tally.failed {
            let last = self.refused_write.as_ref();
            self.refused_write = Some(Refused::after(last, message.clone(), now));
        } else if tally.has_written {
            self.refused_write = None;
        }
        match tally.failed {
            Some(refusal) => Err(refusal.into()),
            None if tally.unfinished => Ok(Outcome::Unfinished),
            None => Ok(Outcome::Done),
        }
    }
}

/// The results of the writes for a Cluster.
#[derive(Debug, Default)]
pub struct Tally {
    refused: BTreeMap<String, String>,
    /// The names of the runs that were created.
    started: Vec<String>,
    /// The first failure, after which nothing is written.
    failed: Option<Refusal>,
    unfinished: bool,
    /// Whether a write other than the creation of a run was made.
    has_written: bool,
}

impl Results for Tally {
    fn may_begin(&mut self, _write: &Write) -> bool {
        self.failed.is_none() && !self.unfinished
    }

    fn leave_rest(&mut self) {
        self.unfinished = true;
    }

    fn count(&mut self, write: &Write, result: Result<(), Refusal>, _now: Timestamp) {
        self.has_written |= result.is_ok() && !matches!(write.change(), Change::CreateHookRun(_));
        match (write.change(), result) {
            (Change::CreateHookRun(run), Ok(())) => self.started.extend(run.metadata.name.clone()),
            // A refused script holds no other one back; the next plan shows the refusal in a condition.
            (
                Change::CreateHookRun(run),
                Err(
                    Refusal::Rejected(why)
                    | Refusal::NamespaceTerminating(why)
                    | Refusal::AlreadyExists(why),
                ),
            ) => {
                self.refused.insert(run.metadata.name.clone().unwrap_or_default(), why);
            }
            // A pod that was deleted or replaced need not be moved.
            (Change::SetMetadata { .. }, Err(Refusal::NotFound(_) | Refusal::Conflict(_))) => {}
            (_, Ok(())) => {}
            (_, Err(refusal)) => self.failed = Some(refusal),
        }
    }
}
