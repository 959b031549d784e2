//! The lifecycle steps that have passed on a node. They are recorded in an annotation of the node, so a new node with
//! the same name starts without any.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ClusterNode;
use crate::api::{AnnotationLimits, LifecycleStep};

/// The value of the annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Uid of the Cluster; a record of another Cluster is ignored.
    pub cluster: String,
    /// Uid of the node; an annotation that was copied from another node is ignored.
    pub node: String,
    /// The steps of the install that have passed.
    #[serde(default)]
    pub passed: BTreeSet<LifecycleStep>,
    /// Whether the install is complete. Install hooks that are added afterwards do not run on the node.
    #[serde(default)]
    pub installed: bool,
    /// The number of the last upgrade that the node took part in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<i64>,
    /// The steps of that upgrade that have passed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub upgraded: BTreeSet<LifecycleStep>,
    /// Whether the operator has cordoned the node. Nodes that someone else cordoned are never uncordoned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
}

impl NodeRecord {
    /// The record of this Cluster in a node's annotation; an empty one if there is none.
    pub fn of(node: &ClusterNode, cluster: &str) -> Self {
        let text = node.record.as_deref().unwrap_or_default();
        let record = AnnotationLimits::PER_CONTAINER.read::<Self>(text);
        let record = record.filter(|it| it.cluster == cluster && it.node == node.uid);
        record.unwrap_or_else(|| Self::empty(node, cluster))
    }

    /// The record of a node on which nothing has passed.
    pub fn empty(node: &ClusterNode, cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), node: node.uid.clone(), ..Self::default() }
    }

    /// Whether a step has passed in the upgrade with this number.
    pub fn has_passed_in_upgrade(&self, step: LifecycleStep, upgrade: i64) -> bool {
        self.upgrade == Some(upgrade) && self.upgraded.contains(&step)
    }

    /// Records that a step has passed. A step of an upgrade is recorded together with the upgrade's number.
    pub fn pass(&mut self, step: LifecycleStep, upgrade: Option<i64>) {
        if !LifecycleStep::UPGRADE.contains(&step) {
            self.passed.insert(step);
            return;
        }
        if self.upgrade != upgrade {
            self.upgrade = upgrade;
            self.upgraded.clear();
        }
        self.upgraded.insert(step);
    }

    /// The value of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
