//! Bugs in what the planner returns: actions that are missing, in the wrong order, or without their preconditions.

use std::sync::Arc;

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{GameDeploymentStatus, HookPhase};
use gamekeeper_core::observed::{Gate, Pod};
use gamekeeper_core::workload::World;
use gamekeeper_core::write::{
    Action, Ground, ImageChange, InPlacePatch, Plan, PodRef, WorkloadPatch,
};
use kube::ResourceExt;

use super::{Fault, phase, point};
use crate::sidecars;

impl Fault {
    /// Corrupts the planner's output.
    pub fn corrupt_plan(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let run = |name: &str| world.runs.iter().find(|run| run.name_any() == name);
        plan.actions.retain(|action| match (self, action) {
            (Fault::MarkKept, Action::UnmarkDeleting(_)) => false,
            (Fault::TimeKept, Action::UnmarkDeleting(pod)) => {
                let mut pods = world.pods.iter().filter(|it| it.uid == pod.uid);
                pods.any(|pod| pod.marked_deleting)
            }
            (Fault::GateKeptClosed, Action::OpenGate(pod)) => {
                let mut pods = world.pods.iter().filter(|it| it.uid == pod.uid);
                !pods.any(|pod| is_closed_without_change(pod))
            }
            (Fault::StepRunsKept, Action::DeleteHookRun { name, .. }) => {
                run(name).is_none_or(|run| point(run) != HookPoint::Step)
            }
            (Fault::SuccessKept, Action::DeleteHookRun { name, .. }) => {
                run(name).is_none_or(|run| phase(run) != HookPhase::Successful)
            }
            (Fault::WaitingIgnored, Action::PatchWorkload(_)) => false,
            (Fault::RequestKept, Action::RequestMove { requested: false, .. }) => false,
            _ => true,
        });
        self.reorder_takedown(plan, world);
        for action in &mut plan.actions {
            self.forget_version(action);
            self.weaken_budget(action);
            self.forget_sidecars(action);
            if let (Fault::WaitInPlaceCounts, Action::MarkDeleting { since, .. }) =
                (self, &mut *action)
            {
                *since = Some(world.now);
            }
            if let (Fault::PauseWithoutAnnotation, Action::PatchWorkload(patch)) = (self, action)
                && patch.paused == Some(true)
            {
                patch.annotations.clear();
            }
        }
    }

    /// Takes the guard down in the wrong order.
    fn reorder_takedown(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let unlabels = |action: &Action| matches!(action, Action::GuardPod { label: None, .. });
        if self == Fault::BudgetFirst && plan.actions.iter().any(unlabels) {
            let name = "budget".to_owned();
            plan.actions = vec![Action::DeleteBudget { name }];
        }
        let starts_hook =
            |action: &Action| matches!(action, Action::CreateHookRun(run) if run.is_for_removal());
        if self == Fault::LabelsFirst && plan.actions.iter().any(starts_hook) {
            let pods = world.pods.iter().filter(|pod| pod.guarded_by().is_some());
            let unlabel = |pod: &Arc<Pod>| Action::GuardPod {
                pod: PodRef::of(pod),
                label: None,
                annotations: Vec::new(),
            };
            plan.actions = pods.map(unlabel).collect();
        }
        if self == Fault::FinalizerFirst && plan.actions.iter().any(starts_hook) {
            plan.actions = vec![
                Action::DeleteBudget { name: "budget".to_owned() },
                Action::PatchWorkload(WorkloadPatch {
                    finalizers: Some(Vec::new()),
                    ..WorkloadPatch::default()
                }),
            ];
        }
    }

    /// Makes the budget of guarded pods allow evictions.
    fn weaken_budget(self, action: &mut Action) {
        let Action::ApplyBudget(it) = action else {
            return;
        };
        let Some(spec) = it.budget["spec"].as_object_mut() else {
            return;
        };
        match self {
            Fault::SurplusEvictable => {
                spec.remove("minAvailable");
                spec.insert("maxUnavailable".to_owned(), 0.into());
            }
            Fault::UnreadyEvictable => {
                spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
            }
            _ => {}
        }
    }

    /// Removes the sidecars of a new pod, or parts of an update of sidecars.
    fn forget_sidecars(self, action: &mut Action) {
        match action {
            Action::PatchInPlace(patch) => self.forget_update(patch),
            Action::CloseGate { then: Some(patch), .. } => self.forget_update(patch),
            Action::CreatePod(pod) if self == Fault::InjectionForgotten => {
                let mut object = pod.pod.parse();
                let containers = object["spec"]["containers"].as_array_mut();
                let containers = containers.into_iter();
                containers.for_each(|it| it.retain(|it| it["name"] != sidecars::CONTAINER));
                pod.pod = object.into();
            }
            _ => {}
        }
    }

    fn forget_update(self, patch: &mut InPlacePatch) {
        match self {
            Fault::TokenUntested => patch.tokens.clear(),
            Fault::SupersededForgotten => {
                let images = &patch.images;
                let changes = &mut patch.record.containers;
                changes.retain(|name, _| images.iter().any(|image| image.name == *name));
            }
            Fault::GameRestarted
                if patch.images.iter().all(|it| it.name == sidecars::CONTAINER) =>
            {
                let game = patch.images.first().cloned();
                let game = game.map(|image| ImageChange { name: "game".to_owned(), ..image });
                patch.images.extend(game);
            }
            _ => {}
        }
    }

    /// Adds the sidecar updates from a plan that was made without canary steps.
    pub fn add_sidecars(
        plan: &mut Plan<GameDeploymentStatus>,
        stepless: Plan<GameDeploymentStatus>,
    ) {
        let changes_only_sidecars =
            |patch: &InPlacePatch| patch.images.iter().all(|it| it.name == sidecars::CONTAINER);
        let updates_sidecars = |action: &Action| match action {
            Action::PatchInPlace(patch) => changes_only_sidecars(patch),
            Action::CloseGate { then, .. } => {
                then.as_ref().is_some_and(|it| changes_only_sidecars(it))
            }
            _ => false,
        };
        let updates = stepless.actions.into_iter().filter(updates_sidecars);
        plan.actions.extend(updates);
    }

    /// Removes the resourceVersion precondition of an action.
    fn forget_version(self, action: &mut Action) {
        match action {
            Action::DeletePod(it) if self == Fault::NoVersionPrecondition => {
                it.pod.version = None;
                it.ground = Ground::NoHook;
            }
            Action::PatchInPlace(it)
                if matches!(
                    self,
                    Fault::NoVersionPrecondition | Fault::NoVersionPreconditionInPlace
                ) =>
            {
                it.pod.version = None;
            }
            _ => {}
        }
    }
}

fn is_closed_without_change(pod: &Pod) -> bool {
    let closed_at = pod.record.as_ref().and_then(|record| record.gate_closed_at);
    matches!(pod.gate, Gate::Closed(since) if closed_at != Some(since))
}
