//! The objects that the operator reads and writes: their kinds, keys and paths, and what a write did.

use std::fmt;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::Resource;

use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{GameDeployment, GameStatefulSet, HookRun, HookTemplate};

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    GameDeployment,
    GameStatefulSet,
    HookRun,
    HookTemplate,
    Pod,
    /// ControllerRevision
    Revision,
    /// Node, for its deletion cost, whether it is lost, and what its kubelet can do.
    Node,
    /// PersistentVolumeClaim, for its owners.
    Claim,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Kind::GameDeployment,
        Kind::GameStatefulSet,
        Kind::HookRun,
        Kind::HookTemplate,
        Kind::Pod,
        Kind::Revision,
        Kind::Node,
        Kind::Claim,
    ];

    /// The path of its objects: those of one namespace, or (None) of all.
    pub(crate) fn collection(self, namespace: Option<&str>) -> String {
        match self {
            Kind::GameDeployment => GameDeployment::url_path(&(), namespace),
            Kind::GameStatefulSet => GameStatefulSet::url_path(&(), namespace),
            Kind::HookRun => HookRun::url_path(&(), namespace),
            Kind::HookTemplate => HookTemplate::url_path(&(), namespace),
            Kind::Pod => Pod::url_path(&(), namespace),
            Kind::Revision => ControllerRevision::url_path(&(), namespace),
            Kind::Node => Node::url_path(&(), None),
            Kind::Claim => PersistentVolumeClaim::url_path(&(), namespace),
        }
    }

    /// The path of one object.
    pub(crate) fn path(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(Some(namespace)))
    }
}

impl From<WorkloadKind> for Kind {
    fn from(kind: WorkloadKind) -> Self {
        match kind {
            WorkloadKind::GameDeployment => Kind::GameDeployment,
            WorkloadKind::GameStatefulSet => Kind::GameStatefulSet,
        }
    }
}

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace; empty for objects that have none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A write that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// An object of this kind has this resourceVersion now.
    Version(Kind, u64),
    /// This object is deleted, or being deleted.
    Deleted(Deleted),
    /// A write of this kind was not answered: whatever the API server has now must be seen.
    Unknown(Kind),
}

/// An object that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deleted {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
}
