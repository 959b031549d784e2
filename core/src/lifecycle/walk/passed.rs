//! When a step has passed, and which steps a node has reached: what the walk reads before it decides anything.
//!
//! Invariant 12: a step begins on a node only after the steps before it have passed there.

use super::Walk;
use crate::api::{ClusterPhase, LifecycleStep, StepScope};
use crate::lifecycle::LifecycleReason;
use crate::lifecycle::scene::is_same_version;
use crate::lifecycle::{ClusterNode, NodeRecord};

impl Walk<'_> {
    /// Why a step has nothing to do: the user skips it, or it is not configured.
    pub(super) fn reason_to_skip(&self, step: LifecycleStep) -> Option<LifecycleReason> {
        let features = self.scene.features;
        let is_configured = match step {
            LifecycleStep::EnsureCopyFiles => !features.files.is_empty(),
            LifecycleStep::EnsureNodesReady | LifecycleStep::EnsureUpgrade => true,
            step => step.command(&features.hooks).is_some(),
        };
        if features.skip_conditions.contains(&step) {
            Some(LifecycleReason::Skip)
        } else if !is_configured {
            Some(LifecycleReason::NotConfigured)
        } else {
            None
        }
    }

    /// Whether a step has passed on a node: it is recorded, the state that it waits for has been reached, or it has
    /// nothing to do.
    pub(super) fn has_passed(
        &self,
        step: LifecycleStep,
        node: &ClusterNode,
        record: &NodeRecord,
    ) -> bool {
        if self.reason_to_skip(step).is_some() {
            return true;
        }
        let has_new_kubelet = || self.has_new_kubelet(node);
        match (step, self.scene.upgrade_of(step)) {
            (LifecycleStep::EnsureUpgrade, _) => has_new_kubelet(),
            // If a kubelet was upgraded before its turn, only PostUpgrade runs on its node.
            (LifecycleStep::EnsurePreUpgradeHook, Some(number)) => {
                record.has_passed_in_upgrade(step, number) || has_new_kubelet()
            }
            (_, Some(number)) => record.has_passed_in_upgrade(step, number),
            (LifecycleStep::EnsureNodesReady, None) if node.ready => true,
            (_, None) => record.installed || record.passed.contains(&step),
        }
    }

    /// Whether a node has reached a step: the steps before it have passed there, and for a step of an upgrade, the
    /// node is selected.
    pub(super) fn is_reached(
        &self,
        step: LifecycleStep,
        node: &ClusterNode,
        record: &NodeRecord,
    ) -> bool {
        let belongs_to_upgrade = LifecycleStep::UPGRADE.contains(&step);
        let table: &[LifecycleStep] = match belongs_to_upgrade {
            true => &LifecycleStep::UPGRADE,
            false => &LifecycleStep::INSTALL,
        };
        if belongs_to_upgrade && !self.selected.contains(&node.uid) {
            return false;
        }
        let mut previous = table
            .iter()
            .copied()
            .take_while(|it| *it != step)
            .filter(|it| it.scope() == StepScope::Nodes);
        previous.all(|it| self.has_passed(it, node, record))
    }

    /// Whether the cluster hook that precedes the nodes' scripts has passed, or need not run.
    pub(super) fn has_passed_pre_cluster_install(&self) -> bool {
        let step = LifecycleStep::EnsurePreClusterInstallHook;
        self.is_installed()
            || self.reason_to_skip(step).is_some()
            || self.scene.old.passed_steps.contains(&step)
    }

    /// Whether the install of the Cluster is complete. PreClusterInstall and PostClusterInstall hooks that are added
    /// later do not run.
    pub(super) fn is_installed(&self) -> bool {
        matches!(self.scene.old.phase, ClusterPhase::Running | ClusterPhase::Upgrading)
    }

    /// Whether the kubelet of a node has the version of the upgrade in progress.
    pub(crate) fn has_new_kubelet(&self, node: &ClusterNode) -> bool {
        let upgrade = self.scene.upgrade.as_ref();
        upgrade.is_some_and(|it| is_same_version(&node.version, &it.to))
    }
}

/// Whether a step has no script, but waits until its nodes are in a certain state.
pub(super) fn waits_for_state(step: LifecycleStep) -> bool {
    matches!(step, LifecycleStep::EnsureNodesReady | LifecycleStep::EnsureUpgrade)
}
