//! The order in which a plan is applied, and for how long it is valid.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::body::whole_second;
use super::events::PendingEvent;
use super::proof::{self, PLAN_LIFETIME, PROOF_LIFETIME, Proof};
use super::tally::Tally;
use super::{Applier, ApplyOutcome, Memory, Refusal, Report, ResponseMetadata, Target, to_bytes};
use crate::objects::Write;
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::plan::{Action, InPlacePatch, Phase, Plan, PodRef};

/// Concurrent writes.
const MAX_WRITES: usize = 64;
/// Of those, the ones that close a gate for a change that follows. With more, on a busy API server the
/// change would wait behind other pods' gates for so long that the kubelet reports the closed gate
/// by itself: one write more for each pod.
const MAX_GATE_CLOSURES: usize = 16;
/// Shortest time between two writes of a status on which no decision rests.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// One plan while it is applied.
struct Execution<'a, S> {
    applier: &'a Applier,
    target: &'a mut Target,
    memory: &'a mut Memory,
    on_write: &'a (dyn Fn(Write) + Send + Sync),
    /// When the plan was made; None when that took so long that pods may be another way.
    decided: Option<Instant>,
    /// The status to write; None once it is written, or when it shows already.
    status: Option<S>,
    /// Until when the last proof is good that the workload is as it was decided on.
    proven: Option<Instant>,
}

/// Why a plan is not applied to its end.
pub(super) enum Stop {
    /// The world is not as it was decided on.
    Moved(String),
    /// The proof that it is came too late.
    Late,
    /// Something was refused; the server may say when to ask again.
    Failed(String, Option<Duration>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy { message, after } | Refusal::Unavailable { message, after } => {
                Stop::Failed(message, after)
            }
            Refusal::Rejected(message) => Stop::Failed(message, None),
            Refusal::Conflict(message)
            | Refusal::AlreadyExists(message)
            | Refusal::NotFound(message) => Stop::Moved(message),
        }
    }
}

impl Applier {
    /// Applies a plan for a workload whose status is `old_status`. `on_write` is told of each write.
    ///
    /// First come the actions that undo or prepare something; then the status, if the rest depends on
    /// it; then, after a proof that the workload is unchanged, the rest. Actions that could not begin
    /// within half a second are left to the next plan.
    pub(crate) async fn carry_out<S: Serialize + PartialEq>(
        &self,
        target: &mut Target,
        plan: Plan<S>,
        old_status: Option<&S>,
        memory: &mut Memory,
        on_write: &(dyn Fn(Write) + Send + Sync),
    ) -> Report {
        let Plan {
            actions,
            status,
            status_first,
            events,
            ..
        } = plan;
        let is_believed = memory.planning_timeout.accepts(target.seen);
        let decided = is_believed.then(Instant::now);
        let mut run = Execution {
            applier: self,
            target,
            memory,
            on_write,
            decided,
            status: status.filter(|status| Some(status) != old_status),
            proven: None,
        };
        let outcome = match run.go(actions, status_first).await {
            Ok(outcome) => outcome,
            Err(Stop::Moved(message)) => ApplyOutcome::Moved(message),
            Err(Stop::Late) => ApplyOutcome::Unfinished,
            Err(Stop::Failed(message, after)) => ApplyOutcome::Failed { message, after },
        };
        let held_back = run.status.is_some();
        if !held_back {
            for event in events {
                self.events
                    .publish(&*run.target, PendingEvent::Plain(event));
            }
        }
        Report {
            outcome,
            status_due: held_back.then(|| next_status(memory)),
        }
    }
}

/// The earliest time for the next write of a status on which no decision rests.
fn next_status(memory: &Memory) -> Instant {
    match memory.status_written {
        Some(last) => last + STATUS_INTERVAL,
        None => Instant::now(),
    }
}

/// Whether an action takes something over, which a workload that is going must not do.
fn is_adoption(action: &Action) -> bool {
    matches!(action, Action::AdoptPod(_) | Action::AdoptRevision { .. })
}

impl<S: Serialize> Execution<'_, S> {
    async fn go(&mut self, actions: Vec<Action>, status_first: bool) -> Result<ApplyOutcome, Stop> {
        let (before, mut after): (Vec<_>, Vec<_>) = actions
            .into_iter()
            .partition(|action| action.phase() == Phase::Before);
        let generation = self.target.generation;
        if before.iter().any(is_adoption) {
            self.prove().await?;
        }
        let mut outcome = self.batch(before, Instant::now() + PROOF_LIFETIME).await?;
        if outcome == ApplyOutcome::Unfinished {
            return Ok(outcome);
        }
        if self.target.generation != generation {
            return Ok(ApplyOutcome::Moved("by our own patch".to_owned()));
        }
        if status_first || next_status(self.memory) <= Instant::now() {
            self.write_status().await?;
        }
        let is_fresh = |decided: Instant| decided.elapsed() <= PLAN_LIFETIME;
        if !self.decided.is_some_and(is_fresh) && !after.iter().all(Action::lasts) {
            after.retain(Action::lasts);
            outcome = ApplyOutcome::Unfinished;
        }
        if after.iter().any(Action::is_irrevocable) {
            self.prove().await?;
        }
        if !after.is_empty() {
            let good_until = self
                .proven
                .unwrap_or_else(|| Instant::now() + PROOF_LIFETIME);
            let rest = self.batch(after, good_until).await?;
            if rest != ApplyOutcome::Done && !matches!(outcome, ApplyOutcome::Failed { .. }) {
                outcome = rest;
            }
        }
        Ok(outcome)
    }

    /// Carries out actions side by side; none is begun when the decision is no longer fresh.
    async fn batch(
        &mut self,
        actions: Vec<Action>,
        good_until: Instant,
    ) -> Result<ApplyOutcome, Stop> {
        let tally = Mutex::new(Tally::begin(self.target.kind, self.memory));
        let lock = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        let proof = Proof::until(good_until, &actions);
        let (applier, on_write) = (self.applier, self.on_write);
        let target = &*self.target;
        let act = async |action: &Action| {
            let (begun, now) = (Instant::now(), Timestamp::now());
            let answer = applier.act(target, action, now, on_write).await;
            applier
                .metrics
                .wrote(target, action, &answer, begun.elapsed());
            let sequel = answer.as_ref().ok().and_then(|it| sequel(action, it, now));
            lock().count(action, answer);
            sequel
        };
        let changes = Semaphore::new(MAX_GATE_CLOSURES);
        let answers = stream::iter(actions).map(async |action| {
            let _permit = match action {
                Action::CloseGate { then: Some(_), .. } => changes.acquire().await.ok(),
                _ => None,
            };
            if !proof.is_good_for(&action).await {
                lock().left = true;
            } else if lock().may_begin(&action)
                && let Some(sequel) = act(&action).await
                && (!sequel.is_irrevocable() || Instant::now() < good_until + PROOF_LIFETIME)
            {
                act(&sequel).await;
            }
        });
        tokio::select! {
            () = answers.buffer_unordered(MAX_WRITES).collect::<()>() => {}
            () = proof.renew(applier, target, &mut self.memory.proof_timeout) => {}
        }
        let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = &tally.workload {
            self.target
                .resource_version
                .clone_from(&answer.resource_version);
            self.target.generation = answer.generation;
        }
        for event in tally.events() {
            applier.events.publish(&*self.target, event);
        }
        tally.settle(self.memory)
    }

    /// Writes the status if it is to be written. That it is taken proves the workload unmoved.
    async fn write_status(&mut self) -> Result<(), Stop> {
        let Some(status) = &self.status else {
            return Ok(());
        };
        let Target {
            kind,
            name,
            namespace,
            uid,
            resource_version,
            ..
        } = &*self.target;
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
        let asked = Instant::now();
        let answer = self.applier.requests.put(&path, to_bytes(&body)).await?;
        (self.on_write)(Write::Version(self.target.kind.into(), answer.version()));
        self.target.resource_version = answer.resource_version;
        self.memory.status_written = Some(Instant::now());
        self.status = None;
        self.proven = proof::good_until(asked, &mut self.memory.proof_timeout);
        Ok(())
    }

    /// Makes sure that the workload is still as it was decided on.
    async fn prove(&mut self) -> Result<(), Stop> {
        let is_fresh = |until| Instant::now() + PROOF_LIFETIME * 3 / 4 < until;
        if !self.proven.is_some_and(is_fresh) {
            let timeout = &mut self.memory.proof_timeout;
            self.proven = Some(proof::ask(self.applier, self.target, timeout).await?);
        }
        Ok(())
    }
}

/// What follows an action at once, without another plan. Should it not come to that, the next plan
/// goes on from there.
fn sequel(action: &Action, answer: &ResponseMetadata, now: Timestamp) -> Option<Action> {
    match action {
        // So the kubelet's first status can say Ready.
        Action::CreatePod(new) if new.has_gate() => Some(Action::OpenGate(PodRef {
            name: new.name.clone(),
            uid: answer.uid.clone(),
            version: None,
        })),
        Action::CloseGate {
            then: Some(patch), ..
        } => {
            let mut patch = InPlacePatch::clone(patch);
            patch.record.gate_closed_at = Some(whole_second(now));
            // What closed the gate found the pod unchanged; nothing may have happened since.
            patch.pod.version = patch.pod.version.map(|_| answer.version());
            Some(Action::PatchInPlace(patch))
        }
        _ => None,
    }
}
