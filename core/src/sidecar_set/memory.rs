//! What is remembered about a SidecarSet between plans: what the API server said about earlier writes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::RefusedWrite;
use crate::observed::Kind;
use crate::text::truncate;
use crate::write::{Attempt, Outcome, Refusal, Refused, Remember, Results, Stop, Write};

/// How long to wait before a refused write of a pod is repeated.
const REFUSED_TIME: SignedDuration = SignedDuration::from_mins(5);
/// How long to wait before a failed write of a pod is repeated: if a webhook of one namespace is unavailable, other
/// pods go first.
const FAILED_TIME: SignedDuration = SignedDuration::from_secs(30);
/// The maximum length of a remembered message, in characters.
const MAX_MESSAGE: usize = 300;

/// The memory of one set.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The set's generation.
    generation: i64,
    /// The last write of each pod, if it was refused, by the pod's uid.
    pods: HashMap<String, RefusedWrite>,
    /// Refused writes of revisions.
    revisions: BTreeMap<Attempt, Refused>,
    /// What the last plan did to revisions.
    written: Option<RevisionWritten>,
}

/// What a plan did to the revisions of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevisionWritten {
    /// One was written. The pods were not counted.
    Made,
    /// One could not be written because the cache does not show it as it is.
    Lost,
}

impl Memory {
    /// Begins a plan for this generation of the set. Refusals of an earlier generation are forgotten, because the
    /// writes of a changed set may be accepted.
    pub fn begin_plan(&mut self, generation: i64, now: Timestamp) {
        if self.generation != generation {
            self.generation = generation;
            self.pods.clear();
        }
        // A pod that is not written again is deleted, or no longer selected.
        let forgotten = now.checked_sub(REFUSED_TIME);
        self.pods.retain(|_, it| !forgotten.as_ref().is_ok_and(|at| it.retry_at <= *at));
    }

    /// The refused write of the pod with this uid.
    pub fn refused(&self, pod: &str) -> Option<&RefusedWrite> {
        self.pods.get(pod)
    }

    /// The refused write of a revision.
    pub fn refused_revision(&self, attempt: Attempt) -> Option<&Refused> {
        self.revisions.get(&attempt)
    }

    /// What was done to revisions since the last call.
    pub fn take_written(&mut self) -> Option<RevisionWritten> {
        self.written.take()
    }
}

impl Remember for Memory {
    type Results = Tally;
    const MAX_WRITES: usize = 16;

    fn begin(&mut self, _kind: Kind) -> Tally {
        Tally::default()
    }

    fn settle(&mut self, tally: Tally, now: Timestamp) -> Result<Outcome, Stop> {
        for (pod, refusal) in tally.pods {
            let retry_at = refusal.as_ref().and_then(|it| now.checked_add(it.wait).ok());
            match refusal.zip(retry_at) {
                Some((RefusedPod { message, .. }, retry_at)) => {
                    self.pods.insert(pod, RefusedWrite { message, retry_at });
                }
                None => {
                    self.pods.remove(&pod);
                }
            }
        }
        self.written = self.written.max(tally.written);
        self.revisions.retain(|attempt, _| !tally.wrote.contains(attempt));
        for (attempt, message) in tally.refused {
            let refused = Refused::after(self.revisions.get(&attempt), message, now);
            self.revisions.insert(attempt, refused);
        }
        if let Some((message, after)) = tally.failed {
            return Err(Stop::Failed(message, after));
        }
        if tally.written == Some(RevisionWritten::Lost) {
            return Err(Stop::Conflict("a revision is not as the cache shows it".to_owned()));
        }
        Ok(match tally.unfinished {
            true => Outcome::Unfinished,
            false => Outcome::Done,
        })
    }
}

/// Why a pod was not written, and how long to wait before the write is repeated.
#[derive(Debug)]
struct RefusedPod {
    message: String,
    wait: SignedDuration,
}

/// The results of a batch of writes for a set.
#[derive(Debug, Default)]
pub struct Tally {
    /// The pods that were written, by uid, and why not.
    pods: Vec<(String, Option<RefusedPod>)>,
    written: Option<RevisionWritten>,
    /// Writes of revisions that were made, and those that were refused.
    wrote: Vec<Attempt>,
    refused: Vec<(Attempt, String)>,
    unfinished: bool,
    /// Whether the API server is too busy for any further write.
    busy: bool,
    failed: Option<(String, Option<Duration>)>,
}

impl Results for Tally {
    fn may_begin(&mut self, _write: &Write) -> bool {
        !self.busy
    }

    fn leave_rest(&mut self) {
        self.unfinished = true;
    }

    fn count(&mut self, write: &Write, result: Result<(), Refusal>, _now: Timestamp) {
        let Some(pod) = write.pod() else {
            return self.count_revision(write, result);
        };
        let pod = pod.uid.clone();
        let refusal = match result {
            Ok(_) => return self.pods.push((pod, None)),
            Err(refusal) => refusal,
        };
        let refused =
            |wait| RefusedPod { message: truncate(&refusal.to_string(), MAX_MESSAGE), wait };
        match &refusal {
            // The pod has changed. If the change does not concern the set, it does not queue the set.
            Refusal::Conflict(_) | Refusal::NotFound(_) | Refusal::Late => self.unfinished = true,
            Refusal::Busy { message, after } => {
                self.busy = true;
                self.failed = Some((message.clone(), *after));
            }
            Refusal::Unavailable { message, after } => {
                self.pods.push((pod, Some(refused(FAILED_TIME))));
                self.failed.get_or_insert_with(|| (message.clone(), *after));
            }
            Refusal::AlreadyExists(_) | Refusal::Rejected(_) | Refusal::NamespaceTerminating(_) => {
                self.pods.push((pod, Some(refused(REFUSED_TIME))));
                // The next plan skips the pod.
                self.unfinished = true;
            }
        }
    }
}

impl Tally {
    /// Counts the result of writing a revision. The next plan waits until the cache shows it.
    fn count_revision(&mut self, write: &Write, result: Result<(), Refusal>) {
        match result {
            Ok(_) => {
                self.wrote.extend(write.attempt());
                self.written = self.written.max(Some(RevisionWritten::Made));
                self.unfinished = true;
            }
            Err(Refusal::AlreadyExists(_) | Refusal::NotFound(_) | Refusal::Conflict(_)) => {
                self.written = Some(RevisionWritten::Lost);
            }
            Err(Refusal::Late) => self.unfinished = true,
            Err(Refusal::Busy { message, after } | Refusal::Unavailable { message, after }) => {
                self.failed = Some((message, after));
            }
            Err(Refusal::Rejected(message) | Refusal::NamespaceTerminating(message)) => {
                self.refused.extend(write.attempt().map(|it| (it, message.clone())));
                self.failed = Some((message, None));
            }
        }
    }
}
