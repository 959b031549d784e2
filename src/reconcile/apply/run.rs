//! Applies a plan: determines the order of its writes, and starts each write only while the plan is valid.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::events::PendingEvent;
use super::proof::{self, PLAN_LIFETIME, PROOF_LIFETIME, Proof};
use super::tally::Tally;
use super::{Applier, ApplyOutcome, Memory, Report, Target};
use crate::runtime::fair::TooLate;
use crate::runtime::objects::Write;
use crate::runtime::request::{Refusal, ResponseMetadata, to_bytes};
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::observed::time::rounded_down;
use gamekeeper_core::write::{Action, InPlacePatch, Phase, Plan, PodRef};

/// The maximum number of concurrent writes.
const MAX_WRITES: usize = 64;
/// The maximum number of concurrent writes that close a gate before an in-place change. If there were more of them on a
/// busy API server, a pod's change would have to wait until the gates of many other pods are closed. Meanwhile, the
/// kubelet would write a status for the pod's own closed gate.
const MAX_GATE_CLOSURES: usize = 16;
/// How long a write that undoes nothing and follows another one may wait.
const SEQUEL_LIFETIME: Duration = Duration::from_secs(5);
/// The shortest time between two writes of a status that no decision depends on.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// A plan that is being applied.
struct Execution<'a, S> {
    applier: &'a Applier,
    target: &'a mut Target,
    memory: &'a mut Memory,
    on_write: &'a (dyn Fn(Write) + Send + Sync),
    /// When the plan was made; None if planning took too long.
    decided_at: Option<Instant>,
    /// The status to write; None if it is unchanged, or once it is written.
    status: Option<S>,
    /// When the last proof expires.
    proven_until: Option<Instant>,
}

/// Why the rest of a plan is dropped.
pub(super) enum Stop {
    /// A precondition does not hold.
    Conflict(String),
    /// A proof took too long.
    Late,
    /// A request failed: the message, and the value of the response's Retry-After header.
    Failed(String, Option<Duration>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy { message, after } | Refusal::Unavailable { message, after } => {
                Stop::Failed(message, after)
            }
            Refusal::Rejected(message) | Refusal::NamespaceTerminating(message) => {
                Stop::Failed(message, None)
            }
            Refusal::Late(_) => Stop::Late,
            Refusal::Conflict(message)
            | Refusal::AlreadyExists(message)
            | Refusal::NotFound(message) => Stop::Conflict(message),
        }
    }
}

impl Applier {
    /// Applies a plan for a workload whose status is `old_status`. `on_write` is called with each write.
    ///
    /// First come the actions that undo or prepare something. Then the status is written, if the rest depends on it or
    /// if it was not written recently. The rest follows; irrevocable actions require a proof that the workload is
    /// unchanged. Actions that cannot start while the proof is valid are left to the next plan.
    pub(crate) async fn carry_out<S: Serialize + PartialEq>(
        &self,
        target: &mut Target,
        plan: Plan<S>,
        old_status: Option<&S>,
        memory: &mut Memory,
        on_write: &(dyn Fn(Write) + Send + Sync),
    ) -> Report {
        let Plan { actions, status, status_first, events, .. } = plan;
        let is_in_time = memory.planning_timeout.accepts(target.read_at);
        let decided_at = is_in_time.then(Instant::now);
        let mut execution = Execution {
            applier: self,
            target,
            memory,
            on_write,
            decided_at,
            status: status.filter(|status| Some(status) != old_status),
            proven_until: None,
        };
        let outcome = match execution.run(actions, status_first).await {
            Ok(outcome) => outcome,
            Err(Stop::Conflict(message)) => ApplyOutcome::Conflict(message),
            Err(Stop::Late) => ApplyOutcome::Unfinished,
            Err(Stop::Failed(message, after)) => ApplyOutcome::Failed { message, after },
        };
        let is_status_delayed = execution.status.is_some();
        if !is_status_delayed {
            for event in events {
                self.events.publish(&*execution.target, PendingEvent::Plain(event));
            }
        }
        Report { outcome, status_due: is_status_delayed.then(|| next_status_write(memory)) }
    }
}

/// The earliest time for the next write of a status that no decision depends on.
fn next_status_write(memory: &Memory) -> Instant {
    match memory.status_written {
        Some(last) => last + STATUS_INTERVAL,
        None => Instant::now(),
    }
}

/// Whether an action of [`Phase::Before`] requires a proof that the workload is unchanged. A workload that is being
/// deleted must not adopt objects. A revision of a deleted workload would be created again each time the garbage
/// collector deletes it, and a guard that was switched on again must not be removed.
fn needs_proof(action: &Action) -> bool {
    matches!(
        action,
        Action::AdoptPod(_)
            | Action::AdoptRevision { .. }
            | Action::CreateRevision(_)
            | Action::GuardPod { label: None, .. }
            | Action::DeleteBudget { .. }
    )
}

impl<S: Serialize> Execution<'_, S> {
    async fn run(
        &mut self,
        actions: Vec<Action>,
        status_first: bool,
    ) -> Result<ApplyOutcome, Stop> {
        let (before_status, mut after_status): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| action.phase() == Phase::Before);
        let generation = self.target.generation;
        if before_status.iter().any(needs_proof) {
            self.prove().await?;
        }
        let until = Instant::now() + PROOF_LIFETIME;
        let mut outcome = self.batch(before_status, until).await?;
        if outcome == ApplyOutcome::Unfinished {
            return Ok(outcome);
        }
        if self.target.generation != generation {
            return Ok(ApplyOutcome::Conflict("by our own patch".to_owned()));
        }
        if status_first || next_status_write(self.memory) <= Instant::now() {
            self.write_status().await?;
        }
        let is_fresh = |decided_at: Instant| decided_at.elapsed() <= PLAN_LIFETIME;
        if !self.decided_at.is_some_and(is_fresh)
            && !after_status.iter().all(Action::depends_on_workload_alone)
        {
            after_status.retain(Action::depends_on_workload_alone);
            outcome = ApplyOutcome::Unfinished;
        }
        if after_status.iter().any(Action::is_irrevocable) {
            self.prove().await?;
        }
        if !after_status.is_empty() {
            let proven_until = self.proven_until;
            let until = proven_until.unwrap_or_else(|| Instant::now() + PROOF_LIFETIME);
            let last_outcome = self.batch(after_status, until).await?;
            if last_outcome != ApplyOutcome::Done && !matches!(outcome, ApplyOutcome::Failed { .. })
            {
                outcome = last_outcome;
            }
        }
        Ok(outcome)
    }

    /// Carries out actions in parallel. No action starts after the plan has become invalid.
    async fn batch(&mut self, actions: Vec<Action>, until: Instant) -> Result<ApplyOutcome, Stop> {
        let tally = Mutex::new(Tally::begin(self.target.kind, self.memory));
        let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        let proof = Proof::until(until, &actions);
        let (applier, on_write) = (self.applier, self.on_write);
        let target = &*self.target;
        // Also returns whether the action was not sent, because it had to wait for too long.
        let act = async |action: &Action, deadline: Instant| {
            let (started, now) = (Instant::now(), Timestamp::now());
            let result = applier.act(target, action, deadline, now, on_write).await;
            if matches!(result, Err(Refusal::Late(_))) {
                return Err(TooLate);
            }
            applier.metrics.wrote(target, action, &result, started.elapsed());
            let sequel = result.as_ref().ok().and_then(|it| sequel(action, it, now));
            if result.is_ok() && matches!(action, Action::ProbeGuard { .. }) {
                let others = applier.other_budgets(target).await;
                lock().observe_budgets(others);
            }
            lock().count(action, result);
            Ok(sequel)
        };
        let gate_permits = Semaphore::new(MAX_GATE_CLOSURES);
        let writes = stream::iter(actions).map(async |action| {
            let _permit = match action {
                Action::CloseGate { then: Some(_), .. } => gate_permits.acquire().await.ok(),
                _ => None,
            };
            let sequel = loop {
                let Some(deadline) = proof.deadline_of(&action).await else {
                    lock().unfinished = true;
                    break None;
                };
                if !lock().may_begin(&action) {
                    break None;
                }
                match act(&action, deadline).await {
                    Ok(sequel) => break sequel,
                    // The proof is renewed for it.
                    Err(TooLate) if action.depends_on_workload_alone() => {
                        proof.await_another();
                    }
                    Err(TooLate) => {
                        lock().unfinished = true;
                        break None;
                    }
                }
            };
            if let Some(sequel) = sequel {
                // Without it, the next plan continues.
                let deadline = match sequel.is_irrevocable() {
                    true => until + PROOF_LIFETIME,
                    false => Instant::now() + SEQUEL_LIFETIME,
                };
                if act(&sequel, deadline).await.is_err() {
                    lock().unfinished = true;
                }
            }
        });
        tokio::select! {
            () = writes.buffer_unordered(MAX_WRITES).collect::<()>() => {}
            () = proof.renew(applier, target, &mut self.memory.proof_timeout) => {}
        }
        let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(patched) = tally.workload.take() {
            self.target.resource_version = patched.resource_version;
            self.target.generation = patched.generation;
        }
        for event in tally.events() {
            applier.events.publish(&*self.target, event);
        }
        tally.settle(self.memory)
    }

    /// Writes the status, if it has changed. A successful write proves that the workload is unchanged.
    async fn write_status(&mut self) -> Result<(), Stop> {
        let Some(status) = &self.status else {
            return Ok(());
        };
        let Target { kind, name, namespace, uid, resource_version, .. } = &*self.target;
        let body = serde_json::json!({
            "apiVersion": API_VERSION,
            "kind": kind.as_str(),
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": resource_version,
            },
            "status": status,
        });
        let path = format!("{}/status", self.target.path());
        let requested = Instant::now();
        let response = self.applier.requests.put(&path, to_bytes(&body)).await?;
        (self.on_write)(Write::Version(self.target.kind.into(), response.version()));
        self.target.resource_version = response.resource_version;
        self.memory.status_written = Some(Instant::now());
        self.status = None;
        self.proven_until = proof::valid_until(requested, &mut self.memory.proof_timeout);
        Ok(())
    }

    /// Proves that the workload is unchanged, unless the last proof is recent.
    async fn prove(&mut self) -> Result<(), Stop> {
        let is_recent = |until| Instant::now() + PROOF_LIFETIME * 3 / 4 < until;
        if !self.proven_until.is_some_and(is_recent) {
            let timeout = &mut self.memory.proof_timeout;
            self.proven_until = Some(proof::prove(self.applier, self.target, timeout).await?);
        }
        Ok(())
    }
}

/// The action, if any, that follows another one without a new plan. If the process dies in between, the next plan
/// continues.
fn sequel(action: &Action, response: &ResponseMetadata, now: Timestamp) -> Option<Action> {
    match action {
        // With its gate already open, the pod can be Ready in the kubelet's first status.
        Action::CreatePod(new) if new.has_gate => Some(Action::OpenGate(PodRef {
            name: new.name.clone(),
            uid: response.uid.clone(),
            version: None,
            allowed_until: None,
        })),
        // A probe before this write would examine the previous budget.
        Action::ApplyBudget(budget) => Some(Action::ProbeGuard { budget: budget.name.clone() }),
        Action::CloseGate { then: Some(patch), .. } => {
            let mut patch = InPlacePatch::clone(patch);
            patch.record.gate_closed_at = Some(rounded_down(now));
            // The pod was unchanged when its gate was closed, and must not have changed since.
            patch.pod.version = patch.pod.version.map(|_| response.version());
            Some(Action::PatchInPlace(patch))
        }
        _ => None,
    }
}
