//! How the guard is shown to users: status.protection and the condition Guarded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::HookPoint;
use crate::api::{ProtectionStatus, Reason, WaitingPod};
use crate::observed::{OtherBudget, Pod};
use crate::text::counted;
use crate::workload::hooks::Awaited;
use crate::workload::protection::budget::budget;
use crate::workload::protection::unlabeled;
use crate::workload::spec::Workload;
use crate::workload::world::{GuardState, World};
use crate::write::Attempt;

/// Whether the pods of a workload are guarded, as in the condition Guarded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The status of the condition.
    pub holds: bool,
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
}

/// Whether the pods of a workload are guarded; None if they should not be, and nothing of a guard is left.
pub(crate) fn verdict(workload: &Workload, world: &World, own: &[&Pod]) -> Option<Verdict> {
    let problem = problem(workload, world);
    if problem.is_some() {
        return problem;
    }
    workload.guarded?;
    let guarded = count_guarded(workload, own);
    let (holds, reason, message) = if workload.hooks.hook(HookPoint::PreDelete).is_none() {
        without_hook(workload, guarded)
    } else {
        match &world.memory.guard {
            Some(GuardState::InForce { others, .. }) => in_force(workload, own, guarded, others),
            Some(GuardState::NotInForce { message, .. }) => {
                (false, Reason::GuardNotInForce, message.clone())
            }
            Some(GuardState::NoBudget { .. }) | None => {
                let message = "it is not known yet whether the policy and the budget are in force";
                (false, Reason::GuardNotInForce, message.to_owned())
            }
        }
    };
    Some(Verdict { holds, reason, message })
}

/// What is wrong with a guard that should be removed, or that is not available in this cluster.
fn problem(workload: &Workload, world: &World) -> Option<Verdict> {
    let (reason, message) = if let Some(refusal) = world.memory.failures.of(Attempt::DeleteBudget) {
        let name = budget(workload).name;
        let message = format!(
            "PodDisruptionBudget {name} still refuses evictions, because it cannot be deleted: {refusal}"
        );
        (Reason::BudgetNotDeleted, message)
    } else if workload.lacks_guard {
        let message =
            "no pod is guarded, because the chart was installed with admission.guardedPods=false";
        (Reason::GuardNotInForce, message.to_owned())
    } else {
        return None;
    };
    Some(Verdict { holds: false, reason, message })
}

fn in_force(
    workload: &Workload,
    own: &[&Pod],
    guarded: usize,
    others: &[OtherBudget],
) -> (bool, Reason, String) {
    let unlabeled = unlabeled(workload, own).count();
    if unlabeled > 0 {
        let pods = counted(unlabeled, "pod does", "pods do");
        let message = format!("{pods} not have the label of guarded pods yet");
        return (false, Reason::PodsUnlabeled, message);
    }
    if let Some(other) = others.iter().find(|it| selects_guarded(it, workload, own)) {
        let pods = counted(guarded, "pod is", "pods are");
        let message = format!(
            "{pods} guarded, but PodDisruptionBudget {} also selects guarded pods: evictions fail with an error \
             instead of waiting, and so do drains; delete it",
            other.name
        );
        return (true, Reason::AnotherBudget, message);
    }
    let released = own.iter().filter(|pod| workload.is_released(pod)).count();
    let pods = counted(guarded, "pod is", "pods are");
    let message = match released {
        0 => format!("{pods} guarded"),
        _ => {
            let released = counted(released, "was", "were");
            format!("{pods} guarded; {released} released by a user")
        }
    };
    (true, Reason::PodsGuarded, message)
}

fn selects_guarded(other: &OtherBudget, workload: &Workload, own: &[&Pod]) -> bool {
    let mut guarded = own.iter().filter(|pod| workload.guards(pod));
    guarded.any(|pod| other.selects(&pod.labels))
}

fn without_hook(workload: &Workload, guarded: usize) -> (bool, Reason, String) {
    let (reason, message) = match guarded {
        0 => (
            Reason::NoPreDeleteHook,
            "spec.protection.pods: Guarded has no effect without preDeleteUpdateStrategy.hook; configure a hook"
                .to_owned(),
        ),
        _ => (
            Reason::HookRemoved,
            format!(
                "preDeleteUpdateStrategy.hook was removed, and {} still guarded: configure a hook, or confirm with {}",
                counted(guarded, "pod is", "pods are"),
                workload.command("release", "")
            ),
        ),
    };
    (false, reason, message)
}

fn count_guarded(workload: &Workload, own: &[&Pod]) -> usize {
    own.iter().filter(|pod| workload.guards(pod)).count()
}

/// What the status shows about the guard; None if pods are not guarded.
pub(crate) fn status(
    workload: &Workload,
    awaited: &Awaited,
    own: &[&Pod],
) -> Option<ProtectionStatus> {
    workload.guarded?;
    let mut waiting: Vec<WaitingPod> = awaited
        .waiting
        .values()
        .filter_map(|it| {
            Some(WaitingPod {
                pod_name: it.pod.name.clone(),
                node: it.pod.node.clone().unwrap_or_default(),
                since: Time(awaited.waiting_since(it.pod)?),
                reason: it.reason,
                message: it.message.clone(),
            })
        })
        .collect();
    waiting.sort_by_key(|it| it.since.0);
    waiting.truncate(ProtectionStatus::MAX_WAITING);
    let shown = |count| i32::try_from(count).unwrap_or(i32::MAX);
    let is_moving = |pod: &&&Pod| pod.move_requested.is_some() && !pod.terminating;
    Some(ProtectionStatus {
        guarded: shown(count_guarded(workload, own)),
        moving: shown(own.iter().filter(is_moving).count()),
        waiting,
        vacated: Vec::new(),
    })
}
