//! What is remembered about a Cluster between reconciles.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tracing::{info, warn};

use crate::reconcile::apply::{ApplyOutcome, Pace, Remember, Results, Stop, Target};
use crate::runtime::request::{Refusal, RequestResult, ResponseMetadata};
use gamekeeper_core::write::{Change, Refused, Write};

/// The memory of one Cluster.
#[derive(Debug)]
pub(super) struct Memory {
    /// The Cluster's uid.
    pub uid: String,
    /// Why the API server refused to create runs, by the name of the run.
    pub refused: BTreeMap<String, String>,
    /// The last refusal of another write. Those after it were not made.
    pub refused_write: Option<Refused>,
    pace: Pace,
}

impl Memory {
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            refused: BTreeMap::new(),
            refused_write: None,
            pace: Pace::default(),
        }
    }

    /// Forgets refusals of runs that are no longer planned.
    pub(super) fn retain_refused(&mut self, writes: &[Write]) {
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
    pub(super) fn forgets_refusal(&mut self, has_writes: bool, now: Timestamp) -> bool {
        let is_over = |it: &Refused| !has_writes && it.held_until(now).is_none();
        self.refused_write.take_if(|it| is_over(it)).is_some()
    }
}

impl Remember for Memory {
    type Tally = Tally;
    /// A record that was not written must keep the writes after it from being made.
    const MAX_WRITES: usize = 1;

    fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    fn begin(&mut self, _target: &Target) -> Tally {
        Tally::default()
    }

    fn settle(&mut self, tally: Tally) -> Result<ApplyOutcome, Stop> {
        self.refused.retain(|name, _| !tally.started.contains(name));
        self.refused.extend(tally.refused);
        if let Some(Refusal::Rejected(message)) = &tally.failed {
            let (last, now) = (self.refused_write.as_ref(), Timestamp::now());
            self.refused_write = Some(Refused::after(last, message.clone(), now));
        } else if tally.has_written {
            self.refused_write = None;
        }
        match tally.failed {
            Some(refusal) => Err(refusal.into()),
            None if tally.unfinished => Ok(ApplyOutcome::Unfinished),
            None => Ok(ApplyOutcome::Done),
        }
    }
}

/// The results of the writes for a Cluster.
#[derive(Debug, Default)]
pub(super) struct Tally {
    refused: BTreeMap<String, String>,
    /// The names of the runs that were created.
    started: Vec<String>,
    /// The first failure, after which nothing is written.
    failed: Option<Refusal>,
    unfinished: bool,
    /// Whether a write other than the creation of a run was made.
    has_written: bool,
    cluster: Option<ResponseMetadata>,
}

impl Results for Tally {
    fn may_begin(&mut self, _write: &Write) -> bool {
        self.failed.is_none() && !self.unfinished
    }

    fn leave_rest(&mut self) {
        self.unfinished = true;
    }

    fn count(&mut self, write: &Write, result: RequestResult) {
        self.has_written |= result.is_ok() && !matches!(write.change(), Change::CreateHookRun(_));
        match (write.change(), result) {
            (Change::PatchWorkload(_), Ok(metadata)) => self.cluster = Some(metadata),
            (Change::CreateHookRun(run), Ok(_)) => {
                info!(run = run.metadata.name, "started a script");
                self.started.extend(run.metadata.name.clone());
            }
            // A refused script holds no other one back; the next plan shows the refusal in a condition.
            (
                Change::CreateHookRun(run),
                Err(
                    Refusal::Rejected(why)
                    | Refusal::NamespaceTerminating(why)
                    | Refusal::AlreadyExists(why),
                ),
            ) => {
                let run = run.metadata.name.clone().unwrap_or_default();
                warn!(run, why, "cannot create a HookRun");
                self.refused.insert(run, why);
            }
            // A pod that was deleted or replaced need not be moved.
            (Change::SetMetadata { .. }, Err(Refusal::NotFound(_) | Refusal::Conflict(_))) => {}
            (_, Ok(_)) => {}
            (_, Err(refusal)) => self.failed = Some(refusal),
        }
    }

    fn take_owner(&mut self) -> Option<ResponseMetadata> {
        self.cluster.take()
    }
}
