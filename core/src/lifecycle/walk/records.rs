//! What the walk writes to the nodes: a record of what has passed there, and the removal of the taint.
//!
//! Invariant 12: only a script that was successful is recorded.

use std::sync::Arc;

use super::Walk;
use crate::api::{LifecycleStep, StepScope};
use crate::lifecycle::{ClusterAction, ClusterNode, NodeRecord};

impl Walk<'_> {
    /// The record of a node, including what this plan changes.
    pub fn record_of(&mut self, node: &ClusterNode, old_record: &NodeRecord) -> &mut NodeRecord {
        let record = self.records.entry(node.uid.clone());
        record.or_insert_with(|| old_record.clone())
    }

    /// Records what has passed on each node, and removes the taint of nodes whose install is complete.
    pub fn record_and_admit_nodes(&mut self) {
        let scene = self.scene;
        let pre_cluster_install_passed = self.has_passed_pre_cluster_install();
        for (node, old_record) in &scene.nodes {
            let mut record = self.records.remove(&node.uid).unwrap_or(old_record.clone());
            let mut steps =
                LifecycleStep::INSTALL.into_iter().filter(|step| step.scope() == StepScope::Nodes);
            if pre_cluster_install_passed && steps.all(|step| self.has_passed(step, node, &record))
            {
                record.installed = true;
            }
            if record != *old_record {
                let cordon_changes = record.cordoned != old_record.cordoned;
                self.plan.actions.push(ClusterAction::RecordNode {
                    node: Arc::clone(node),
                    record: Some(record.text()),
                    cordon: cordon_changes.then_some(record.cordoned),
                });
            } else if record.installed && node.not_installed_taint_index.is_some() {
                self.plan.actions.push(ClusterAction::AdmitNode(Arc::clone(node)));
            }
        }
    }

    /// Removes this Cluster's records from all nodes. Returns whether none are left.
    pub fn remove_records(&mut self) -> bool {
        let mut none_are_left = true;
        for node in &self.scene.world.nodes {
            let old_record = NodeRecord::of(node, self.scene.uid);
            if old_record != NodeRecord::empty(node, self.scene.uid) {
                none_are_left = false;
                self.plan.actions.push(ClusterAction::RecordNode {
                    node: Arc::clone(node),
                    record: None,
                    cordon: old_record.cordoned.then_some(false),
                });
            }
        }
        none_are_left
    }
}
