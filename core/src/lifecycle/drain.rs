//! Draining nodes before their upgrade: cordon the node, request the replacement of the game pods there, and wait
//! until none is left. Hooks, budgets and revisions of the workloads apply, because their own plans replace the pods.

use std::sync::Arc;

use jiff::SignedDuration;

use super::walk::Walk;
use super::{ClusterNode, GamePod, NodeRecord};
use crate::api::{LifecycleStep, StepScope};
use crate::observed::time::earlier;
use crate::write::Write;

/// Pods are counted again after this time.
const INTERVAL: SignedDuration = SignedDuration::from_secs(5);

impl Walk<'_> {
    /// Whether nodes are drained before their upgrade.
    fn drains(&self) -> bool {
        let strategy = &self.scene.features.upgrade.strategy;
        strategy.drain_node_before_upgrade
    }

    /// Whether a node must be drained before this step.
    pub(super) fn must_be_drained_for(&self, step: LifecycleStep, node: &ClusterNode) -> bool {
        let belongs_to_upgrade = LifecycleStep::UPGRADE.contains(&step);
        belongs_to_upgrade && step.scope() == StepScope::Nodes && self.must_be_drained(node)
    }

    fn must_be_drained(&self, node: &ClusterNode) -> bool {
        self.drains() && !self.has_new_kubelet(node)
    }

    /// What a node still waits for before the scripts of this step may start there.
    pub(super) fn why_undrained_for(
        &self,
        step: LifecycleStep,
        node: &ClusterNode,
    ) -> Option<String> {
        let must_be_drained = self.must_be_drained_for(step, node);
        must_be_drained.then(|| self.why_undrained(node)).flatten()
    }

    /// What a node that must be drained still waits for.
    fn why_undrained(&self, node: &ClusterNode) -> Option<String> {
        let name = &node.name;
        if !node.unschedulable {
            return Some(format!("node {name} is being cordoned"));
        }
        match self.pods_on(node).count() {
            0 => None,
            1 => Some(format!("node {name} is being drained: 1 game pod is left")),
            left => Some(format!("node {name} is being drained: {left} game pods are left")),
        }
    }

    fn pods_on<'w>(&'w self, node: &'w ClusterNode) -> impl Iterator<Item = &'w GamePod> {
        let pods = self.scene.world.game_pods.iter();
        pods.filter(|pod| pod.node == node.name)
    }

    /// Cordons the nodes that are selected for their upgrade, and uncordons those that no longer are, if the operator
    /// cordoned them. If a user uncordons a selected node, the record forgets the cordon first, and the next plan
    /// cordons the node again.
    pub(super) fn cordon_nodes(&mut self) {
        let scene = self.scene;
        for (node, old_record) in &scene.nodes {
            let is_selected = self.drains() && self.selected.contains(&node.uid);
            let may_start = !scene.cluster.spec.paused && !self.has_new_kubelet(node);
            let cordoned = match is_selected {
                true if !node.unschedulable => may_start && !old_record.cordoned,
                true => old_record.cordoned,
                false => false,
            };
            if cordoned != old_record.cordoned {
                self.record_of(node, old_record).cordoned = cordoned;
            }
        }
    }

    /// Uncordons nodes that `nodeSelector` no longer selects.
    pub(super) fn uncordon_others(&mut self) {
        let scene = self.scene;
        let is_other = |node: &&Arc<ClusterNode>| {
            let mut nodes = scene.nodes.iter();
            nodes.all(|(selected, _)| selected.uid != node.uid)
        };
        for node in scene.world.nodes.iter().filter(is_other) {
            let mut record = NodeRecord::of(node, scene.uid);
            if std::mem::take(&mut record.cordoned) {
                let patch = node.patch(Some(record.text()), Some(false));
                self.plan.writes.push(Write::patch_node(patch));
            }
        }
    }

    /// Requests the replacement of the game pods on nodes that are cordoned for their upgrade.
    pub(super) fn move_pods(&mut self) {
        let scene = self.scene;
        if scene.cluster.spec.paused {
            return;
        }
        for (node, _) in &scene.nodes {
            let is_selected = self.selected.contains(&node.uid);
            let is_draining = is_selected && node.unschedulable && self.must_be_drained(node);
            if !is_draining || self.pods_on(node).next().is_none() {
                continue;
            }
            let requests = self.pods_on(node).filter(|pod| !pod.move_requested);
            let requester =
                format!("cluster/{}", scene.cluster.metadata.name.as_deref().unwrap_or_default());
            let requests =
                requests.map(|pod| Write::move_for_upgrade(pod.reference(), requester.clone()));
            let requests: Vec<Write> = requests.collect();
            self.plan.writes.extend(requests);
            let next_count = scene.world.now.checked_add(INTERVAL).ok();
            self.plan.wake = earlier(self.plan.wake, next_count);
        }
    }
}
