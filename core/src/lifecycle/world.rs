//! What was observed about a Cluster at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Memory;
use crate::api::HookRun;
use crate::observed::PodRef;
use crate::write::NodePatch;

/// Everything that a plan for a Cluster depends on.
#[derive(Clone, Debug)]
pub struct ClusterWorld {
    /// The current time.
    pub now: Timestamp,
    /// All nodes.
    pub nodes: Vec<Arc<ClusterNode>>,
    /// The HookRuns that the Cluster owns.
    pub runs: Vec<Arc<HookRun>>,
    /// The name of an older Cluster; only the oldest one runs scripts.
    pub older_cluster: Option<String>,
    /// The image of the operator. The Jobs that run the scripts use it, too.
    pub image: String,
    /// The pods of game workloads, without those that have ended; empty unless nodes are drained.
    pub game_pods: Vec<GamePod>,
    /// What the API server said about earlier writes.
    pub memory: Memory,
}

/// The parts of a node that a plan reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Its uid: a new node with the same name is another node.
    pub uid: String,
    /// Its resourceVersion when it was observed.
    pub resource_version: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// All its addresses, and its host names.
    pub addresses: Vec<String>,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// The version of its kubelet.
    pub version: String,
    /// Whether its kubelet has stopped reporting.
    pub lost: bool,
    /// The annotation that records what has passed.
    pub record: Option<String>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The index of the taint that is removed when the install is complete.
    pub not_installed_taint_index: Option<usize>,
}

/// A pod of a game workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GamePod {
    /// The node it is bound to.
    pub node: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Whether its replacement has been requested.
    pub move_requested: bool,
}

impl GamePod {
    /// The pod, as a write names it.
    pub(super) fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            version: None,
            allowed_until: None,
        }
    }
}

/// The labels of control-plane nodes.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

impl ClusterNode {
    /// Whether it is a control-plane node.
    pub fn is_control_plane(&self) -> bool {
        CONTROL_PLANE.iter().any(|it| self.labels.contains_key(*it))
    }

    /// The patch that gives it this record and, if it changes, cordons or uncordons it.
    pub(super) fn patch(&self, record: Option<String>, cordon: Option<bool>) -> NodePatch {
        NodePatch {
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            record,
            cordon,
        }
    }

    /// Whether the two nodes are equal, apart from their resourceVersion.
    pub fn is_like(&self, other: &Self) -> bool {
        let other = Self { resource_version: self.resource_version.clone(), ..other.clone() };
        *self == other
    }
}
