//! Conditions: their types, and the reasons of workloads' conditions.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use super::WorkloadStatus;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The workload is in the state that its spec describes.
    Ready,
    /// The rollout is making progress, or is complete.
    Progressing,
    /// The number of pods cannot be changed.
    FailedScale,
    /// Pods cannot be updated.
    FailedUpdate,
    /// The API server refuses a write on which neither scaling nor updates depend.
    FailedUpkeep,
    /// No client can delete a pod before its hook allows it.
    Guarded,
    /// New pods get the containers of a SidecarSet.
    Injecting,
    /// The operator works on the object; absent otherwise.
    Reconciling,
    /// The object does not reach what its spec describes unless a person acts; absent otherwise.
    Stalled,
}

impl ConditionType {
    /// The value of the field `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::FailedScale => "FailedScale",
            Self::FailedUpdate => "FailedUpdate",
            Self::FailedUpkeep => "FailedUpkeep",
            Self::Guarded => "Guarded",
            Self::Injecting => "Injecting",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }
}

/// The reason for a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Reason {
    /// Ready: there are as many pods as desired, all available, at the desired revision.
    AllPodsAvailable,
    /// Not Ready: too few pods are available.
    PodsUnavailable,
    /// Not Ready: pods have yet to be deleted.
    PodsToDelete,
    /// Not Ready: pods have yet to be updated.
    RolloutUnderWay,
    /// Not Ready: the operator cannot decode the object.
    Unreadable,
    /// The rollout is complete.
    Complete,
    /// The rollout is in progress.
    RollingOut,
    /// The first pods are created in batches.
    CreatingInBatches,
    /// Pods of a GameStatefulSet that left their nodes are created again in a few seconds.
    NodeDraining,
    /// A canary step waits for the first pod to update, because there are none.
    NoPods,
    /// With OnDelete, a canary step waits until a user deletes old pods.
    AwaitingDeletion,
    /// A user paused the rollout.
    Paused,
    /// A canary step paused the rollout.
    PausedByCanaryPauseStep,
    /// The hook of a canary step was not successful.
    PausedByStepBasedHook,
    /// An apply set `paused` to false, which does not resume the rollout.
    ResumeByApplyIgnored,
    /// The API server rejects pods of the template.
    TemplateRefused,
    /// The change cannot be made in a running pod.
    NotInPlace,
    /// A kubelet restarted a container that was hot-patched.
    HotPatchNotSupported,
    /// A kubelet does not report the image that a hot patch set.
    HotPatchNotShown,
    /// A node has no room for a resize.
    ResizeNotPossible,
    /// A revision that new pods need was deleted.
    RevisionNotFound,
    /// Pods terminate as soon as they are started.
    PodsEndAtOnce,
    /// The range of the pods' indexes is invalid.
    PodIndexInvalid,
    /// All indexes of the range are in use.
    PodIndexExhausted,
    /// A claim that a pod needs is being deleted.
    ClaimTerminating,
    /// A claim that a pod needs belongs to another object.
    ClaimNotOurs,
    /// A hook's template does not exist.
    HookTemplateNotFound,
    /// A hook's template cannot be decoded.
    HookTemplateUnreadable,
    /// A SidecarSet that may select the pods cannot be decoded.
    SidecarsUnreadable,
    /// An argument of a hook's template has no value.
    HookArgumentMissing,
    /// No run of a hook's template can end Successful.
    HookCannotSucceed,
    /// The API server refused to create a pod.
    FailedCreate,
    /// The API server refused a volume claim, or a change of its owner.
    FailedClaim,
    /// The API server refused to delete a pod.
    FailedDelete,
    /// The API server refused to create a HookRun.
    FailedHookRun,
    /// The API server refused to change a pod.
    FailedUpdate,
    /// The API server refused to record the template in a ControllerRevision.
    FailedRevision,
    /// The API server refused to change the workload itself.
    FailedPatch,
    /// The API server refused to delete a HookRun or revision that is no longer needed.
    FailedCleanUp,
    /// Guarded: policy and budget are in force, and all pods have the label.
    PodsGuarded,
    /// Guarded, but another PodDisruptionBudget also selects the pods.
    AnotherBudget,
    /// Not Guarded: the policy or the budget is not in force, or the operator has yet to check that.
    GuardNotInForce,
    /// Not Guarded: pods do not have the label yet.
    PodsUnlabeled,
    /// Not Guarded: no PreDelete hook is configured.
    NoPreDeleteHook,
    /// Not Guarded: the PreDelete hook was removed, and pods are still guarded.
    HookRemoved,
    /// Not Guarded: the guard is being removed, but the API server refuses to delete its budget.
    BudgetNotDeleted,
    /// Stalled: a pod's hook was not successful, and is not run again by itself.
    HookNotSuccessful,
    /// A hook is running.
    HookRunning,
    /// A hook is running, and its last measurement ended in an error.
    HookNotMeasured,
    /// Guarded pods may have players, and their node is going to be removed: its drain waits.
    DrainWaits,
    /// A pod has not become ready within spec.progressDeadlineSeconds.
    ProgressDeadlineExceeded,
    /// The containers of the new revision have not run for long enough to be trusted.
    RevisionNotProven,
    /// No node is found for a pod.
    PodUnschedulable,
    /// A pod is not scheduled before its claim is bound.
    ClaimNotBound,
    /// An image cannot be pulled.
    ImageNotPulled,
    /// A container cannot be created or started.
    ContainerNotCreated,
    /// A container ends again and again.
    ContainerCrashing,
    /// A node has not started a container, or an init container has not completed.
    ContainerNotStarted,
    /// A container runs, but its startup or readiness probe has not succeeded.
    ProbeNotSuccessful,
    /// A readiness gate of another controller is not True.
    ReadinessGateClosed,
    /// A container was updated in place, but its node does not show which image it runs.
    ImageNotShown,
    /// The node of a pod does not respond.
    NodeUnreachable,
    /// A finalizer keeps a Terminating pod.
    PodHeldByFinalizer,
    /// A node has not ended a Terminating pod.
    PodNotEnded,
}

impl Reason {
    /// Parses the field `reason`.
    pub fn parse(text: &str) -> Option<Self> {
        let text: StrDeserializer<Error> = text.into_deserializer();
        Self::deserialize(text).ok()
    }

    /// Whether a canary step waits for pods, or for their deletion.
    pub fn is_waiting_step(self) -> bool {
        matches!(self, Self::NoPods | Self::AwaitingDeletion)
    }

    /// Whether what the reason states lasts until a person acts. A pause that a user or a step asked for is not such a
    /// state: it is a part of the rollout.
    pub fn needs_person(self) -> bool {
        match self {
            Self::Unreadable
            | Self::PausedByStepBasedHook
            | Self::TemplateRefused
            | Self::NotInPlace
            | Self::HotPatchNotSupported
            | Self::HotPatchNotShown
            | Self::ResizeNotPossible
            | Self::RevisionNotFound
            | Self::PodsEndAtOnce
            | Self::PodIndexInvalid
            | Self::PodIndexExhausted
            | Self::ClaimNotOurs
            | Self::HookTemplateNotFound
            | Self::HookTemplateUnreadable
            | Self::SidecarsUnreadable
            | Self::HookArgumentMissing
            | Self::HookCannotSucceed
            | Self::FailedCreate
            | Self::FailedClaim
            | Self::FailedDelete
            | Self::FailedHookRun
            | Self::FailedUpdate
            | Self::FailedRevision
            | Self::FailedPatch
            | Self::GuardNotInForce
            | Self::NoPreDeleteHook
            | Self::HookRemoved
            | Self::BudgetNotDeleted
            | Self::HookNotSuccessful
            | Self::ProgressDeadlineExceeded => true,
            Self::AllPodsAvailable
            | Self::PodsUnavailable
            | Self::PodsToDelete
            | Self::RolloutUnderWay
            | Self::Complete
            | Self::RollingOut
            | Self::CreatingInBatches
            | Self::NodeDraining
            | Self::NoPods
            | Self::AwaitingDeletion
            | Self::Paused
            | Self::PausedByCanaryPauseStep
            | Self::ResumeByApplyIgnored
            | Self::ClaimTerminating
            | Self::FailedCleanUp
            | Self::PodsGuarded
            | Self::AnotherBudget
            | Self::PodsUnlabeled
            | Self::HookRunning
            | Self::HookNotMeasured
            | Self::DrainWaits
            | Self::RevisionNotProven
            | Self::PodUnschedulable
            | Self::ClaimNotBound
            | Self::ImageNotPulled
            | Self::ContainerNotCreated
            | Self::ContainerCrashing
            | Self::ContainerNotStarted
            | Self::ProbeNotSuccessful
            | Self::ReadinessGateClosed
            | Self::ImageNotShown
            | Self::NodeUnreachable
            | Self::PodHeldByFinalizer
            | Self::PodNotEnded => false,
        }
    }

    /// Whether it is about a single pod that does not start, run or end as it should.
    pub fn is_pod_trouble(self) -> bool {
        matches!(
            self,
            Self::PodUnschedulable
                | Self::ClaimNotBound
                | Self::ImageNotPulled
                | Self::ContainerNotCreated
                | Self::ContainerCrashing
                | Self::ContainerNotStarted
                | Self::ProbeNotSuccessful
                | Self::ReadinessGateClosed
                | Self::ImageNotShown
                | Self::NodeUnreachable
                | Self::PodHeldByFinalizer
                | Self::PodNotEnded
        )
    }

    /// Whether it is about a hook that cannot run.
    pub fn is_broken_hook(self) -> bool {
        matches!(
            self,
            Self::HookTemplateNotFound
                | Self::HookTemplateUnreadable
                | Self::HookArgumentMissing
                | Self::HookCannotSucceed
        )
    }

    /// Whether it is worth telling although the workload is what its spec describes, and nothing in it waits.
    pub fn is_told_at_rest(self) -> bool {
        self.is_broken_hook() || self == Self::DrainWaits
    }

    /// Whether the rollout is paused, by a user or by a canary step.
    pub fn is_pause(self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::PausedByCanaryPauseStep
                | Self::PausedByStepBasedHook
                | Self::ResumeByApplyIgnored
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl WorkloadStatus {
    /// The condition of this type, whether it is True or not.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|it| it.type_ == type_.as_str())
    }

    /// The condition of this type, if it is True.
    pub fn true_condition(&self, type_: ConditionType) -> Option<&Condition> {
        self.condition(type_).filter(|it| it.status == "True")
    }
}
