//! What only upgrades need: which nodes are upgraded now, and what happens when an upgrade ends or is reverted.

use std::collections::BTreeSet;

use super::Walk;
use crate::api::{HookRun, LifecycleStep, StepScope};
use crate::lifecycle::ClusterNode;
use crate::lifecycle::LifecycleReason;
use crate::lifecycle::conditions::StepState;
use crate::lifecycle::run::Task;
use crate::lifecycle::scene::is_same_version;

impl Walk<'_> {
    /// Selects the nodes to upgrade now: all whose upgrade has begun, then others while fewer than `parallelism` are
    /// selected. Of the others, those that are being drained come first, then control-plane nodes, each sorted by name.
    /// No node begins its upgrade, and so none is drained, before PreClusterUpgrade has passed. After a script of the
    /// upgrade has failed on a node, no other node begins its upgrade until that script has passed there.
    pub(crate) fn select_nodes(&mut self) {
        let scene = self.scene;
        let Some(number) = scene.upgrade.as_ref().map(|it| it.number) else {
            return;
        };
        let node_steps = LifecycleStep::UPGRADE.into_iter();
        let node_steps: Vec<_> = node_steps.filter(|it| it.scope() == StepScope::Nodes).collect();
        let mut nodes: Vec<_> = scene.nodes.iter().collect();
        nodes.retain(|(node, record)| {
            let mut steps = node_steps.iter();
            record.installed && !steps.all(|step| self.has_passed(*step, node, record))
        });
        let runs = |node: &ClusterNode| -> Vec<&HookRun> {
            let steps = node_steps.iter().map(|step| Task { step: *step, node });
            steps.flat_map(|task| self.attempts(task, &task.hash(scene))).collect()
        };
        let mut begun = BTreeSet::new();
        let mut has_failed = false;
        for (node, record) in &nodes {
            let runs = runs(node);
            has_failed |= runs.iter().any(|run| run.phase().has_failed());
            if record.upgrade == Some(number) || !runs.is_empty() {
                begun.insert(node.uid.clone());
            }
        }
        let first = LifecycleStep::EnsurePreClusterUpgradeHook;
        let may_begin =
            self.reason_to_skip(first).is_some() || scene.old.passed_steps.contains(&first);
        if has_failed || !may_begin {
            self.selected = begun;
            return;
        }
        let parallelism = usize::try_from(scene.features.parallelism).unwrap_or(1).max(1);
        nodes.sort_by_key(|(node, record)| {
            let has_begun = begun.contains(&node.uid);
            (!has_begun, !record.cordoned, !node.is_control_plane())
        });
        let selected = nodes.iter().take(parallelism.max(begun.len()));
        self.selected = selected.map(|(node, _)| node.uid.clone()).collect();
    }

    /// Forgets which cluster hooks of an upgrade have passed, so that they run again in the next upgrade.
    pub(crate) fn forget_upgrade_hooks(&mut self) {
        self.passed_steps.retain(|it| !LifecycleStep::UPGRADE.contains(it));
    }

    /// If the version was set back after a kubelet had been upgraded, reports that.
    pub(crate) fn report_late_revert(&mut self) {
        let scene = self.scene;
        let (Some(last), Some(version)) = (&scene.old.upgrade, &scene.cluster.spec.version) else {
            return;
        };
        if is_same_version(&last.to, version) {
            return;
        }
        let mut nodes = scene.nodes.iter();
        let Some((node, _)) = nodes.find(|(node, _)| is_same_version(&node.version, &last.to))
        else {
            return;
        };
        let message = format!(
            "node {} already has version {}, and scripts cannot be undone; set spec.version to {} again, or bring the \
             node back to {version}",
            node.name, node.version, last.to
        );
        let state = StepState::new(LifecycleReason::FailedUpdate, message);
        self.states.push((LifecycleStep::EnsureUpgrade, state));
    }
}
