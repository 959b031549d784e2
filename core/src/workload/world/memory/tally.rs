//! The results of the writes of one batch, and their consequences.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::rehearsals::Rehearsals;
use super::{Backoff, GuardState, GuardedPlayers, Memory, Verdict};
use crate::guard::Ground;
use crate::observed::{Kind, OtherBudget};
use crate::write::{
    Attempt, Change, DeletionReason, Outcome, Owned, PodsEvent, Refusal, Rehearsal, Results, Stop,
    Write,
};

/// The results of a batch of writes for a workload.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whether something was left to the next plan.
    unfinished: bool,
    /// Whether the names of pods can be chosen, rather than being determined by ordinals.
    chooses_names: bool,
    /// Revisions whose last pod was refused before this batch. The batch tries to create only one pod of each.
    on_trial: BTreeSet<String>,
    /// The revisions on trial for which this batch tries to create a pod, with its name.
    tried: BTreeMap<String, String>,
    /// Revisions with a pod that was refused in this batch.
    refused: BTreeSet<String>,
    /// Revisions with a pod that was created in this batch.
    accepted: BTreeSet<String>,
    /// The API server's verdicts on pods, by revision, before this batch and in it.
    verdicts: BTreeMap<String, Verdict>,
    /// What the API server said about changes of single pods.
    rehearsals: Rehearsals,
    taken: BTreeSet<String>,
    /// The kinds of write that were refused before this batch.
    failed_before: BTreeSet<Attempt>,
    succeeded: BTreeSet<Attempt>,
    failed: BTreeMap<Attempt, String>,
    /// Whether a pod that ended as soon as it started was replaced.
    backs_off: bool,
    /// Whether the guard of pods is in force, if that is known.
    guard: Option<GuardState>,
    /// The PodDisruptionBudgets of other clients, as last read.
    other_budgets: Vec<OtherBudget>,
    /// Guarded pods that may have players.
    players: GuardedPlayers,
    created: Vec<String>,
    deleted: Vec<String>,
    updated: Vec<String>,
    /// Pods that were deleted because their deadline had expired.
    expired: Vec<String>,
    unavailable: Option<(String, Option<Duration>)>,
    conflict: Option<String>,
    rejected: Option<String>,
    /// Whether the API server refused a write that the rest of the plan depends on.
    void: bool,
}

impl Results for Tally {
    fn may_begin(&mut self, write: &Write) -> bool {
        if self.unavailable.is_some() {
            return false;
        }
        let Change::CreatePod(new) = write.change() else {
            return true;
        };
        if self.refused.contains(&new.revision) {
            return false;
        }
        // If the pod on trial is accepted, the next plan creates the others.
        if self.tried.get(&new.revision).is_some_and(|name| *name != new.name) {
            self.unfinished = true;
            return false;
        }
        if self.on_trial.contains(&new.revision) {
            self.tried.insert(new.revision.clone(), new.name.clone());
        }
        true
    }

    fn tries_first(&self, write: &Write) -> bool {
        match write.change() {
            Change::CreatePod(new) => self.verdicts.get(&new.revision) != Some(&Verdict::Accepted),
            _ => write.attempt().is_some_and(|attempt| self.failed_before.contains(&attempt)),
        }
    }

    fn passed_dry_run(&mut self, write: &Write) {
        match write.change() {
            Change::CreatePod(new) => {
                self.verdicts.insert(new.revision.clone(), Verdict::Accepted);
            }
            _ => {
                let attempt = write.attempt();
                self.failed_before.retain(|it| Some(*it) != attempt);
                self.succeeded.extend(attempt);
            }
        }
    }

    fn is_rehearsed(&self, rehearsal: &Rehearsal, now: Timestamp) -> bool {
        self.rehearsals.has_passed(rehearsal, now)
    }

    fn count_rehearsal(
        &mut self,
        rehearsal: &Rehearsal,
        result: Result<(), Refusal>,
        now: Timestamp,
    ) {
        let refused = match result {
            Ok(()) => None,
            Err(Refusal::Rejected(message) | Refusal::NamespaceTerminating(message)) => {
                self.failed.insert(rehearsal.attempt, message.clone());
                self.rejected = Some(message.clone());
                Some(message)
            }
            Err(refusal) => return self.count_failure(refusal),
        };
        self.rehearsals.record(rehearsal, refused, now);
    }

    fn count(&mut self, write: &Write, result: Result<(), Refusal>, now: Timestamp) {
        // Even if there is no response, the pod may have been deleted.
        let may_be_done = matches!(result, Ok(_) | Err(Refusal::Unavailable { .. }));
        match write.change() {
            Change::DeletePod(it) if may_be_done => {
                self.players.forget(&it.pod.uid);
                self.verdicts.values_mut().for_each(|verdict| verdict.pod_deleted(it));
            }
            // Likewise, the budget may have been deleted.
            Change::Delete { kind: Owned::Budget, .. } if may_be_done => self.guard = None,
            _ => {}
        }
        match result {
            Ok(()) => self.record_success(write, now),
            Err(Refusal::Rejected(message) | Refusal::NamespaceTerminating(message)) => {
                self.record_rejection(write, message, now);
            }
            Err(Refusal::AlreadyExists(message)) => self.record_taken_name(write, message, now),
            Err(Refusal::NotFound(_)) if matches!(write.change(), Change::ProbeGuard { .. }) => {
                self.record_guard(Some(GuardState::no_budget(self.guard.as_ref())));
            }
            Err(refusal) => self.count_failure(refusal),
        }
    }

    fn leave_rest(&mut self) {
        self.unfinished = true;
    }

    /// They become part of the guard's state once a successful probe of the guard is counted.
    fn observe_budgets(&mut self, others: Vec<OtherBudget>) {
        self.other_budgets = others;
    }

    /// Failures become conditions and events of the next plan.
    fn events(&mut self) -> Vec<PodsEvent> {
        let pods = |reason, done, pods: &mut Vec<String>| {
            let pods = std::mem::take(pods);
            (!pods.is_empty()).then_some(PodsEvent { reason, done, pods })
        };
        [
            pods("SuccessfulCreate", "created", &mut self.created),
            pods("SuccessfulDelete", "deleted", &mut self.deleted),
            pods("SuccessfulUpdate", "updated in place", &mut self.updated),
            pods(
                "DeadlinePassed",
                "deleted after spec.protection.deadlineSeconds, before the hook succeeded:",
                &mut self.expired,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Tally {
    pub(super) fn begin(kind: Kind, memory: &mut Memory) -> Self {
        Self {
            chooses_names: kind == Kind::GameDeployment,
            on_trial: memory.refused.clone(),
            verdicts: memory.verdicts.clone(),
            failed_before: memory.failures.attempts().collect(),
            guard: memory.guard.clone(),
            players: std::mem::take(&mut memory.players),
            rehearsals: std::mem::take(&mut memory.rehearsals),
            ..Self::default()
        }
    }

    /// Records a failure that says nothing about what was asked for.
    fn count_failure(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Late => self.unfinished = true,
            Refusal::Busy { message, after } | Refusal::Unavailable { message, after } => {
                self.unavailable = Some((message, after));
            }
            Refusal::Conflict(message)
            | Refusal::NotFound(message)
            | Refusal::AlreadyExists(message)
            | Refusal::Rejected(message)
            | Refusal::NamespaceTerminating(message) => self.conflict = Some(message),
        }
    }

    fn record_success(&mut self, write: &Write, now: Timestamp) {
        self.succeeded.extend(write.attempt());
        match write.change() {
            Change::CreatePod(new) => {
                self.created.push(new.name.clone());
                self.accepted.insert(new.revision.clone());
                self.verdicts.insert(new.revision.clone(), Verdict::Accepted);
            }
            Change::DryRun { revision, .. } => {
                self.verdicts.insert(revision.clone(), Verdict::Accepted);
                // The writes that need the verdict are left to the next plan.
                self.unfinished = true;
            }
            Change::ForceDeletePod(pod) => self.deleted.push(pod.name.clone()),
            Change::DeletePod(deletion) => {
                self.backs_off |= deletion.reason == DeletionReason::EndedAtOnce;
                let deleted = match deletion.ground {
                    Ground::Deadline => &mut self.expired,
                    _ => &mut self.deleted,
                };
                deleted.push(deletion.pod.name.clone());
            }
            Change::ProbeGuard { .. } => {
                // While the guard was not in force, any client could change the budget. The next plan therefore applies
                // it again.
                let was_not_in_force = matches!(self.guard, Some(GuardState::NotInForce { .. }));
                let others = std::mem::take(&mut self.other_budgets);
                let state = GuardState::InForce { at: now, others };
                self.record_guard((!was_not_in_force).then_some(state));
            }
            Change::Delete { kind: Owned::Budget, .. } => {
                self.record_guard(Some(GuardState::NoBudget { times: 0 }));
            }
            Change::PatchInPlace(patch) if !patch.is_continuation() => {
                self.updated.push(patch.pod.name.clone());
            }
            _ => {}
        }
    }

    /// Records the state of the guard. The next plan reports this state.
    fn record_guard(&mut self, guard: Option<GuardState>) {
        self.guard = guard;
        self.unfinished = true;
    }

    fn record_not_in_force(&mut self, message: String, now: Timestamp) {
        let previous = self.guard.as_ref();
        let state = GuardState::not_in_force(previous, message, now);
        self.record_guard(Some(state));
    }

    /// Records that another owner's object already has the name. If names can be chosen, the next plan chooses a new
    /// one.
    fn record_taken_name(&mut self, write: &Write, message: String, now: Timestamp) {
        let name = match write.change() {
            Change::CreatePod(_) if !self.chooses_names => {
                self.failed.insert(Attempt::CreatePod, message.clone());
                self.rejected = Some(message);
                return;
            }
            Change::CreatePod(new) => &new.name,
            Change::CreateRevision(new) => &new.name,
            _ => return self.record_rejection(write, message, now),
        };
        self.taken.insert(name.clone());
        self.conflict = Some(message);
    }

    fn record_rejection(&mut self, write: &Write, message: String, now: Timestamp) {
        match write.change() {
            Change::CreatePod(new) => {
                self.refused.insert(new.revision.clone());
                self.record_verdict(&new.revision, &message, now, Verdict::creation_refused);
            }
            Change::DryRun { revision, .. } => {
                self.record_verdict(revision, &message, now, Verdict::dry_run_refused);
                self.unfinished = true;
                return;
            }
            Change::ApplyBudget(_) => {
                let message = format!("the PodDisruptionBudget cannot be created: {message}");
                return self.record_not_in_force(message, now);
            }
            Change::ProbeGuard { .. } => return self.record_not_in_force(message, now),
            // The rest of the plan depends on these writes.
            Change::PatchWorkload(_) | Change::CreateRevision(_) => self.void = true,
            _ => {}
        }
        if let (Some(pod), Some(goal)) = (write.pod(), write.change().goal()) {
            self.rehearsals.record_surprise(&pod.uid, goal, message.clone(), now);
        }
        self.failed.extend(write.attempt().map(|it| (it, message.clone())));
        self.rejected = Some(message);
    }

    /// Records the verdict that pods of a revision are refused.
    fn record_verdict(
        &mut self,
        revision: &str,
        message: &str,
        now: Timestamp,
        refused: impl Fn(Option<&Verdict>, String, Timestamp) -> Verdict,
    ) {
        let before = self.verdicts.get(revision);
        let refused = refused(before, message.to_owned(), now);
        self.verdicts.insert(revision.to_owned(), refused);
    }

    /// Remembers the results, and returns the outcome of the batch.
    pub(super) fn settle(self, memory: &mut Memory, now: Timestamp) -> Result<Outcome, Stop> {
        memory.guard = self.guard;
        memory.players = self.players;
        memory.rehearsals = self.rehearsals;
        memory.rehearsals.forget_old(now);
        memory.verdicts = self.verdicts;
        memory.record_taken(self.taken);
        memory.refused.retain(|it| !self.accepted.contains(it));
        memory.refused.extend(self.refused);
        if self.backs_off {
            memory.backoff = Some(Backoff::after_round(memory.backoff, now));
        }
        let failures = &mut memory.failures;
        // A kind that was refused as well, for example after a dry run that succeeded, is not refused for the first time.
        failures.retain(|attempt| {
            !self.succeeded.contains(&attempt) || self.failed.contains_key(&attempt)
        });
        for (attempt, message) in self.failed {
            failures.record(attempt, message, now);
        }
        if let Some((message, after)) = self.unavailable {
            return Err(Stop::Failed(message, after));
        }
        if let Some(message) = self.rejected {
            return match self.void {
                true => Err(Stop::Failed(message, None)),
                false => Ok(Outcome::Failed { message, after: None }),
            };
        }
        if let Some(message) = self.conflict {
            return Err(Stop::Conflict(message));
        }
        Ok(match self.unfinished {
            true => Outcome::Unfinished,
            false => Outcome::Done,
        })
    }
}
