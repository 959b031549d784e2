//! What is remembered about a SidecarSet between reconciles.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::reconcile::apply::{ApplyOutcome, Pace, Remember, Results, Stop, Target};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::request::{Refusal, RequestResult};
use gamekeeper_core::sidecar_set::RefusedWrite;
use gamekeeper_core::text::truncate;
use gamekeeper_core::write::{Attempt, Change, Refused, Write};

/// The shortest time between two counts of a set's pods: a thousand starting pods must not cause a thousand writes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait before a refused write of a pod is repeated.
const REFUSED_TIME: SignedDuration = SignedDuration::from_mins(5);
/// How long to wait before a failed write of a pod is repeated: if a webhook of one namespace is unavailable, other
/// pods go first.
const FAILED_TIME: SignedDuration = SignedDuration::from_secs(30);
/// The maximum length of a remembered message, in characters.
const MAX_MESSAGE: usize = 300;

/// The memory of one set.
#[derive(Debug)]
pub(super) struct Memory {
    /// The set's uid.
    pub uid: String,
    /// The set's generation.
    generation: i64,
    /// When the set's pods were last counted.
    counted: Option<Instant>,
    /// The last write of each pod, if it was refused, by the pod's uid.
    refused: HashMap<String, RefusedWrite>,
    /// Whether a revision could not be written because the cache does not show it as it is.
    lost_revision: bool,
    /// Refused writes of revisions.
    pub refused_revisions: BTreeMap<Attempt, Refused>,
    pace: Pace,
}

impl Memory {
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            generation: 0,
            counted: None,
            refused: HashMap::new(),
            lost_revision: false,
            refused_revisions: BTreeMap::new(),
            pace: Pace::default(),
        }
    }

    /// When the pods may be counted again. None if they may be counted now; this time is then recorded.
    pub(super) fn next_count(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.counted.map(|last| last + MIN_INTERVAL);
        let due = due.filter(|due| *due > now);
        if due.is_none() {
            self.counted = Some(now);
        }
        due
    }

    /// The refused writes at this generation of the set. Those of an earlier generation are forgotten, because the
    /// writes of a changed set may be accepted.
    pub(super) fn refused(&mut self, generation: i64) -> &HashMap<String, RefusedWrite> {
        if self.generation != generation {
            self.generation = generation;
            self.refused.clear();
        }
        // A pod that is not written again is deleted, or no longer selected.
        let forgotten = Timestamp::now().checked_sub(REFUSED_TIME);
        self.refused.retain(|_, it| !forgotten.as_ref().is_ok_and(|at| it.retry_at <= *at));
        &self.refused
    }

    /// Whether a revision could not be written since the last call.
    pub(super) fn take_lost_revision(&mut self) -> bool {
        std::mem::take(&mut self.lost_revision)
    }
}

impl Remember for Memory {
    type Tally = Tally;
    const MAX_WRITES: usize = 16;

    fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    fn begin(&mut self, _target: &Target) -> Tally {
        Tally::default()
    }

    fn settle(&mut self, tally: Tally) -> Result<ApplyOutcome, Stop> {
        let now = Timestamp::now();
        for (pod, refusal) in tally.pods {
            let retry_at = refusal.as_ref().and_then(|it| now.checked_add(it.wait).ok());
            match refusal.zip(retry_at) {
                Some((RefusedPod { message, .. }, retry_at)) => {
                    self.refused.insert(pod, RefusedWrite { message, retry_at });
                }
                None => {
                    self.refused.remove(&pod);
                }
            }
        }
        self.lost_revision |= tally.lost_revision;
        self.refused_revisions.retain(|attempt, _| !tally.wrote.contains(attempt));
        for (attempt, message) in tally.refused {
            let last = self.refused_revisions.get(&attempt);
            let refused = Refused::after(last, message, now);
            self.refused_revisions.insert(attempt, refused);
        }
        if tally.wrote_revision {
            // The pods have not been counted.
            self.counted = None;
        }
        if let Some((message, after)) = tally.failed {
            return Err(Stop::Failed(message, after));
        }
        if tally.lost_revision {
            return Err(Stop::Conflict("a revision is not as the cache shows it".to_owned()));
        }
        Ok(match tally.unfinished {
            true => ApplyOutcome::Unfinished,
            false => ApplyOutcome::Done,
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
pub(super) struct Tally {
    /// The pods that were written, by uid, and why not.
    pods: Vec<(String, Option<RefusedPod>)>,
    wrote_revision: bool,
    /// Writes of revisions that were made, and those that were refused.
    wrote: Vec<Attempt>,
    refused: Vec<(Attempt, String)>,
    lost_revision: bool,
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

    fn count(&mut self, write: &Write, result: RequestResult) {
        let Change::PatchSidecars(patch) = write.change() else {
            return self.count_revision(write, result);
        };
        let pod = patch.pod.uid.clone();
        let refusal = match result {
            Ok(_) => return self.pods.push((pod, None)),
            Err(refusal) => refusal,
        };
        let refused =
            |wait| RefusedPod { message: truncate(&refusal.to_string(), MAX_MESSAGE), wait };
        match &refusal {
            // The pod has changed. If the change does not concern the set, it does not queue the set.
            Refusal::Conflict(_) | Refusal::NotFound(_) | Refusal::Late(_) => {
                self.unfinished = true
            }
            Refusal::Busy { message, after } => {
                self.busy = true;
                self.failed = Some((message.clone(), *after));
            }
            Refusal::Unavailable { message, after } => {
                self.pods.push((pod, Some(refused(FAILED_TIME))));
                self.failed.get_or_insert_with(|| (message.clone(), *after));
            }
            Refusal::AlreadyExists(_) | Refusal::Rejected(_) | Refusal::NamespaceTerminating(_) => {
                let set = &patch.set;
                log_limited!(warn, set, %refusal, "cannot update a pod of a SidecarSet");
                self.pods.push((pod, Some(refused(REFUSED_TIME))));
                // The next plan skips the pod.
                self.unfinished = true;
            }
        }
    }
}

impl Tally {
    /// Counts the result of writing a revision. The next plan waits until the cache shows it.
    fn count_revision(&mut self, write: &Write, result: RequestResult) {
        match result {
            Ok(_) => {
                self.wrote.extend(write.attempt());
                (self.wrote_revision, self.unfinished) = (true, true);
            }
            Err(Refusal::AlreadyExists(_) | Refusal::NotFound(_) | Refusal::Conflict(_)) => {
                self.lost_revision = true;
            }
            Err(Refusal::Late(_)) => self.unfinished = true,
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
