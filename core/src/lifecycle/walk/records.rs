//! What the walk writes to the nodes: a record of what has passed there, and the removal of the taint.
//!
//! Invariant 12: only a script that was successful is recorded.

use super::Walk;
use crate::api::{LifecycleStep, StepScope};
use crate::lifecycle::{ClusterNode, NodeRecord};
use crate::write::Write;

impl Walk<'_> {
    /// The record of a node, including what this plan changes.
    pub(crate) fn record_of(
        &mut self,
        node: &ClusterNode,
        old_record: &NodeRecord,
    ) -> &mut NodeRecord {
        let record = self.records.entry(node.uid.clone());
        record.or_insert_with(|| old_record.clone())
    }

    /// Records what has passed on each node, and removes the taint of nodes whose install is complete.
    pub(crate) fn record_and_admit_nodes(&mut self) {
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
                let cordon = cordon_changes.then_some(record.cordoned);
                let patch = node.patch(Some(record.text()), cordon);
                self.plan.writes.push(Write::patch_node(patch));
            } else if let Some(taint) = node.not_installed_taint_index.filter(|_| record.installed)
            {
                let admit = Write::admit_node(node.name.clone(), node.uid.clone(), taint);
                self.plan.writes.push(admit);
            }
        }
    }

    /// Removes this Cluster's records from all nodes. Returns whether none are left.
    pub(crate) fn remove_records(&mut self) -> bool {
        let mut none_are_left = true;
        for node in &self.scene.world.nodes {
            let old_record = NodeRecord::of(node, self.scene.uid);
            if old_record != NodeRecord::empty(node, self.scene.uid) {
                none_are_left = false;
                let patch = node.patch(None, old_record.cordoned.then_some(false));
                self.plan.writes.push(Write::patch_node(patch));
            }
        }
        none_are_left
    }
}
