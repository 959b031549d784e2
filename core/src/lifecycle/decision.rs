//! What a plan for a Cluster contains.

use std::sync::Arc;

use jiff::Timestamp;

use super::{ClusterNode, GamePod};
use crate::api::{ClusterStatus, HookRun};
use crate::write::Event;

/// What to do for a Cluster.
#[derive(Debug, Default)]
pub struct ClusterPlan {
    /// The writes, in any order.
    pub actions: Vec<ClusterAction>,
    /// The status to write before anything else; None if it has not changed.
    pub status: Option<ClusterStatus>,
    /// When to plan again even without a change.
    pub wake: Option<Timestamp>,
    /// Events to record.
    pub events: Vec<Event>,
}

/// One write.
#[derive(Clone, Debug)]
pub enum ClusterAction {
    /// Adds (true) or removes the finalizer.
    SetFinalizer(bool),
    /// Starts an attempt. This cannot be undone, so a quorum GET of the Cluster comes first.
    CreateHookRun {
        /// The attempt.
        run: Box<HookRun>,
        /// The name of the node, if it had to be drained for its upgrade. The cache may miss a pod that is still
        /// there, so a quorum LIST of the node's pods comes first, too.
        drained_node: Option<String>,
    },
    /// Deletes a run, and with it its Job.
    DeleteHookRun {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Writes or removes the record of what has passed on a node. The same write can cordon or uncordon the node. The
    /// precondition is the node's resourceVersion.
    RecordNode {
        /// The node.
        node: Arc<ClusterNode>,
        /// The annotation's value; None removes the annotation.
        record: Option<String>,
        /// Whether to cordon (true) or uncordon (false) the node; None changes nothing.
        cordon: Option<bool>,
    },
    /// Requests that a pod be replaced by one on another node.
    MovePod(GamePod),
    /// Removes the taint of a node whose install is complete.
    AdmitNode(Arc<ClusterNode>),
}

impl ClusterAction {
    /// Whether a script may start because of this action.
    pub fn is_irrevocable(&self) -> bool {
        match self {
            Self::CreateHookRun { .. } => true,
            Self::SetFinalizer(_)
            | Self::DeleteHookRun { .. }
            | Self::RecordNode { .. }
            | Self::MovePod(_)
            | Self::AdmitNode(_) => false,
        }
    }
}
