//! The end of a walk: the status that its steps add up to.

use super::Walk;
use crate::api::{ClusterPhase, ClusterStatus, LifecycleStep};
use crate::lifecycle::ClusterPlan;
use crate::lifecycle::conditions;

impl Walk<'_> {
    /// The version to record when an install or upgrade is complete.
    fn version(&self) -> Option<String> {
        let wanted = self.scene.cluster.spec.version.clone();
        wanted.or_else(|| self.scene.old.version.clone())
    }

    /// The plan, with the status that results.
    pub(crate) fn end(self, phase: ClusterPhase) -> ClusterPlan {
        let scene = self.scene;
        let installed = scene.nodes.iter().filter(|(_, record)| record.installed);
        let installed = installed.count();
        let is_recorded = phase == ClusterPhase::Running && installed == scene.nodes.len();
        let count = |nodes: usize| i32::try_from(nodes).unwrap_or(i32::MAX);
        let mut old = scene.old.conditions.clone();
        if phase != ClusterPhase::Upgrading {
            // An upgrade that was canceled leaves conditions that are not True. They are dropped, unless this walk has
            // a state for them.
            let belongs_to_upgrade =
                |it: &str| LifecycleStep::UPGRADE.iter().any(|step| step.to_string() == it);
            let has_state = |it: &str| self.states.iter().any(|(step, _)| step.to_string() == it);
            old.retain(|it| {
                it.status == "True" || !belongs_to_upgrade(&it.type_) || has_state(&it.type_)
            });
        }
        let now = scene.world.now;
        let status = ClusterStatus {
            observed_generation: scene.cluster.metadata.generation.unwrap_or_default(),
            phase,
            first_master: scene.master.as_ref().ok().map(|it| it.name.clone()),
            version: match phase {
                ClusterPhase::Running => self.version(),
                _ => scene.old.version.clone(),
            },
            upgrade: scene.upgrade.clone().or_else(|| scene.old.upgrade.clone()),
            passed_steps: self.passed_steps,
            nodes: count(scene.nodes.len()),
            installed_nodes: count(installed),
            conditions: conditions::with_steps(scene.cluster, &old, &self.states, is_recorded, now),
        };
        conditions::finish(scene.cluster, status, &self.states, self.plan, scene.world)
    }
}
