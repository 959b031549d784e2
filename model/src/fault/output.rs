//! Bugs in what the planner returns: writes that are missing, in the wrong order, or without their preconditions.

use std::sync::Arc;

use gamekeeper_core::api::names::{self, HookPoint};
use gamekeeper_core::api::{GameDeploymentStatus, HookPhase};
use gamekeeper_core::observed::{Gate, Pod, PodRef};
use gamekeeper_core::workload::World;
use gamekeeper_core::write::{
    Attempt, Budget, Change, InPlacePatch, NewPod, Owned, Plan, WorkloadPatch, Write,
};
use kube::ResourceExt;

use super::{Fault, phase, point};
use crate::sidecars;
use crate::state;
use crate::translate::container_index;

impl Fault {
    /// Corrupts the planner's output.
    pub fn corrupt_plan(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let run = |name: &str| world.runs.iter().find(|run| run.name_any() == name);
        let seen = |pod: &PodRef| world.pods.iter().find(|it| it.uid == pod.uid);
        plan.writes.retain(|write| match (self, write.change()) {
            (Fault::MarkKept, change) => !unmarks(change),
            (Fault::TimeKept, change @ Change::SetMetadata { pod, .. }) if unmarks(change) => {
                seen(pod).is_some_and(|pod| pod.marked_deleting)
            }
            (Fault::GateKeptClosed, Change::SetGate { pod, closed_for: None, .. }) => {
                !seen(pod).is_some_and(|pod| is_closed_without_change(pod))
            }
            (Fault::StepRunsKept, Change::Delete { kind: Owned::HookRun, name, .. }) => {
                run(name).is_none_or(|run| point(run) != HookPoint::Step)
            }
            (Fault::SuccessKept, Change::Delete { kind: Owned::HookRun, name, .. }) => {
                run(name).is_none_or(|run| phase(run) != HookPhase::Successful)
            }
            (Fault::WaitingIgnored, Change::PatchWorkload(_)) => false,
            (Fault::RequestKept, change) => change.annotation(names::MOVE_ANNOTATION) != Some(None),
            _ => true,
        });
        self.reorder_takedown(plan, world);
        for write in &mut plan.writes {
            if let Some(wrong) = self.wrong(write.change(), world) {
                *write = wrong;
            }
        }
    }

    /// What the planner makes in place of a right write.
    fn wrong(self, change: &Change, world: &World) -> Option<Write> {
        match (self, change) {
            (Fault::WaitInPlaceCounts, Change::SetMetadata { pod, .. })
                if change.annotation(names::DELETING_ANNOTATION).flatten().is_some() =>
            {
                Some(Write::mark_deleting(pod.clone(), Some(world.now)))
            }
            (Fault::PauseWithoutAnnotation, Change::PatchWorkload(patch))
                if patch.paused == Some(true) =>
            {
                let patch = WorkloadPatch { annotations: Vec::new(), ..patch.clone() };
                Some(Write::patch_workload(patch))
            }
            (Fault::InjectionForgotten, Change::CreatePod(new)) => {
                let mut object = new.pod.parse();
                let containers = object["spec"]["containers"].as_array_mut();
                let containers = containers.into_iter();
                containers.for_each(|it| it.retain(|it| it["name"] != sidecars::CONTAINER));
                Some(Write::create_pod(NewPod { pod: object.into(), ..new.clone() }))
            }
            (_, Change::ApplyBudget(budget)) => Some(self.weak_budget(budget.clone())),
            _ => None,
        }
    }

    /// Takes the guard down in the wrong order.
    fn reorder_takedown(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let unlabels = |it: &Write| it.change().label(names::GUARDED_LABEL) == Some(None);
        if self == Fault::BudgetFirst && plan.writes.iter().any(unlabels) {
            plan.writes = vec![Write::delete_budget("budget".to_owned())];
        }
        let starts_hook = |it: &Write| it.attempt() == Some(Attempt::StartRemovalHook);
        if self == Fault::LabelsFirst && plan.writes.iter().any(starts_hook) {
            let pods = world.pods.iter().filter(|pod| pod.guarded_by().is_some());
            let unlabel = |pod: &Arc<Pod>| Write::guard_pod(PodRef::of(pod), None, Vec::new());
            plan.writes = pods.map(unlabel).collect();
        }
        if self == Fault::FinalizerFirst && plan.writes.iter().any(starts_hook) {
            let patch = WorkloadPatch { finalizers: Some(Vec::new()), ..WorkloadPatch::default() };
            plan.writes =
                vec![Write::delete_budget("budget".to_owned()), Write::patch_workload(patch)];
        }
    }

    /// A budget of guarded pods that allows evictions.
    fn weak_budget(self, mut it: Budget) -> Write {
        if let Some(spec) = it.budget["spec"].as_object_mut() {
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
        Write::apply_budget(it)
    }

    /// Adds the sidecar updates from a plan that was made without canary steps.
    pub fn add_sidecars(
        plan: &mut Plan<GameDeploymentStatus>,
        stepless: Plan<GameDeploymentStatus>,
    ) {
        let changes_only_sidecars =
            |patch: &InPlacePatch| patch.images.iter().all(|it| it.name == sidecars::CONTAINER);
        let updates_sidecars = |write: &Write| match write.change() {
            Change::PatchInPlace(patch) => changes_only_sidecars(patch),
            Change::SetGate { closed_for: Some(_), then, .. } => {
                then.as_ref().is_some_and(|it| changes_only_sidecars(it))
            }
            _ => false,
        };
        let updates = stepless.writes.into_iter().filter(updates_sidecars);
        plan.writes.extend(updates);
    }

    /// Removes preconditions and parts of a write that the guard has permitted. The planner cannot make such a write, so
    /// this corrupts the model's.
    pub fn corrupt_write(self, write: &mut state::Write) {
        match write {
            state::Write::DeletePod(_, _, unchanged) if self == Fault::NoVersionPrecondition => {
                *unchanged = state::Unchanged::Any;
            }
            state::Write::Patch(patch) => {
                if matches!(
                    self,
                    Fault::NoVersionPrecondition | Fault::NoVersionPreconditionInPlace
                ) {
                    patch.unchanged = state::Unchanged::Any;
                }
                self.forget_update(patch);
            }
            state::Write::CloseGate(_, _, Some(patch), _) => self.forget_update(patch),
            _ => {}
        }
    }

    fn forget_update(self, patch: &mut state::Patch) {
        let sidecar = container_index(sidecars::CONTAINER);
        match self {
            Fault::TokenUntested => patch.token = None,
            Fault::SupersededForgotten => {
                for (image, from) in patch.images.iter().zip(&mut patch.record.from) {
                    if image.is_none() {
                        *from = None;
                    }
                }
            }
            Fault::GameRestarted if patch.images.iter().filter(|it| it.is_some()).count() == 1 => {
                let game = container_index("game");
                patch.images[game] = patch.images[game].or(patch.images[sidecar]);
            }
            _ => {}
        }
    }
}

/// Whether the mark of a pod that waits for its deletion is removed.
fn unmarks(change: &Change) -> bool {
    change.annotation(names::DELETING_ANNOTATION) == Some(None)
}

fn is_closed_without_change(pod: &Pod) -> bool {
    let closed_at = pod.record.as_ref().and_then(|record| record.gate_closed_at);
    matches!(pod.gate, Gate::Closed(since) if closed_at != Some(since))
}
