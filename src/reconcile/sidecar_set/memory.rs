//! What is remembered about a SidecarSet between reconciles.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::reconcile::apply::{AdaptiveTimeout, PROOF_LIFETIME};
use crate::runtime::request::Refusal;
use gamekeeper_core::sidecar_set::RefusedWrite;
use gamekeeper_core::text::truncate;

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
    /// The timeout of the proof that the set is unchanged.
    pub proof_timeout: AdaptiveTimeout,
    /// The last write of each pod, if it was refused, by the pod's uid.
    refused: HashMap<String, RefusedWrite>,
}

impl Memory {
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            generation: 0,
            counted: None,
            proof_timeout: AdaptiveTimeout::new(PROOF_LIFETIME),
            refused: HashMap::new(),
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
        &self.refused
    }

    /// Forgets the refused writes of pods that are no longer counted.
    pub(super) fn retain_pods(&mut self, is_counted: impl Fn(&str) -> bool) {
        self.refused.retain(|pod, _| is_counted(pod));
    }

    /// Records whether the API server has refused the last write of a pod.
    pub(super) fn record_write(&mut self, pod: &str, refusal: Option<&Refusal>, now: Timestamp) {
        let wait = match refusal {
            // These do not show whether the next write will succeed.
            Some(
                Refusal::Conflict(_)
                | Refusal::NotFound(_)
                | Refusal::Busy { .. }
                | Refusal::Late(_),
            ) => return,
            Some(Refusal::Unavailable { .. }) => Some(FAILED_TIME),
            Some(_) => Some(REFUSED_TIME),
            None => None,
        };
        let retry_at = wait.and_then(|wait| now.checked_add(wait).ok());
        match refusal.zip(retry_at) {
            Some((refusal, retry_at)) => {
                let message = truncate(&refusal.to_string(), MAX_MESSAGE);
                let write = RefusedWrite { message, retry_at };
                self.refused.insert(pod.to_owned(), write);
            }
            None => {
                self.refused.remove(pod);
            }
        }
    }
}
