//! What users see: counts and conditions.

pub mod conclusion;
mod events;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::PauseReason;
use crate::plan::decision::{Blocked, Concern};
use crate::plan::hooks::Hooks;
use crate::plan::observed::Pod;
use crate::plan::pods::availability::{available_at, is_available};
use crate::plan::rollout::Rollout;
use crate::plan::time::earlier;
use crate::plan::workload::{UpdateType, Workload};

/// Pods by how far they are, victims included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
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

/// Counts pods, and says when the next one becomes available by waiting.
pub fn count(
    workload: &Workload,
    pods: &[&Pod],
    update: &str,
    now: Timestamp,
) -> (PodCounts, Option<Timestamp>) {
    let mut counts = PodCounts::default();
    let mut wake = None;
    for pod in pods {
        let updated = pod.revision() == update;
        counts.replicas += 1;
        counts.ready += i32::from(pod.is_ready());
        counts.available += i32::from(is_available(pod, workload, now));
        counts.updated += i32::from(updated);
        counts.updated_ready += i32::from(updated && pod.is_ready());
        wake = earlier(wake, available_at(pod, workload).filter(|at| *at > now));
    }
    (counts, wake)
}

/// What a sync came to, as far as conditions tell it.
pub struct Outcome<'a> {
    /// How far the rollout may go.
    pub rollout: &'a Rollout,
    /// Whether all is as the spec says.
    pub complete: bool,
    /// The counts.
    pub counts: PodCounts,
    /// Victims that wait.
    pub victims: usize,
    /// Why scaling does not go on.
    pub failed_scale: Option<Blocked>,
    /// Why the update does not go on.
    pub failed_update: Option<Blocked>,
}

/// The conditions, with the time of the last change of each.
pub fn conditions(
    workload: &Workload,
    outcome: &Outcome,
    old: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let mut list = vec![ready(workload, outcome), progressing(workload, outcome)];
    let failures = [
        ("FailedScale", &outcome.failed_scale),
        ("FailedUpdate", &outcome.failed_update),
    ];
    for (type_, failure) in failures {
        if let Some(Blocked { reason, message }) = failure {
            list.push((type_, true, *reason, message.clone()));
        }
    }
    list.into_iter()
        .map(|(type_, status, reason, message)| {
            let status = if status { "True" } else { "False" };
            let before = old
                .iter()
                .find(|it| it.type_ == type_ && it.status == status);
            let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: Some(workload.generation),
                last_transition_time: before
                    .map_or(Time(whole), |it| it.last_transition_time.clone()),
            }
        })
        .collect()
}

type Told = (&'static str, bool, &'static str, String);

/// Ready says that everything is as the spec wants it: what `kubectl wait` and kstatus wait for.
fn ready(workload: &Workload, outcome: &Outcome) -> Told {
    let available = i64::from(outcome.counts.available);
    if outcome.complete {
        let updated = i64::from(outcome.counts.updated);
        let message = if updated >= workload.replicas {
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
        return ("Ready", true, "AllPodsAvailable", message);
    }
    if available < workload.replicas {
        let message = format!("{available} of {} pods are available", workload.replicas);
        return ("Ready", false, "PodsUnavailable", message);
    }
    if outcome.victims > 0 {
        let message = format!(
            "pods that are to be deleted and are waiting for their hook: {}",
            outcome.victims
        );
        return ("Ready", false, "PodsToDelete", message);
    }
    let message = format!(
        "{} of {} pods are at the update revision",
        outcome.counts.updated, workload.replicas
    );
    ("Ready", false, "RolloutUnderWay", message)
}

fn progressing(workload: &Workload, outcome: &Outcome) -> Told {
    if outcome.complete {
        return (
            "Progressing",
            true,
            "Complete",
            "the rollout is complete".to_owned(),
        );
    }
    let rollout = outcome.rollout;
    let step = rollout.progress.step_index.unwrap_or(0);
    if rollout.resume_ignored {
        let message = format!(
            "`paused: false` was set by an apply and does not resume step {step}: remove `paused` from the manifest, \
             or resume with kubectl game resume or kubectl patch"
        );
        return ("Progressing", false, "ResumeByApplyIgnored", message);
    }
    if let Some(pause) = rollout.progress.pause_conditions.first() {
        let what = match pause.reason {
            PauseReason::PausedByCanaryPauseStep => "is paused",
            PauseReason::PausedByStepBasedHook => "is paused because its hook was not successful",
        };
        let message = format!(
            "canary step {step} {what}; set spec.updateStrategy.paused to false to continue"
        );
        return ("Progressing", false, pause_reason(pause.reason), message);
    }
    if workload.paused && rollout.paused {
        let message = "spec.updateStrategy.paused is true".to_owned();
        return ("Progressing", false, "Paused", message);
    }
    match outcome
        .failed_update
        .as_ref()
        .or(outcome.failed_scale.as_ref())
    {
        Some(Blocked { reason, message }) => ("Progressing", false, *reason, message.clone()),
        None => (
            "Progressing",
            true,
            "RollingOut",
            "pods are being created, updated or deleted".to_owned(),
        ),
    }
}

fn pause_reason(reason: PauseReason) -> &'static str {
    match reason {
        PauseReason::PausedByCanaryPauseStep => "PausedByCanaryPauseStep",
        PauseReason::PausedByStepBasedHook => "PausedByStepBasedHook",
    }
}

/// Why scaling (true) or updating (false) does not go on, as far as hooks tell.
pub fn hook_problem(hooks: &Hooks, concern: Concern) -> Option<Blocked> {
    let problem = hooks
        .problems
        .iter()
        .find(|(of, _)| *of == concern)
        .map(|(_, problem)| problem)?;
    Some(Blocked {
        reason: problem.reason(),
        message: problem.to_string(),
    })
}
