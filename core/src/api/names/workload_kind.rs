//! The two kinds of workload, and the HookRun labels that differ between them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::api::API_VERSION;

/// Kinds of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// GameDeployment
    GameDeployment,
    /// GameStatefulSet
    GameStatefulSet,
}

impl WorkloadKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [WorkloadKind::GameDeployment, WorkloadKind::GameStatefulSet];

    /// The owner reference of an object that a workload controls.
    pub fn owner_reference(self, name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: self.as_str().to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkloadKind::GameDeployment => "GameDeployment",
            WorkloadKind::GameStatefulSet => "GameStatefulSet",
        }
    }

    /// The short name of the kind, as users type it.
    pub fn short(self) -> &'static str {
        match self {
            WorkloadKind::GameDeployment => "gd",
            WorkloadKind::GameStatefulSet => "gsts",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// HookRun label that names the hook point.
    pub fn type_label(self) -> &'static str {
        match self {
            WorkloadKind::GameDeployment => "gamedeployment-type",
            WorkloadKind::GameStatefulSet => "gamestatefulset-type",
        }
    }

    /// HookRun label of canary steps that names the update revision.
    pub fn revision_label(self) -> &'static str {
        match self {
            WorkloadKind::GameDeployment => "gamedeployment-revision",
            WorkloadKind::GameStatefulSet => "gamestatefulset-revision",
        }
    }
}
