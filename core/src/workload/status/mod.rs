//! What users see: counts and conditions.

pub(super) mod causes;
pub(super) mod conclusion;
pub(super) mod events;
mod troubles;
pub(super) mod unreadable;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{Cause, ConditionType, PauseReason, Reason};
use crate::kstatus;
use crate::kstatus::{MAX_MESSAGE, State, Why};
use crate::observed::time::{earlier, rounded_down};
use crate::observed::{Pod, RevisionName};
use crate::text::truncate;
use crate::workload::decision::{Blocked, Obstacles};
use crate::workload::hooks::Refused;
use crate::workload::in_place::is_at;
use crate::workload::pods::availability::{available_at, is_available};
use crate::workload::protection;
use crate::workload::rollout::Rollout;
use crate::workload::spec::UpdateType;
use crate::workload::spec::Workload;
use crate::workload::status::troubles::Troubles;
use crate::workload::world::World;

/// The numbers of pods in each state, including victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PodCounts {
    /// All.
    pub replicas: i32,
    /// Ready.
    pub ready: i32,
    /// Available.
    pub available: i32,
    /// At the update revision.
    pub updated: i32,
    /// At the update revision and ready.
    pub updated_ready: i32,
}

/// Counts pods, and returns when the next one becomes available just by the passage of time.
pub(super) fn count(
    workload: &Workload,
    pods: &[&Pod],
    update: RevisionName,
    now: Timestamp,
) -> (PodCounts, Option<Timestamp>) {
    let mut counts = PodCounts::default();
    let mut wake = None;
    for pod in pods {
        let updated = is_at(pod, update);
        counts.replicas += 1;
        counts.ready += i32::from(pod.is_ready());
        counts.available += i32::from(is_available(pod, workload, now));
        counts.updated += i32::from(updated);
        counts.updated_ready += i32::from(updated && pod.is_ready());
        wake = earlier(wake, available_at(pod, workload).filter(|at| *at > now));
    }
    (counts, wake)
}

/// The number of pods that are not to be removed, for autoscalers. `places` is the number of pods that keep a missing
/// one from being created: all that are neither ended nor Terminating, those held back after they ended at once, and
/// orphans that are being adopted.
///
/// An autoscaler takes this number as its answer while the metric is within its tolerance, so it must not differ from
/// replicas for any other reason than that pods are missing. What exceeds replicas is removed sooner or later: surplus
/// pods, whether they wait for their hook or for their turn, and surge pods or the pods that these replace. A pod that
/// waits to be replaced keeps its place, and so does one with a reserved ordinal until its substitute exists.
pub(super) fn active(workload: &Workload, places: i64) -> i32 {
    i32::try_from(places.clamp(0, workload.replicas.max(0))).unwrap_or(i32::MAX)
}

/// Why the workload does not match its spec.
#[derive(Default)]
pub(super) struct Reasons {
    /// What blocks the workload.
    pub obstacles: Obstacles,
    /// What the creation of pods waits for, if that needs no action by a user.
    pub waits_for: Option<Blocked>,
}

/// The result of a plan, as far as conditions show it.
pub(super) struct Outcome<'a> {
    /// How far the rollout may go.
    pub rollout: &'a Rollout,
    /// Whether the workload matches its spec.
    pub complete: bool,
    /// The counts.
    pub counts: PodCounts,
    /// The number of pods that are to be deleted or replaced.
    pub victims: usize,
    /// How many of them have a reserved ordinal.
    pub reserved: usize,
    /// What is wrong with pods.
    pub troubles: &'a Troubles<'a>,
    /// The hooks that keep the workload waiting.
    pub hooks: Vec<Cause>,
    /// Whether the pods at the update revision have yet to run for long enough.
    pub unproven: bool,
    /// Why the workload does not match its spec.
    pub reasons: Reasons,
}

impl Outcome<'_> {
    /// A message, with the reason why nothing moves: what is wrong with a pod, or else a hook.
    fn explain(&self, message: String) -> String {
        let hook = || self.hooks.first().map(|it| it.message.clone());
        explained(message, self.troubles.most_urgent().or_else(hook))
    }
}

fn explained(message: String, why: Option<String>) -> String {
    match why {
        Some(why) => format!("{message}: {why}"),
        None => message,
    }
}

/// The conditions, with the time of the last change of each.
pub(super) fn conditions(
    workload: &Workload,
    outcome: &Outcome,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let findings = [ready(workload, outcome), progressing(workload, outcome)];
    let mut conditions: Vec<_> =
        findings.into_iter().map(|it| it.condition(workload, old, now)).collect();
    conditions.extend(failures(workload, &outcome.reasons.obstacles, old, now));
    conditions
}

/// The conditions about what is blocked. They are absent if nothing is.
pub(super) fn failures(
    workload: &Workload,
    obstacles: &Obstacles,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let Obstacles { scale, update, upkeep } = obstacles;
    let blocked = [
        (ConditionType::FailedScale, scale),
        (ConditionType::FailedUpdate, update),
        (ConditionType::FailedUpkeep, upkeep),
    ];
    let findings = blocked.into_iter().filter_map(|(type_, by)| {
        let Blocked { reason, message } = by.as_ref()?;
        Some(Finding::status_true(type_, *reason, message.clone()))
    });
    findings.map(|it| it.condition(workload, old, now)).collect()
}

/// The conditions of a workload that is being deleted while its pods are guarded, except Guarded.
pub(super) fn leaving(
    workload: &Workload,
    pods: i32,
    hooks: &[Cause],
    refusals: &Obstacles,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let left = format!(
        "the workload is being deleted; pods that are left, and wait for their hook: {pods}"
    );
    let message = explained(left, hooks.first().map(|it| it.message.clone()));
    let ready = Finding::status_false(ConditionType::Ready, Reason::PodsToDelete, message.clone());
    let type_ = ConditionType::Progressing;
    let progressing = match refusals.scale.as_ref() {
        Some(by) => Finding::status_false(type_, by.reason, by.message.clone()),
        None => Finding::status_true(type_, Reason::PodsToDelete, message),
    };
    let findings = [ready, progressing].into_iter();
    let mut conditions: Vec<_> = findings.map(|it| it.condition(workload, old, now)).collect();
    conditions.extend(failures(workload, refusals, old, now));
    conditions
}

/// The conditions of a workload of which nothing can be planned but the removal of pods, and when they change by the
/// passage of time alone.
pub(super) fn blocked(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    by: &Blocked,
    old: &[Condition],
) -> (Vec<Condition>, Option<Timestamp>) {
    let finding = |type_| Finding::status_false(type_, by.reason, by.message.clone());
    let findings = [finding(ConditionType::Ready), finding(ConditionType::Progressing)];
    let findings = findings.into_iter().map(|it| it.condition(workload, old, world.now));
    let mut conditions: Vec<_> = findings.collect();
    let obstacles = Obstacles { update: Some(by.clone()), ..Obstacles::default() };
    conditions.extend(failures(workload, &obstacles, old, world.now));
    conditions.extend(guard_condition(workload, world, own, old));
    let state = state(false, &conditions, None);
    let (progress, wake) = kstatus::condition(state, workload.generation, old, world.now);
    conditions.extend(progress);
    (conditions, wake)
}

/// Condition Guarded: whether clients other than the operator are kept from deleting pods. None if the workload does
/// not request that.
pub(super) fn guard_condition(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    old: &[Condition],
) -> Option<Condition> {
    let verdict = protection::verdict(workload, world, own)?;
    let finding = match verdict.holds {
        true => Finding::status_true(ConditionType::Guarded, verdict.reason, verdict.message),
        false => Finding::status_false(ConditionType::Guarded, verdict.reason, verdict.message),
    };
    Some(finding.condition(workload, old, world.now))
}

/// How far a workload with these conditions is, for kstatus. `refused` is a pod whose hook was not successful and is not
/// run again by itself.
pub(super) fn state(complete: bool, conditions: &[Condition], refused: Option<&Refused>) -> State {
    let needs_person = |it: &&Condition| {
        let holds_by_rights = !it.type_.starts_with("Failed");
        let is_problem = (it.status == "True") != holds_by_rights;
        is_problem && Reason::parse(&it.reason).is_some_and(Reason::needs_person)
    };
    if let Some(problem) = conditions.iter().find(needs_person) {
        return State::blocked_by(problem);
    }
    if let Some(Refused { since, message }) = refused {
        let why = Why { reason: Reason::HookNotSuccessful.to_string(), message: message.clone() };
        return State::Blocked { why, since: Some(*since) };
    }
    let mut ready = conditions.iter();
    match ready.find(|it| it.type_ == ConditionType::Ready.as_str() && !complete) {
        Some(ready) => State::Underway(Why::of(ready)),
        None => State::Done,
    }
}

/// A condition as this plan determines it.
struct Finding {
    type_: ConditionType,
    status: &'static str,
    reason: Reason,
    message: String,
}

impl Finding {
    fn status_true(type_: ConditionType, reason: Reason, message: String) -> Self {
        Self { type_, status: "True", reason, message }
    }

    fn status_false(type_: ConditionType, reason: Reason, message: String) -> Self {
        Self { status: "False", ..Self::status_true(type_, reason, message) }
    }

    /// The condition, with the time of its last change.
    fn condition(self, workload: &Workload, old: &[Condition], now: Timestamp) -> Condition {
        let now = Time(rounded_down(now));
        let is_same =
            |old: &&Condition| old.type_ == self.type_.as_str() && old.status == self.status;
        let before = old.iter().find(is_same);
        Condition {
            type_: self.type_.as_str().to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_string(),
            message: truncate(&self.message, MAX_MESSAGE),
            observed_generation: Some(workload.generation),
            last_transition_time: before.map_or(now, |it| it.last_transition_time.clone()),
        }
    }
}

/// Ready means that the workload matches its spec. `kubectl wait` and kstatus wait for it.
fn ready(workload: &Workload, outcome: &Outcome) -> Finding {
    let available = i64::from(outcome.counts.available);
    let updated = i64::from(outcome.counts.updated);
    let wanted = workload.replicas;
    if outcome.complete {
        let message = if updated >= wanted {
            format!("{available} pods are available at the desired revision")
        } else {
            let others = match workload.update {
                UpdateType::OnDelete => "the others are updated when they are deleted",
                _ => "the partition holds the others back",
            };
            format!(
                "{available} pods are available, {updated} of them at the update revision: {others}"
            )
        };
        return Finding::status_true(ConditionType::Ready, Reason::AllPodsAvailable, message);
    }
    let (reason, message) = if available < wanted {
        let message = format!("{available} of {wanted} pods are available");
        (Reason::PodsUnavailable, outcome.explain(message))
    } else if outcome.victims > 0 {
        (Reason::PodsToDelete, outcome.explain(to_delete(outcome)))
    } else if let (Some(by), true) = (&outcome.reasons.obstacles.scale, updated >= wanted) {
        (by.reason, by.message.clone())
    } else if outcome.unproven {
        let message = format!(
            "{available} pods are available, but have not run for long enough to prove the new revision"
        );
        (Reason::RevisionNotProven, message)
    } else {
        let message = format!("{updated} of {wanted} pods are at the update revision");
        (Reason::RolloutUnderWay, outcome.explain(message))
    };
    Finding::status_false(ConditionType::Ready, reason, message)
}

fn to_delete(outcome: &Outcome) -> String {
    let Outcome { victims, reserved, .. } = outcome;
    match reserved {
        0 => format!("pods that are to be deleted and are waiting for their hook: {victims}"),
        _ => format!(
            "pods that are to be deleted and are waiting for their hook or a substitute: {victims}; those to be \
             deleted because their ordinal is reserved: {reserved}"
        ),
    }
}

/// Whether a canary step only waits for a user to delete pods.
fn awaits_deletion(workload: &Workload, outcome: &Outcome) -> bool {
    workload.update == UpdateType::OnDelete
        && !outcome.rollout.progress.is_past(workload.steps.len())
        && outcome.victims == 0
        && i64::from(outcome.counts.available) >= workload.replicas
}

fn progressing(workload: &Workload, outcome: &Outcome) -> Finding {
    let proceeds = |reason, message: &str| {
        Finding::status_true(ConditionType::Progressing, reason, message.to_owned())
    };
    let waits =
        |reason, message| Finding::status_false(ConditionType::Progressing, reason, message);
    if outcome.complete {
        return proceeds(Reason::Complete, "the rollout is complete");
    }
    let rollout = outcome.rollout;
    let step = rollout.progress.step_index.unwrap_or(0);
    // What is not written then is `paused: true`, because syncs undo it. How to resume says more.
    let says_more = |held: &&Blocked| rollout.resume_ignored && held.reason == Reason::FailedPatch;
    if let Some(held) = workload.held.as_ref().filter(|held| !says_more(held)) {
        return waits(held.reason, held.message.clone());
    }
    if let Some(pause) = rollout.progress.pause_conditions.first() {
        let ignored = rollout.resume_ignored.then(|| {
            format!(
                "`paused: false` was set by an apply and does not resume step {step}: remove `paused` from the \
                 manifest, or resume with {}",
                workload.command("resume", "")
            )
        });
        let (reason, what) = match (pause.reason, &ignored) {
            (PauseReason::PausedByCanaryPauseStep, Some(ignored)) => {
                return waits(Reason::ResumeByApplyIgnored, ignored.clone());
            }
            (PauseReason::PausedByCanaryPauseStep, None) => {
                (Reason::PausedByCanaryPauseStep, "is paused")
            }
            (PauseReason::PausedByStepBasedHook, _) => {
                (Reason::PausedByStepBasedHook, "is paused because its hook was not successful")
            }
        };
        let also = ignored.map_or_else(String::new, |ignored| format!(". {ignored}"));
        let message = format!(
            "canary step {step} {what}; set spec.updateStrategy.paused to false to continue{also}"
        );
        return waits(reason, message);
    }
    if workload.paused && rollout.paused && !rollout.ends_pause {
        let message = "spec.updateStrategy.paused is true".to_owned();
        return waits(Reason::Paused, message);
    }
    if workload.replicas == 0 && !rollout.progress.is_past(workload.steps.len()) {
        let message = format!(
            "canary step {step} has no pod to update, because spec.replicas is 0; the rollout continues when the \
             workload is scaled out"
        );
        return waits(Reason::NoPods, message);
    }
    let Reasons { obstacles, waits_for } = &outcome.reasons;
    match obstacles.update.as_ref().or(obstacles.scale.as_ref()) {
        Some(Blocked { reason, message }) => waits(*reason, message.clone()),
        None => match (outcome.troubles.overdue(workload), waits_for) {
            (Some(message), _) => waits(Reason::ProgressDeadlineExceeded, message),
            (None, Some(Blocked { reason, message })) => proceeds(*reason, message),
            (None, None) if awaits_deletion(workload, outcome) => {
                let message = format!(
                    "canary step {step} updates no pod by itself, because updateStrategy.type is OnDelete; the \
                     rollout continues when old pods are deleted"
                );
                waits(Reason::AwaitingDeletion, message)
            }
            (None, None) => {
                let message = "pods are being created, updated or deleted".to_owned();
                proceeds(Reason::RollingOut, &outcome.explain(message))
            }
        },
    }
}
