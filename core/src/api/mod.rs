//! The API: the kinds of API version `tkex.tencent.com/v1alpha1`, and the names, labels and annotations of
//! the objects that the operator creates.
//!
//! The Rust types are the source of the CRDs (`gamekeeper crds`). Names, casing and enum values are those of
//! bk-bcs, so that its manifests apply unchanged.

mod annotation;
mod authentication;
mod cause;
mod cluster;
mod condition;
mod game_deployment;
mod game_stateful_set;
mod hook;
mod hook_options;
mod hook_run;
mod hook_template;
mod index_range;
mod json_text;
mod lifecycle;
mod metric;
pub mod names;
mod protection;
mod provider;
mod raw_json;
mod schema;
mod sidecar_set;
mod update_strategy;
mod workload;
mod workload_status;

pub use annotation::AnnotationLimits;
pub use authentication::{
    Authentication, BasicAuthentication, BearerAuthentication, OAuth2Authentication,
};
pub use cause::{Actor, Cause};
pub use cluster::{
    ClaimSource, Cluster, ClusterFeatures, ClusterHooks, ClusterPhase, ClusterSpec, ClusterStatus,
    ClusterUpgrade, ConfigMapSource, FileSource, HookFile, Machine, UpgradeOptions,
    UpgradeStrategy,
};
pub use condition::{ConditionType, Reason};
pub use game_deployment::{
    GameDeployment, GameDeploymentScaleStrategy, GameDeploymentSpec, GameDeploymentStatus,
    GameDeploymentUpdateStrategy,
};
pub use game_stateful_set::{
    GameStatefulSet, GameStatefulSetRollingUpdate, GameStatefulSetScaleStrategy,
    GameStatefulSetSpec, GameStatefulSetStatus, GameStatefulSetUpdateStrategy, Ordinals,
    PodManagementPolicy, PvcRetention, PvcRetentionPolicy,
};
pub use hook::{HookArgument, HookStep, PodHookStrategy};
pub use hook_options::{DryRun, MeasurementRetention, TtlStrategy};
pub use hook_run::{
    HookPhase, HookRun, HookRunSpec, HookRunStatus, JobReference, Measurement, MetricResult,
};
pub use hook_template::{
    Argument, ArgumentSource, FieldRef, HookPolicy, HookTemplate, HookTemplateSpec, SecretKeyRef,
};
pub use index_range::{IndexRange, InvalidIndexRange};
pub use json_text::JsonText;
pub use lifecycle::{LifecycleStep, StepScope};
pub use metric::Metric;
pub use protection::{
    OnNodeGoing, PodProtection, Protection, ProtectionStatus, VacatedName, WaitReason, WaitingPod,
};
pub use provider::*;
pub use raw_json::{RawJson, json_memory};
pub use schema::crds;
pub(crate) use schema::escaped;
pub use sidecar_set::{
    InjectionRevision, InjectionStrategy, PatchPolicy, PodInjectPolicy, PodMetadataPatch,
    ShareVolumePolicy, ShareVolumeType, SidecarOptions, SidecarSet, SidecarSetSpec,
    SidecarSetStatus, SidecarUpdateStrategy, SidecarUpdateType, SidecarUpgradeStrategy,
    TransferEnv,
};
pub use update_strategy::{
    CanaryPause, CanaryStep, CanaryStrategy, ContainerOrder, InPlaceUpdateStrategy,
    UpdateStrategyType, WhenImpossible,
};
pub use workload::GameWorkload;
pub(crate) use workload::MAX_REVISION_HISTORY;
pub use workload_status::{
    CanaryStatus, PauseCondition, PauseReason, PodHookCondition, WorkloadStatus,
};

/// The API group of all kinds.
pub const GROUP: &str = "tkex.tencent.com";
/// The only served version.
pub const VERSION: &str = "v1alpha1";
/// `group/version`, as in manifests and owner references.
pub const API_VERSION: &str = "tkex.tencent.com/v1alpha1";
