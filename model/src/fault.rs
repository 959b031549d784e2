//! Deliberate bugs: each must be found, or the checker is worth nothing.
//!
//! No production code changes for them. They bend what the planner sees, what it says, or how that
//! is carried out.

use std::sync::Arc;

use gamekeeper_core::api::names::{self, HookPoint, WorkloadKind};
use gamekeeper_core::api::{GameDeployment, GameDeploymentStatus, HookPhase, HookRun};
use gamekeeper_core::plan::{Action, Gate, Plan, Pod, PodPhase, Promotion, Verdict, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operator pauses without the annotation that makes the pause its own.
    PauseWithoutNote,
    /// `paused` is not looked at.
    PauseIgnored,
    /// A success for one thing counts for another.
    AnyTargetCounts,
    /// A success counts however old it is.
    OldSuccessCounts,
    /// A pod's phase says whether it has something to lose, and not its containers.
    PhaseDecides,
    /// What is done to a guarded pod because nothing of it runs is done whatever it does by then.
    GuardForgotten,
    /// A pod that has not started is changed in place, also when it has started by then.
    ChangeUntested,
    /// A success of the future counts, and never ages.
    FutureSuccessCounts,
    /// A success is kept when its action is no longer wanted.
    SuccessKept,
    /// After a retry the hook is not asked again.
    RetryMeansSuccess,
    /// A hook whose arguments have changed counts.
    AnyArgumentsCount,
    /// HookRuns for another target are overlooked.
    OtherRunsOverlooked,
    /// A PostInplace hook that failed counts.
    PostHookIgnored,
    /// A recreation for an update asks PreDelete, and nobody where only PreInplace is configured.
    RecreationUnguarded,
    /// Who goes is chosen without regard to who waits already.
    WaitingIgnored,
    /// Any number of pods may be unavailable.
    NoBudget,
    /// A pod that is not available yet is taken for one that is not ready.
    NotYetAvailableIsFree,
    /// Steps and partition hold nothing back.
    NoPartition,
    /// Pods are touched for a revision that the API server has not accepted.
    NotAcceptedFirst,
    /// The annotation game-pod-deleting stays when a deletion is called off.
    MarkForgotten,
    /// A gate that was closed for nothing stays closed.
    GateForgotten,
    /// HookRuns of steps stay when the steps start over.
    StepRunsKept,
    /// A full promotion counts for whatever rollout there is.
    AnyPromotionCounts,
    /// What a user's pause held back counts for the next template, too.
    HeldKept,
    /// A workload without status has all its rollouts behind it.
    LostStatusMeansDone,
    /// The status is written after what rests on it.
    StatusLast,
    /// The quorum GET before what cannot be taken back is left out.
    NoQuorumGet,
    /// A plan is made before the cache shows the operator's own writes.
    OwnWritesUnseen,
    /// A new leader plans before its cache shows what the last one wrote.
    LeaderDoesNotWait,
    /// Ordered pods are managed as if they were not.
    OrderIgnored,
    /// Every pod that runs is taken for ready.
    HealthIgnored,
    /// A gate that nobody has opened yet is taken for none at all.
    UnsetGateIgnored,
    /// Ordinals begin at the second one: the range is one off.
    OffByOne,
}

impl Fault {
    /// Bends what the planner sees.
    pub fn bend_sight(self, gd: &mut GameDeployment, world: &mut World) {
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
            Fault::OffByOne => {
                let replicas = gd.spec.replicas.unwrap_or(1);
                gd.spec.replicas = Some((replicas - 1).max(0));
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
            _ => self.bend_runs(gd, world),
        }
    }

    fn bend_runs(self, gd: &mut GameDeployment, world: &mut World) {
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
                Fault::RetryMeansSuccess if is_retried => succeed(run, world),
                Fault::PostHookIgnored if point(run) == HookPoint::PostInplace => {
                    succeed(run, world);
                }
                Fault::AnyArgumentsCount if is_success => {
                    let hook = gd.spec.pre_delete_update_strategy.hook.as_ref();
                    let hash = serde_json::to_vec(&hook).expect("JSON");
                    note(run, names::RUN_HOOK_HASH, &names::safe_hash(&hash));
                }
                _ => {}
            }
        }
        world.runs = runs;
    }

    /// Bends what the planner says.
    pub fn bend_plan(self, plan: &mut Plan<GameDeploymentStatus>, world: &World) {
        let run = |name: &str| world.runs.iter().find(|run| run.name_any() == name);
        plan.actions.retain(|action| match (self, action) {
            (Fault::MarkForgotten, Action::UnmarkDeleting(_)) => false,
            (Fault::GateForgotten, Action::OpenGate(pod)) => {
                let mut pods = world.pods.iter().filter(|it| it.uid == pod.uid);
                !pods.any(|pod| is_closed_for_nothing(pod))
            }
            (Fault::StepRunsKept, Action::DeleteHookRun { name, .. }) => {
                run(name).is_none_or(|run| point(run) != HookPoint::Step)
            }
            (Fault::SuccessKept, Action::DeleteHookRun { name, .. }) => {
                run(name).is_none_or(|run| phase(run) != HookPhase::Successful)
            }
            (Fault::WaitingIgnored, Action::PatchWorkload(_)) => false,
            _ => true,
        });
        for action in &mut plan.actions {
            self.forget_version(action);
            if let (Fault::PauseWithoutNote, Action::PatchWorkload(patch)) = (self, action)
                && patch.paused == Some(true)
            {
                patch.annotations.clear();
            }
        }
    }
}

impl Fault {
    /// Takes the pod's version out of what rests on it.
    fn forget_version(self, action: &mut Action) {
        match action {
            Action::DeletePod(it) if self == Fault::GuardForgotten => {
                it.pod.version = None;
                it.guarded = false;
            }
            Action::PatchInPlace(it)
                if matches!(self, Fault::GuardForgotten | Fault::ChangeUntested) =>
            {
                it.pod.version = None;
            }
            _ => {}
        }
    }
}

fn is_closed_for_nothing(pod: &Pod) -> bool {
    let closed_at = pod.record.as_ref().and_then(|record| record.gate_closed_at);
    matches!(pod.gate, Gate::Closed(since) if closed_at != Some(since))
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

/// Name of the revision that the template stands for, once it is there.
fn newest(world: &World) -> Option<String> {
    let newest = world.revisions.iter().max_by_key(|it| it.number);
    newest.map(|it| it.name.clone())
}

/// Says that a promotion, if there is one, is of the newest revision.
fn promote(gd: &mut GameDeployment, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let hash = gd.status.as_ref().map(|it| it.current_step_hash.clone());
    if let (Some(note), Some(update), Some(Some(step_hash))) = (
        gd.annotations_mut().get_mut(names::PROMOTE_ANNOTATION),
        update,
        hash,
    ) {
        let promotion = Promotion {
            revision: update.name.clone(),
            step_hash,
        };
        *note = serde_json::to_string(&promotion).expect("JSON");
    }
}

/// Says that the pods which would be chosen, did nobody wait, are to be deleted first.
fn name_victims(gd: &mut GameDeployment, world: &World) {
    let mut pods: Vec<_> = world.pods.iter().filter(|pod| !pod.terminating).collect();
    pods.sort_by_key(|pod| (pod.is_ready(), std::cmp::Reverse(pod.created)));
    let wanted = usize::try_from(gd.spec.replicas.unwrap_or(1)).unwrap_or(0);
    pods.truncate(pods.len().saturating_sub(wanted));
    gd.spec.scale_strategy.pods_to_delete = pods.iter().map(|pod| pod.name.clone()).collect();
}

/// Takes a retry out, and says whether there was one.
fn forget_retry(gd: &mut GameDeployment) -> bool {
    let strategy = &mut gd.spec.pre_delete_update_strategy;
    let is_set = std::mem::take(&mut strategy.retry);
    let note = gd.annotations_mut().remove(names::RETRY_ANNOTATION);
    is_set || note.is_some()
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

fn note(run: &mut HookRun, key: &str, value: &str) {
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

/// Says that a run was made for what may be wanted of its pod now.
fn retarget(run: &mut HookRun, world: &World) {
    let update = world.revisions.iter().max_by_key(|it| it.number);
    let uid = run.annotations().get(names::RUN_POD_UID).cloned();
    let pod = world.pods.iter().find(|pod| Some(&pod.uid) == uid.as_ref());
    if let (Some(update), Some(pod)) = (update, pod) {
        let is_old = pod.revision() != update.name();
        note(
            run,
            names::RUN_TARGET,
            if is_old { &update.name } else { "" },
        );
    }
}
