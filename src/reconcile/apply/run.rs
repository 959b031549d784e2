//! Applies a plan: determines the order of its writes, and starts each write only while the plan is valid.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use super::batch::{self, Batch, needs_proof};
use super::events::PendingEvent;
use super::proof::{self, PLAN_LIFETIME, PROOF_LIFETIME, Proof, depends_on_owner_alone};
use super::{Applier, Pace, Report, Target, trial};
use crate::runtime::objects::Written;
use crate::runtime::request::to_bytes;
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::write::{
    Fingerprint, Outcome, Owner, Phase, Plan, Remember, Results, Stop, Write,
};

/// The shortest time between two writes of a status that no decision depends on.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// A plan that is being applied.
struct Execution<'a, S, M> {
    applier: &'a Applier,
    target: &'a mut Target,
    memory: &'a mut M,
    pace: &'a mut Pace,
    on_write: &'a (dyn Fn(Written) + Send + Sync),
    /// When the plan was made; None if planning took too long.
    decided_at: Option<Instant>,
    /// The status to write; None if it is unchanged, or once it is written.
    status: Option<S>,
    /// When the last proof expires.
    proven_until: Option<Instant>,
}

impl Applier {
    /// Applies a plan for an object whose status is `old_status`. `on_write` is called with each write.
    ///
    /// First come the writes that undo or prepare something. Then the status is written, if the rest depends on it or
    /// if it was not written recently. The rest follows; writes that cannot be undone require a proof that the object is
    /// unchanged. Writes that cannot start while the proof is valid are left to the next plan.
    pub(crate) async fn carry_out<S: Serialize + PartialEq, M: Remember>(
        &self,
        target: &mut Target,
        plan: Plan<S>,
        old_status: Option<&S>,
        memory: &mut M,
        pace: &mut Pace,
        on_write: &(dyn Fn(Written) + Send + Sync),
    ) -> Report {
        let Plan { writes, status, status_first, events, .. } = plan;
        let is_in_time = pace.planning_timeout.accepts(target.read_at);
        let decided_at = is_in_time.then(Instant::now);
        let mut execution = Execution {
            applier: self,
            target,
            memory,
            pace,
            on_write,
            decided_at,
            status: status.filter(|status| Some(status) != old_status),
            proven_until: None,
        };
        let outcome = execution.run(writes, status_first).await.unwrap_or_else(Outcome::from);
        let is_status_delayed = execution.status.is_some();
        if !is_status_delayed {
            for event in events {
                self.events.publish(&*execution.target, PendingEvent::Plain(event));
            }
        }
        Report { outcome, status_due: is_status_delayed.then(|| next_status_write(pace)) }
    }
}

/// The earliest time for the next write of a status that no decision depends on.
fn next_status_write(pace: &Pace) -> Instant {
    pace.status_due.unwrap_or_else(Instant::now)
}

/// The node that must have been drained before a write.
fn drained_node(write: &Write) -> Option<&str> {
    write.trial()?.drained_node.as_deref()
}

impl<S: Serialize, M: Remember> Execution<'_, S, M> {
    async fn run(&mut self, writes: Vec<Write>, status_first: bool) -> Result<Outcome, Stop> {
        let (before_status, mut after_status): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|it| it.phase() == Phase::Before);
        let generation = self.target.generation;
        for node in after_status.iter().filter_map(drained_node) {
            // The status would say that the script is running.
            trial::check_drained(self.applier, node).await?;
        }
        if before_status.iter().any(needs_proof) {
            self.prove().await?;
        }
        let until = Instant::now() + PROOF_LIFETIME;
        let mut outcome = self.batch(before_status, until).await?;
        if outcome == Outcome::Unfinished {
            return Ok(outcome);
        }
        if self.target.generation != generation {
            return Ok(Outcome::Conflict("by our own patch".to_owned()));
        }
        if status_first || next_status_write(self.pace) <= Instant::now() {
            self.write_status().await?;
        }
        let is_fresh = |decided_at: Instant| decided_at.elapsed() <= PLAN_LIFETIME;
        if !self.decided_at.is_some_and(is_fresh)
            && !after_status.iter().all(depends_on_owner_alone)
        {
            after_status.retain(depends_on_owner_alone);
            outcome = Outcome::Unfinished;
        }
        if after_status.iter().any(needs_proof) {
            self.prove().await?;
        }
        if !after_status.is_empty() {
            let proven_until = self.proven_until;
            let until = proven_until.unwrap_or_else(|| Instant::now() + PROOF_LIFETIME);
            outcome = outcome.then(self.batch(after_status, until).await?);
        }
        Ok(outcome)
    }

    /// Makes writes in parallel. None starts after the plan has become invalid.
    async fn batch(&mut self, writes: Vec<Write>, until: Instant) -> Result<Outcome, Stop> {
        let mut repeats = std::mem::take(&mut self.pace.repeats);
        repeats.forget_old();
        let batch = Batch {
            applier: self.applier,
            target: self.target,
            on_write: self.on_write,
            until,
            proof: Proof::until(until, &writes),
            results: Mutex::new(self.memory.begin(self.target.owner.kind)),
            patched: Mutex::default(),
            repeats: Mutex::new(repeats),
            trial_timeout: AsyncMutex::new(self.pace.proof_timeout),
            gate_permits: Semaphore::new(batch::MAX_GATE_CLOSURES),
            first_pod: AsyncMutex::default(),
        };
        let has_trials = writes.iter().any(|write| write.trial().is_some());
        batch.run(writes, M::MAX_WRITES, &mut self.pace.proof_timeout).await;
        self.pace.repeats = batch.repeats.into_inner().unwrap_or_else(PoisonError::into_inner);
        if has_trials {
            self.pace.proof_timeout = batch.trial_timeout.into_inner();
        }
        let mut results = batch.results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let patched = batch.patched.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(patched) = patched {
            self.target.owner.resource_version = patched.resource_version;
            self.target.generation = patched.generation;
        }
        for event in results.events() {
            self.applier.events.publish(&*self.target, PendingEvent::Pods(event));
        }
        self.memory.settle(results, Timestamp::now())
    }

    /// Writes the status, if it has changed. A successful write proves that the object is unchanged.
    async fn write_status(&mut self) -> Result<(), Stop> {
        let Some(status) = &self.status else {
            return Ok(());
        };
        let fingerprint = Fingerprint::of(&"status", &to_bytes(status));
        if let Some((_, until)) = self.pace.repeats.held(fingerprint) {
            // Something changes what is stored, so that it would be written again each time.
            self.pace.status_due = Some(until);
            return Ok(());
        }
        let Owner { kind, name, namespace, uid, resource_version, .. } = &self.target.owner;
        let body = serde_json::json!({
            "apiVersion": API_VERSION,
            "kind": kind.name(),
            "metadata": {
                "name": name,
                "namespace": (!namespace.is_empty()).then_some(namespace),
                "uid": uid,
                "resourceVersion": resource_version,
            },
            "status": status,
        });
        let path = format!("{}/status", self.target.owner.path());
        let requested = Instant::now();
        let response = self.applier.requests.put(&path, to_bytes(&body)).await?;
        (self.on_write)(Written::Version(self.target.owner.kind, response.version()));
        self.target.owner.resource_version = response.resource_version;
        self.pace.status_due = Some(Instant::now() + STATUS_INTERVAL);
        self.pace.repeats.record(fingerprint);
        self.status = None;
        self.proven_until = proof::valid_until(requested, &mut self.pace.proof_timeout);
        Ok(())
    }

    /// Proves that the object is unchanged, unless the last proof is recent.
    async fn prove(&mut self) -> Result<(), Stop> {
        let is_recent = |until| Instant::now() + PROOF_LIFETIME * 3 / 4 < until;
        if !self.proven_until.is_some_and(is_recent) {
            let timeout = &mut self.pace.proof_timeout;
            self.proven_until = Some(proof::prove(self.applier, self.target, timeout).await?);
        }
        Ok(())
    }
}
