//! Makes the writes of one phase of a plan, in parallel, each only while it is valid.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Semaphore};
use tokio::time::Instant;

use super::proof::{AdaptiveTimeout, PROOF_LIFETIME, Proof, depends_on_owner_alone};
use super::repeats::Repeats;
use super::{Applier, Target, trial};
use crate::runtime::fair::TooLate;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::Written;
use crate::runtime::request::ResponseMetadata;
use gamekeeper_core::write;
use gamekeeper_core::write::{Answer, Change, Owner, Refusal, Rehearsal, Results, Write};

/// The maximum number of concurrent writes that close a gate before an in-place change. If there were more of them on a
/// busy API server, a pod's change would have to wait until the gates of many other pods are closed. Meanwhile, the
/// kubelet would write a status for the pod's own closed gate.
pub(super) const MAX_GATE_CLOSURES: usize = 16;
/// How long a write that undoes nothing and follows another one may wait.
const SEQUEL_LIFETIME: Duration = Duration::from_secs(5);

/// Writes that are being made.
pub(super) struct Batch<'a, T> {
    pub applier: &'a Applier,
    pub target: &'a Target,
    pub on_write: &'a (dyn Fn(Written) + Send + Sync),
    /// When the proof expires that the batch began with.
    pub until: Instant,
    pub proof: Proof,
    pub results: Mutex<T>,
    /// The response to a patch of the object itself.
    pub patched: Mutex<Option<ResponseMetadata>>,
    pub repeats: Mutex<Repeats>,
    /// The timeout of the proofs that follow trials.
    pub trial_timeout: AsyncMutex<AdaptiveTimeout>,
    pub gate_permits: Semaphore,
    /// Taken by the first pod of a revision.
    pub first_pod: AsyncMutex<()>,
}

impl<T: Results> Batch<'_, T> {
    /// Makes the writes, at most so many at a time. Meanwhile, the proof is renewed if writes wait for it.
    pub(super) async fn run(
        &self,
        writes: Vec<Write>,
        max_writes: usize,
        timeout: &mut AdaptiveTimeout,
    ) {
        let writes = stream::iter(writes).map(|write| self.make(write));
        tokio::select! {
            () = writes.buffer_unordered(max_writes).collect::<()>() => {}
            () = self.proof.renew(self.applier, self.target, timeout) => {}
        }
    }

    /// Makes a write, and the one that follows it.
    async fn make(&self, write: Write) {
        let _permit = match write.change() {
            Change::SetGate { then: Some(_), .. } => self.gate_permits.acquire().await.ok(),
            _ => None,
        };
        let Some(sequel) = self.attempt(&write).await else {
            return;
        };
        // Without it, the next plan continues.
        let deadline = match needs_proof(&sequel) {
            true => self.until + PROOF_LIFETIME,
            false => Instant::now() + SEQUEL_LIFETIME,
        };
        if self.send(&sequel, deadline).await.is_err() {
            self.results().leave_rest();
        }
    }

    /// Sends a write while it is valid, and returns the one that follows it.
    async fn attempt(&self, write: &Write) -> Option<Write> {
        let _turn = self.turn_of_first_pod(write).await;
        if !self.passes_dry_run(write).await || !self.passes_rehearsal(write).await {
            return None;
        }
        loop {
            let deadline = self.deadline_of(write).await?;
            match self.send(write, deadline).await {
                Ok(sequel) => return sequel,
                // The proof is renewed for it.
                Err(TooLate) if depends_on_owner_alone(write) => self.proof.await_another(),
                Err(TooLate) => {
                    self.results().leave_rest();
                    return None;
                }
            }
        }
    }

    /// The turn of a pod that is the first one of its revision. If it is not stored as asked, the others would not be
    /// either.
    async fn turn_of_first_pod(&self, write: &Write) -> Option<AsyncMutexGuard<'_, ()>> {
        let is_first =
            || matches!(write.change(), Change::CreatePod(_)) && self.results().tries_first(write);
        if !is_first() {
            return None;
        }
        let turn = self.first_pod.lock().await;
        is_first().then_some(turn)
    }

    /// Whether no dry run has to precede a write, or it succeeds. A refusal counts as that of the write.
    async fn passes_dry_run(&self, write: &Write) -> bool {
        if !self.results().tries_first(write) {
            return true;
        }
        if !self.results().may_begin(write) {
            return false;
        }
        let started = Instant::now();
        match self.applier.try_first(self.target, write).await {
            Ok(()) => {
                self.results().passed_dry_run(write);
                true
            }
            Err(refusal) => {
                let result = Err(refusal);
                self.applier.metrics.wrote(self.target, write, &result, started.elapsed());
                self.count(write, result);
                false
            }
        }
    }

    /// Whether the API server accepts what a write begins. If the proof expires meanwhile, the next plan makes the write.
    async fn passes_rehearsal(&self, write: &Write) -> bool {
        let is_due = |it: &&Rehearsal| !self.results().is_rehearsed(it, Timestamp::now());
        let Some(rehearsal) = write.rehearsal().filter(is_due) else {
            return true;
        };
        if !self.results().may_begin(write) {
            return false;
        }
        let result = self.applier.rehearse(rehearsal).await;
        let has_passed = result.is_ok();
        self.results().count_rehearsal(rehearsal, result, Timestamp::now());
        has_passed
    }

    /// Until when a write may be sent; None if it may not be sent.
    async fn deadline_of(&self, write: &Write) -> Option<Instant> {
        let Some(trial) = write.trial() else {
            let deadline = self.proof.deadline_of(write).await;
            if deadline.is_none() {
                self.results().leave_rest();
            }
            return deadline.filter(|_| self.results().may_begin(write));
        };
        if !self.results().may_begin(write) {
            return None;
        }
        // A trial takes its time, so a proof of its own follows it.
        let mut timeout = self.trial_timeout.lock().await;
        match trial::pass(self.applier, self.target, trial, &mut timeout).await {
            Ok(until) => Some(until),
            Err(refusal) => {
                self.count(write, Err(refusal));
                None
            }
        }
    }

    /// Sends a write, counts its result, and returns the write that follows it.
    ///
    /// # Errors
    /// If it was not sent, because it had to wait for too long.
    async fn send(&self, write: &Write, deadline: Instant) -> Result<Option<Write>, TooLate> {
        let Self { applier, target, .. } = self;
        let fingerprint = write.change().fingerprint();
        if let Some((times, _)) = fingerprint.and_then(|it| lock(&self.repeats).held(it)) {
            self.count(write, Err(undone(times)));
            return Ok(None);
        }
        let (started, now) = (Instant::now(), Timestamp::now());
        let result = applier.act(target, write, deadline, now, self.on_write).await;
        if result == Err(Refusal::Late) {
            return Err(TooLate);
        }
        applier.metrics.wrote(target, write, &result, started.elapsed());
        let answer = result.as_ref().ok().map(|it| Answer {
            namespace: &target.owner.namespace,
            uid: &it.uid,
            version: it.version(),
        });
        let sequel = answer.and_then(|it| write.sequel(it, now));
        if result.is_ok() && matches!(write.change(), Change::ProbeGuard { .. }) {
            let others = applier.other_budgets(target).await;
            self.results().observe_budgets(others);
        }
        if let (true, Some(fingerprint)) = (result.is_ok(), fingerprint) {
            lock(&self.repeats).record(fingerprint);
        }
        if let (Change::PatchWorkload(_), Ok(patched)) = (write.change(), &result) {
            *lock(&self.patched) = Some(patched.clone());
        }
        self.count(write, result.map(drop));
        Ok(sequel)
    }

    /// Counts the result of a write.
    fn count(&self, write: &Write, result: Result<(), Refusal>) {
        if let Err(Refusal::Rejected(why)) = &result {
            let Owner { kind, namespace, name, .. } = &self.target.owner;
            let kind = kind.name();
            log_limited!(warn, kind, namespace, name, why, "the API server refuses a write");
        }
        self.results().count(write, result, Timestamp::now());
    }

    fn results(&self) -> MutexGuard<'_, T> {
        lock(&self.results)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a write that was made so many times in a row is not made now.
fn undone(times: u32) -> Refusal {
    Refusal::Rejected(format!(
        "a policy, a webhook or another client undoes what the operator writes: the same change was accepted {times} \
         times in a row; it is made again within five minutes"
    ))
}

/// Whether a proof is needed that the object of the plan is unchanged.
pub(super) fn needs_proof(write: &Write) -> bool {
    write.proof() != write::Proof::None
}
