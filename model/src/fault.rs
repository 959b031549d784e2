//! Deliberate bugs, each of which the checker must find.
//!
//! They need no change of production code: they corrupt the planner's input or output, or the execution of a
//! plan.

use std::sync::Arc;

use gamekeeper_core::api::names::{self, HookPoint, WorkloadKind};
use gamekeeper_core::api::{GameDeployment, GameDeploymentStatus, HookPhase, HookRun};
use gamekeeper_core::plan::sidecars::{Changing, MatchedPod, Sidecars};
use gamekeeper_core::plan::{
    Action, Disruption, Gate, Ground, ImageChange, InPlacePatch, MoveRequest, Plan, Pod, PodPhase,
    PodRef, Promotion, Turn, Verdict, WorkloadPatch, World,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::sidecars;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operator pauses without the annotation that makes the pause its own.
    PauseWithoutAnnotation,
    /// `paused` is ignored.
    PauseIgnored,
    /// A success counts for any target.
    AnyTargetCounts,
    /// A success counts regardless of its age.
    OldSuccessCounts,
    /// The phase of a pod, instead of its containers, decides whether it needs its hook.
    PhaseDecides,
    /// A write to a guarded pod without a running container has no resourceVersion precondition.
    NoVersionPrecondition,
    /// An in-place change of a pod without a running container, or of the container after one that must be ready,
    /// has no resourceVersion precondition.
    NoVersionPreconditionInPlace,
    /// A success dated in the future counts.
    FutureSuccessCounts,
    /// A success is kept when its action is no longer planned.
    SuccessKept,
    /// A retry counts as a success.
    RetryMeansSuccess,
    /// A success of a hook with other arguments counts.
    AnyArgumentsCount,
    /// HookRuns for another target are ignored.
    OtherRunsOverlooked,
    /// A failed PostInplace hook counts as a success.
    PostHookIgnored,
    /// A recreation for an update needs no hook if only PreInplace is configured.
    RecreationUnguarded,
    /// The choice of pods to delete ignores that pods are already waiting.
    WaitingIgnored,
    /// Any number of pods may be unavailable.
    NoBudget,
    /// A pod that is not available yet counts as not ready.
    NotYetAvailableIsFree,
    /// Steps and partition are ignored.
    NoPartition,
    /// Pods are updated to a revision that the API server has not accepted.
    NotAcceptedFirst,
    /// The annotation game-pod-deleting is kept when a deletion is canceled.
    MarkKept,
    /// A gate is kept closed when its update is canceled.
    GateKeptClosed,
    /// HookRuns of steps are kept when the steps start over.
    StepRunsKept,
    /// A full promotion counts for any rollout.
    AnyPromotionCounts,
    /// The held replicas of a user's pause count for the next template.
    HeldKept,
    /// A workload without a status counts as complete.
    LostStatusMeansDone,
    /// The status is written after the actions that depend on it.
    StatusLast,
    /// The quorum GET before irrevocable actions is omitted.
    NoQuorumGet,
    /// A plan is made before the cache shows the operator's own writes.
    OwnWritesUnseen,
    /// A new leader plans before its cache shows the writes of the previous one.
    LeaderDoesNotWait,
    /// OrderedReady is treated as Parallel.
    OrderIgnored,
    /// All pods count as ready.
    HealthIgnored,
    /// A pod whose gate has not been opened yet is treated as if it had no gate.
    UnsetGateIgnored,
    /// The range of ordinals is too short by one.
    OffByOne,
    /// Reserved ordinals are treated like all others.
    ReservationIgnored,
    /// Surge pods are deleted once all other pods have been updated, whether or not they are available.
    SurgeLeavesEarly,
    /// The index of a Terminating pod counts as free.
    TerminatingIndexFree,
    /// The next container gets its image before the previous one runs its own.
    TurnNotAwaited,
    /// The budget is deleted while pods have the label.
    BudgetFirst,
    /// The finalizer is removed while pods wait for their hooks.
    FinalizerFirst,
    /// The labels are removed while pods wait for their hooks.
    LabelsFirst,
    /// The budget has maxUnavailable 0, which lets surplus pods be evicted.
    SurplusEvictable,
    /// The budget lets pods that are not ready be evicted.
    UnreadyEvictable,
    /// A pod that a user released is guarded again.
    ReleaseForgotten,
    /// If a user has released one pod, all pods count as released.
    AllReleased,
    /// The taints of a node count although pods tolerate them.
    TolerationIgnored,
    /// Nodes that are going to be removed are overlooked.
    GoingOverlooked,
    /// The request to move a pod is kept when its node is no longer going to be removed.
    RequestKept,
    /// A pod is moved although its node is no longer going to be removed.
    OutdatedRequestCounts,
    /// A node that does not respond counts as lost immediately.
    SilentMeansLost,
    /// The deadline of a guarded pod has passed as soon as it waits for its hook.
    DeadlinePassesImmediately,
    /// The update of a sidecar does not test its token.
    TokenUntested,
    /// A workload updates sidecars without tokens.
    NoTokenNeeded,
    /// A SidecarSet updates the pods itself, as if no workload controlled them.
    SetUpdatesPods,
    /// A SidecarSet ignores its own maxUnavailable.
    SetLimitIgnored,
    /// A SidecarSet treats pods whose update is in progress as idle.
    BusyIgnored,
    /// A SidecarSet allots tokens before its cache shows those that it has already allotted.
    OwnTokensUnseen,
    /// The quorum GET of the SidecarSet is omitted.
    NoQuorumGetOfSet,
    /// Tokens are kept when the SidecarSet is reverted.
    TokenKept,
    /// Updates of sidecars need no hook.
    SidecarsUnguarded,
    /// A success for the game counts for its sidecars.
    SuccessOfGameCounts,
    /// An update of a sidecar that is in progress is mistaken for an update of the game.
    MistakenForGame,
    /// An update that supersedes another one does not wait for the containers that the other one changed.
    SupersededForgotten,
    /// An update of a sidecar restarts the game as well.
    GameRestarted,
    /// New pods get no sidecars.
    InjectionForgotten,
}

impl Fault {
    /// Corrupts the planner's input.
    pub fn corrupt_world(self, gd: &mut GameDeployment, world: &mut World) {
        match self {
            Fault::HealthIgnored => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.ready_since = Some(Timestamp::UNIX_EPOCH);
                }
            }
            Fault::PhaseDecides => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    let is_up = pod.phase == PodPhase::Running;
                    let statuses = pod
                        .containers
                        .iter_mut()
                        .filter_map(|it| it.status.as_mut());
                    statuses.for_each(|status| status.running = is_up);
                }
            }
            Fault::UnsetGateIgnored => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for pod in pods.filter(|pod| pod.gate == Gate::Unset) {
                    pod.gate = Gate::None;
                }
            }
            Fault::TerminatingIndexFree => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for pod in pods.filter(|pod| pod.terminating) {
                    pod.index = None;
                }
            }
            Fault::DeadlinePassesImmediately => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.waiting_since = pod.waiting_since.map(|_| Timestamp::UNIX_EPOCH);
                }
            }
            Fault::ReleaseForgotten => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.released = false;
                }
            }
            Fault::AllReleased => {
                let is_any = world.pods.iter().any(|pod| pod.released);
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.released = is_any;
                }
            }
            Fault::TolerationIgnored => {
                for taints in world.going_nodes.values_mut() {
                    for taint in Arc::make_mut(taints) {
                        taint.key = "not-tolerated".to_owned();
                    }
                }
            }
            Fault::GoingOverlooked => world.going_nodes.clear(),
            Fault::OutdatedRequestCounts => {
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.move_requested = pod.move_requested.map(|_| MoveRequest::User);
                }
            }
            Fault::SilentMeansLost => {
                for node in world.lost_nodes.values_mut() {
                    node.since = Some(Timestamp::UNIX_EPOCH);
                }
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    let is_on_lost_node = pod
                        .node
                        .as_ref()
                        .is_some_and(|it| world.lost_nodes.contains_key(it));
                    pod.disruption = is_on_lost_node.then_some(Disruption::Taint);
                }
            }
            Fault::OffByOne => {
                let replicas = gd.spec.replicas.unwrap_or(1);
                gd.spec.replicas = Some((replicas - 1).max(0));
            }
            Fault::TurnNotAwaited => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                pods.filter(has_next_turn).for_each(show_images_of_spec);
            }
            Fault::SurgeLeavesEarly => {
                if let Some(status) = gd.status.as_mut() {
                    status.surge_replicas = 0;
                }
            }
            Fault::SidecarsUnguarded => {
                let update = newest(world).unwrap_or_default();
                let mut pods = world.pods.iter();
                if pods.all(|pod| pod.revision().as_str() == update) {
                    gd.spec.pre_inplace_update_strategy.hook = None;
                }
            }
            Fault::NoTokenNeeded => {
                let set = world.sidecars.first().map(|set| set.revision.clone());
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for mark in pods.flat_map(|pod| pod.sidecars.values_mut()) {
                    mark.token = set.clone().filter(|newest| *newest != mark.revision);
                }
            }
            Fault::MistakenForGame => {
                let pods = world.pods.iter_mut().map(Arc::make_mut);
                for record in pods.filter_map(|pod| pod.record.as_mut()) {
                    Arc::make_mut(record).sidecars.clear();
                }
            }
            Fault::RecreationUnguarded => gd.spec.pre_inplace_update_strategy.hook = None,
            Fault::PauseIgnored => gd.spec.update_strategy.paused = false,
            Fault::NoBudget => {
                gd.spec.update_strategy.max_unavailable = Some(IntOrString::Int(100));
            }
            Fault::NotYetAvailableIsFree => {
                let min_ready = SignedDuration::from_secs(i64::from(gd.spec.min_ready_seconds));
                let since = world.now - min_ready;
                for pod in world.pods.iter_mut().map(Arc::make_mut) {
                    pod.ready_since = pod.ready_since.filter(|ready| *ready <= since);
                }
            }
            Fault::NoPartition => no_partition(gd),
            Fault::AnyPromotionCounts => promote(gd, world),
            Fault::HeldKept => {
                if let (Some(status), Some(update)) = (gd.status.as_mut(), newest(world)) {
                    status.update_revision = update;
                }
            }
            Fault::LostStatusMeansDone if gd.status.is_none() => {
                let mut status = GameDeploymentStatus::default();
                status.canary.revision = newest(world).unwrap_or_default();
                gd.status = Some(status);
            }
            Fault::WaitingIgnored => name_victims(gd, world),
            Fault::NotAcceptedFirst => {
                let names = world.revisions.iter().map(|it| it.name.clone());
                world.verdicts = names.map(|name| (name, Verdict::Accepted)).collect();
            }
            Fault::OtherRunsOverlooked => {
                let update = newest(world);
                world.runs.retain(|run| {
                    let target = run.annotations().get(names::RUN_TARGET);
                    target.is_none_or(|it| it.is_empty() || Some(it) == update.as_ref())
                });
            }
            _ => self.corrupt_runs(gd, world),
        }
    }

    fn corrupt_runs(self, gd: &mut GameDeployment, world: &mut World) {
        let is_retried = self == Fault::RetryMeansSuccess && forget_retry(gd);
        let mut runs = std::mem::take(&mut world.runs);
        for run in runs.iter_mut().map(Arc::make_mut) {
            let is_success = phase(run) == HookPhase::Successful;
            match self {
                Fault::OldSuccessCounts if is_success => succeed(run, world),
                Fault::FutureSuccessCounts if is_success && is_ahead(run, world) => {
                    succeed(run, world);
                }
                Fault::AnyTargetCounts if is_success => retarget(run, world),
                Fault::SuccessOfGameCounts if is_success => add_sidecars(run, world),
                Fault::RetryMeansSuccess if is_retried => succeed(run, world),
                Fault::PostHookIgnored if point(run) == HookPoint::PostInplace => {
                    succeed(run, world);
                }
                Fault::AnyArgumentsCount if is_success => {
                    let hook = gd.spec.pre_delete_update_strategy.hook.as_ref();
                    let hash = serde_json::to_vec(&hook).expect("JSON");
                    annotate(run, names::RUN_HOOK_HASH, &names::safe_hash(&hash));
                }
                _ => {}
            }
        }
        world.runs = runs;
    }

    /// Corrupts the planner's output.
    pub fn corrupt_plan(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let run = |name: &str| world.runs.iter().find(|run| run.name_any() == name);
        plan.actions.retain(|action| match (self, action) {
            (Fault::MarkKept, Action::UnmarkDeleting(_)) => false,
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
            (
                Fault::RequestKept,
                Action::RequestMove {
                    requested: false, ..
                },
            ) => false,
            _ => true,
        });
        self.reorder_takedown(plan, world);
        for action in &mut plan.actions {
            self.forget_version(action);
            self.weaken_budget(action);
            self.forget_sidecars(action);
            if let (Fault::PauseWithoutAnnotation, Action::PatchWorkload(patch)) = (self, action)
                && patch.paused == Some(true)
            {
                patch.annotations.clear();
            }
        }
    }
}

impl Fault {
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
                Action::DeleteBudget {
                    name: "budget".to_owned(),
                },
                Action::PatchWorkload(WorkloadPatch {
                    finalizers: Some(Vec::new()),
                    ..WorkloadPatch::default()
                }),
            ];
        }
    }

    /// Lets the budget of guarded pods allow evictions.
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

    /// Corrupts a SidecarSet, and the pods that its planner observes.
    pub fn corrupt_set(self, set: &mut Sidecars, pods: &mut [MatchedPod]) {
        match self {
            Fault::SetUpdatesPods => pods.iter_mut().for_each(|pod| pod.own = false),
            Fault::SetLimitIgnored => {
                set.update.max_unavailable = Some(IntOrString::Int(100));
            }
            Fault::BusyIgnored => pods
                .iter_mut()
                .for_each(|pod| (pod.changing, pod.ready) = (Changing::No, true)),
            _ => {}
        }
    }

    /// Removes the sidecars of a new pod, or parts of an update of sidecars.
    fn forget_sidecars(self, action: &mut Action) {
        match action {
            Action::PatchInPlace(patch) => self.forget_update(patch),
            Action::CloseGate {
                then: Some(patch), ..
            } => self.forget_update(patch),
            Action::CreatePod(pod) if self == Fault::InjectionForgotten => {
                let containers = pod.pod["spec"]["containers"].as_array_mut();
                let containers = containers.into_iter();
                containers.for_each(|it| it.retain(|it| it["name"] != sidecars::NAME));
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
            Fault::GameRestarted if patch.images.iter().all(|it| it.name == sidecars::NAME) => {
                let game = patch.images.first().cloned();
                let game = game.map(|image| ImageChange {
                    name: "game".to_owned(),
                    ..image
                });
                patch.images.extend(game);
            }
            _ => {}
        }
    }

    /// Removes the resourceVersion precondition of an action.
    fn forget_version(self, action: &mut Action) {
        match action {
            Action::DeletePod(it) if self == Fault::NoVersionPrecondition => {
                it.pod.version = None;
                it.ground = Ground::Unguarded;
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

/// Whether a container of this pod waits for its turn.
fn has_next_turn(pod: &&mut Pod) -> bool {
    let record = pod.record.iter();
    let mut changes = record.flat_map(|record| record.containers.values());
    changes.any(|change| matches!(change.turn, Turn::Next(_)))
}

/// Makes the status report that the containers of a pod run the images of its spec.
fn show_images_of_spec(pod: &mut Pod) {
    pod.observed_generation = pod.generation;
    for container in &mut pod.containers {
        if let Some(status) = &mut container.status {
            status.image.clone_from(&container.image);
        }
    }
}

fn no_partition(gd: &mut GameDeployment) {
    let strategy = &mut gd.spec.update_strategy;
    strategy.partition = None;
    for step in strategy
        .canary
        .iter_mut()
        .flat_map(|canary| &mut canary.steps)
    {
        step.partition = step.partition.as_ref().map(|_| IntOrString::Int(0));
    }
}

/// The name of the newest revision, if there is one.
fn newest(world: &World) -> Option<String> {
    let newest = world.revisions.iter().max_by_key(|it| it.number);
    newest.map(|it| it.name.clone())
}

/// Changes a promotion, if there is one, to the newest revision.
fn promote(gd: &mut GameDeployment, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let hash = gd.status.as_ref().map(|it| it.current_step_hash.clone());
    if let (Some(annotation), Some(update), Some(Some(step_hash))) = (
        gd.annotations_mut().get_mut(names::PROMOTE_ANNOTATION),
        update,
        hash,
    ) {
        let promotion = Promotion {
            revision: update.name.clone(),
            step_hash,
        };
        *annotation = serde_json::to_string(&promotion).expect("JSON");
    }
}

/// Sets podsToDelete to the pods that would be chosen if none were waiting already.
fn name_victims(gd: &mut GameDeployment, world: &World) {
    let mut pods: Vec<_> = world.pods.iter().filter(|pod| !pod.terminating).collect();
    pods.sort_by_key(|pod| (pod.is_ready(), std::cmp::Reverse(pod.created)));
    let wanted = usize::try_from(gd.spec.replicas.unwrap_or(1)).unwrap_or(0);
    pods.truncate(pods.len().saturating_sub(wanted));
    gd.spec.scale_strategy.pods_to_delete = pods.iter().map(|pod| pod.name.clone()).collect();
}

/// Removes a retry, and returns whether there was one.
fn forget_retry(gd: &mut GameDeployment) -> bool {
    let strategy = &mut gd.spec.pre_delete_update_strategy;
    let is_set = std::mem::take(&mut strategy.retry);
    let annotation = gd.annotations_mut().remove(names::RETRY_ANNOTATION);
    is_set || annotation.is_some()
}

fn phase(run: &HookRun) -> HookPhase {
    run.status.as_ref().map(|it| it.phase).unwrap_or_default()
}

fn point(run: &HookRun) -> HookPoint {
    let kinds = [WorkloadKind::GameDeployment, WorkloadKind::GameStatefulSet];
    let mut labels = kinds.iter().map(|kind| run.labels().get(kind.type_label()));
    let label = labels.find_map(|label| label);
    label
        .and_then(|label| HookPoint::parse(label))
        .expect("a point")
}

fn annotate(run: &mut HookRun, key: &str, value: &str) {
    run.annotations_mut()
        .insert(key.to_owned(), value.to_owned());
}

fn is_ahead(run: &HookRun, world: &World) -> bool {
    let finished = run.status.as_ref().and_then(|it| it.finished_at.as_ref());
    finished.is_some_and(|finished| finished.0 > world.now)
}

fn succeed(run: &mut HookRun, world: &World) {
    if let Some(status) = run.status.as_mut() {
        status.phase = HookPhase::Successful;
        status.finished_at = Some(Time(world.now));
    }
}

/// Changes the target of a run to the one that its pod now needs.
fn retarget(run: &mut HookRun, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let uid = run.annotations().get(names::RUN_POD_UID).cloned();
    let pod = world.pods.iter().find(|pod| Some(&pod.uid) == uid.as_ref());
    if let (Some(update), Some(pod)) = (update, pod) {
        let is_old = pod.revision() != update.name();
        annotate(
            run,
            names::RUN_TARGET,
            if is_old { &update.name } else { "" },
        );
    }
}

/// Changes the target of a run to that of an update of the sidecars.
fn add_sidecars(run: &mut HookRun, world: &World) {
    let target = run.annotations().get(names::RUN_TARGET).cloned();
    let target = target.filter(|it| !it.is_empty() && !it.contains('+'));
    if let (Some(target), Some(set)) = (target, world.sidecars.first()) {
        let both = format!("{target}+{}", set.revision);
        annotate(run, names::RUN_TARGET, &both);
    }
}
