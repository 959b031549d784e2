//! Names that the operator's users see, written out a second time on purpose: a judge who took
//! them from the operator's own code would not notice if one of them changed.

/// Label of pods: their revision.
pub(crate) const REVISION: &str = "controller-revision-hash";
/// Label that says which pod of a GameDeployment one is.
#[cfg(test)]
pub(crate) const INSTANCE: &str = "tkex.bkbcs.tencent.com/gamedeployment-instance-id";
/// Labels that say which pod of a GameStatefulSet one is.
pub(crate) const IDENTITY: [&str; 3] = [
    "gamestatefulset.kubernetes.io/pod-name",
    "gamestatefulset.kubernetes.io/pod-ordinal",
    "apps.kubernetes.io/pod-index",
];
/// Annotation of pods that wait for their PreDelete hook.
pub const DELETING: &str = "io.tencent.bcs.dev/game-pod-deleting";
/// Annotation of hot patched pods.
pub(crate) const HOT_PATCH: &str = "io.kubernetes.hotpatch.container";
/// Readiness gate of in-place updates.
pub(crate) const GATE: &str = "InPlaceUpdateReady";
/// Annotation of pods: record of the last in-place update.
pub(crate) const RECORD: &str = "gamekeeper.tkex.tencent.com/in-place-record";
/// Annotation of workloads: the operator's own pause.
pub(crate) const PAUSE: &str = "gamekeeper.tkex.tencent.com/pause";
/// Annotation of workloads: a user lets a rollout skip its steps.
pub(crate) const PROMOTE: &str = "gamekeeper.tkex.tencent.com/promote";
/// Annotation of workloads: a retry under way.
pub(crate) const RETRY: &str = "gamekeeper.tkex.tencent.com/retry";
/// Annotation of HookRuns: the pod's uid.
pub(crate) const RUN_POD_UID: &str = "gamekeeper.tkex.tencent.com/pod-uid";
/// Annotation of HookRuns: the revision that the action leads to.
pub(crate) const RUN_TARGET: &str = "gamekeeper.tkex.tencent.com/target-revision";
/// Annotation of HookRuns: the workload's uid.
pub(crate) const RUN_WORKLOAD_UID: &str = "gamekeeper.tkex.tencent.com/workload-uid";
/// Labels of HookRuns that name the hook point, by kind of workload.
pub(crate) const RUN_TYPE: [&str; 2] = ["gamedeployment-type", "gamestatefulset-type"];
/// Labels of HookRuns of canary steps that name the update revision, by kind of workload.
pub(crate) const RUN_REVISION: [&str; 2] = ["gamedeployment-revision", "gamestatefulset-revision"];
/// Label of HookRuns of canary steps: the step.
pub(crate) const RUN_STEP: &str = "step-index";
