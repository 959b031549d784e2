//! The kinds of objects that the operator reads and writes, their keys and paths.

use std::fmt;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use kube::Resource;

use crate::api::names::WorkloadKind;
use crate::api::{Cluster, GameDeployment, GameStatefulSet, HookRun, HookTemplate, SidecarSet};

/// An enum with a list of its variants.
macro_rules! listed {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

listed! {
    /// The kinds that are watched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Kind {
        /// GameDeployment
        GameDeployment,
        /// GameStatefulSet
        GameStatefulSet,
        /// HookRun
        HookRun,
        /// HookTemplate
        HookTemplate,
        /// Pod
        Pod,
        /// ControllerRevision
        Revision,
        /// Node
        Node,
        /// PersistentVolumeClaim
        Claim,
        /// SidecarSet
        SidecarSet,
        /// Namespace
        Namespace,
        /// ControllerRevision of a SidecarSet, in the namespace of the operator.
        SetRevision,
        /// Watched only if lifecycle hooks are enabled.
        Cluster,
    }
}

impl Kind {
    /// The kind's name in the API, except that revisions of SidecarSets have a name of their own.
    pub fn name(self) -> &'static str {
        match self {
            Kind::GameDeployment => WorkloadKind::GameDeployment.as_str(),
            Kind::GameStatefulSet => WorkloadKind::GameStatefulSet.as_str(),
            Kind::HookRun => "HookRun",
            Kind::HookTemplate => "HookTemplate",
            Kind::Pod => "Pod",
            Kind::Revision => "ControllerRevision",
            Kind::Node => "Node",
            Kind::Claim => "PersistentVolumeClaim",
            Kind::SidecarSet => "SidecarSet",
            Kind::Namespace => "Namespace",
            Kind::SetRevision => "SidecarSetRevision",
            Kind::Cluster => Cluster::KIND,
        }
    }

    /// The URL path of this kind's objects in one namespace, or in all namespaces.
    pub fn collection(self, namespace: Option<&str>) -> String {
        match self {
            Kind::GameDeployment => GameDeployment::url_path(&(), namespace),
            Kind::GameStatefulSet => GameStatefulSet::url_path(&(), namespace),
            Kind::HookRun => HookRun::url_path(&(), namespace),
            Kind::HookTemplate => HookTemplate::url_path(&(), namespace),
            Kind::Pod => Pod::url_path(&(), namespace),
            Kind::Revision | Kind::SetRevision => ControllerRevision::url_path(&(), namespace),
            Kind::Node => Node::url_path(&(), None),
            Kind::Claim => PersistentVolumeClaim::url_path(&(), namespace),
            Kind::SidecarSet => SidecarSet::url_path(&(), None),
            Kind::Namespace => Namespace::url_path(&(), None),
            Kind::Cluster => Cluster::url_path(&(), None),
        }
    }

    /// The URL path of one object; the namespace of a cluster-scoped one is ignored.
    pub fn path(self, namespace: &str, name: &str) -> String {
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
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl ObjectKey {
    /// The key of the object with this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
