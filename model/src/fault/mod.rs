//! Deliberate bugs, each of which the checker must find.
//!
//! They need no change of production code: they corrupt the planner's [`input`] or [`output`], or change how the
//! model carries out a plan.

mod input;
mod output;

use gamekeeper_core::api::names::{HookPoint, WorkloadKind};
use gamekeeper_core::api::{HookPhase, HookRun};
use kube::ResourceExt;

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
    /// The success for a change in place counts for a deletion.
    ChangeCountsForDeletion,
    /// The permit of a change in progress covers all containers of its pod.
    AnyContainerCovered,
    /// A restart by a hot patch is overlooked.
    HotPatchRestartOverlooked,
    /// What a hot patch shows on one node counts for all nodes.
    OneNodeProvesAll,
    /// HookRuns for another target are ignored.
    OtherRunsOverlooked,
    /// A failed PostInplace hook counts as a success.
    PostHookIgnored,
    /// A recreation for an update needs no hook if only PreInplace is configured.
    RecreationUnguarded,
    /// The choice of pods to delete ignores which pods already wait for their hook.
    WaitingIgnored,
    /// Any number of pods may be unavailable.
    NoBudget,
    /// A pod that is not available yet counts as not ready.
    NotYetAvailableIsFree,
    /// Steps and partition are ignored.
    NoPartition,
    /// Pods are updated to a revision that the API server has not accepted.
    NotAcceptedFirst,
    /// A quota that has room for a replacement counts as having room for all of them.
    QuotaFitsAll,
    /// A quota counts pods, whatever it counts.
    AmountsIgnored,
    /// Every quota counts every pod.
    QuotaScopesIgnored,
    /// It is forgotten that a pod was given up in vain.
    TrialForgotten,
    /// It is forgotten that the API server refused a deletion.
    RefusalForgotten,
    /// Pods of an earlier canary count for a step.
    OtherCanaryCounts,
    /// The first revision is stable even if it has never worked.
    FirstCountsAsStable,
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
    /// The planner does not know which surge pods it has created.
    SurgeForgotten,
    /// A pause also holds back requested replacements.
    RequestsPaused,
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
    /// The taints of a node count even if pods tolerate them.
    TolerationIgnored,
    /// Nodes that are about to be removed are overlooked.
    GoingOverlooked,
    /// The request to move a pod is kept when its node is no longer about to be removed.
    RequestKept,
    /// A pod is moved although its node is no longer about to be removed.
    OutdatedRequestCounts,
    /// A node that does not respond counts as lost immediately.
    SilentMeansLost,
    /// A guarded pod whose PreDelete hook was removed counts as a pod without a guard.
    RemovedHookForgotten,
    /// The deadline of a guarded pod passes as soon as the pod waits for its hook.
    DeadlinePassesImmediately,
    /// The deadline of a guarded pod also counts the time that it waits for an update in place.
    WaitInPlaceCounts,
    /// The deadline of a guarded pod counts from the time in its annotation.
    TimeOnPodCounts,
    /// The wait of a guarded pod starts over when its mark is removed.
    WaitEndsWithMark,
    /// The wait of a guarded pod starts over when its time is removed.
    WaitEndsWithTime,
    /// The time in the annotation of a pod that is not marked is left there.
    TimeKept,
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
    /// A workload updates sidecars at a canary step.
    SidecarsAtSteps,
    /// A success for the game counts for its sidecars.
    SuccessOfGameCounts,
    /// An update that supersedes another one does not wait for the containers that the other one changed.
    SupersededForgotten,
    /// An update of a sidecar restarts the game as well.
    GameRestarted,
    /// New pods get no sidecars.
    InjectionForgotten,
}

fn phase(run: &HookRun) -> HookPhase {
    run.status.as_ref().map(|it| it.phase).unwrap_or_default()
}

fn point(run: &HookRun) -> HookPoint {
    let kinds = [WorkloadKind::GameDeployment, WorkloadKind::GameStatefulSet];
    let mut labels = kinds.iter().map(|kind| run.labels().get(kind.type_label()));
    let label = labels.find_map(|label| label);
    label.and_then(|label| HookPoint::parse(label)).expect("a point")
}
