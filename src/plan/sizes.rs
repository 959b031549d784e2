//! How many pods there are to be, of which revision, and which are too many.

use std::collections::BTreeSet;

use super::canary::{self, Counts, Rollout};
use super::draft::Draft;
use super::hooks::Hooks;
use super::in_place::is_under_way;
use super::pods::is_available;
use super::revision::Revisions;
use super::scale::{Keep, ScaleIn, Waiting};
use super::workload::{Progress, Workload};
use super::{Pod, World};
use crate::api::UpdateStrategyType;
use crate::api::names::HookPoint;

/// Works out how many pods there are to be, of which revision, and which are too many.
pub struct Sizing<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was seen.
    pub world: &'a World,
    /// Its revisions.
    pub revisions: &'a Revisions<'a>,
    /// Its pods that neither ended nor are Terminating.
    pub active: &'a [&'a Pod],
}

/// How many pods there are to be.
pub struct Sizes<'a> {
    /// How far the rollout may go.
    pub rollout: Rollout,
    /// The stable revision.
    pub stable: String,
    /// Pods by which replicas may be exceeded.
    pub surge: i64,
    /// Uids of the pods that are too many.
    pub victims: BTreeSet<&'a str>,
    /// Pods that neither ended nor are Terminating.
    pub active: &'a [&'a Pod],
    /// Those of them that are no victims.
    pub kept: Vec<&'a Pod>,
    /// The order in which pods go.
    pub order: ScaleIn<'a>,
}

impl<'a> Sizing<'a> {
    /// Steps count pods that are no victims, and who is a victim depends on the step: so a first
    /// round, of which only the victims are kept, comes before the one that counts.
    pub fn settle(&self, hooks: &Hooks, draft: &mut Draft) -> Option<Sizes<'a>> {
        let order = ScaleIn::new(self.workload, self.world, self.active);
        let mut scratch = Draft::default();
        let (first, _) = self.advance(&BTreeSet::new(), &mut scratch);
        let victims = first.map_or_else(BTreeSet::new, |rollout| {
            self.victims(&order, hooks, &rollout).0
        });
        let (rollout, stable) = self.advance(&victims, draft);
        let rollout = rollout?;
        let (victims, surge) = self.victims(&order, hooks, &rollout);
        let kept = self
            .active
            .iter()
            .copied()
            .filter(|pod| !victims.contains(pod.uid.as_str()))
            .collect();
        Some(Sizes {
            rollout,
            stable,
            surge,
            victims,
            active: self.active,
            kept,
            order,
        })
    }

    fn advance(&self, victims: &BTreeSet<&str>, draft: &mut Draft) -> (Option<Rollout>, String) {
        let update = self.revisions.update.name.as_str();
        let kept = || {
            self.active
                .iter()
                .filter(|pod| !victims.contains(pod.uid.as_str()))
        };
        let updated = || kept().filter(|pod| pod.revision() == update);
        let counts = Counts {
            updated: updated().count() as i64,
            updated_available: updated()
                .filter(|pod| is_available(pod, self.workload, self.world.now))
                .count() as i64,
            half_changed: kept().any(|pod| is_under_way(pod)),
        };
        let stable = self.stable(counts, kept().count() as i64);
        (
            canary::advance(self.workload, self.world, &stable, update, counts, draft),
            stable,
        )
    }

    /// The stable revision. It moves to the update revision when the steps are over and every pod is
    /// available there; a workload without any pod proves nothing.
    fn stable(&self, counts: Counts, kept: i64) -> String {
        let update = &self.revisions.update.name;
        let Progress {
            canary,
            update_revision,
            step_index,
            step_hash,
            ..
        } = &self.workload.progress;
        if canary.revision.is_empty() || !self.revisions.has(&canary.revision) {
            return update.clone();
        }
        let same_rollout = update_revision == update && *step_hash == self.workload.step_hash();
        let steps_over = usize::try_from(step_index.unwrap_or(0))
            .is_ok_and(|index| index >= self.workload.steps.len());
        let all = kept == self.workload.replicas && counts.updated_available == kept && kept > 0;
        if same_rollout && steps_over && all {
            update.clone()
        } else {
            canary.revision.clone()
        }
    }

    /// Who goes, and by how many pods replicas may be exceeded.
    fn victims(
        &self,
        order: &ScaleIn<'a>,
        hooks: &Hooks,
        rollout: &Rollout,
    ) -> (BTreeSet<&'a str>, i64) {
        let Workload {
            replicas,
            max_surge,
            max_unavailable,
            update,
            ..
        } = self.workload;
        let revision = self.revisions.update.name.as_str();
        let old = self
            .active
            .iter()
            .filter(|pod| pod.revision() != revision)
            .count() as i64;
        let may_surge = match update {
            UpdateStrategyType::RollingUpdate => true,
            UpdateStrategyType::InplaceUpdate => *max_unavailable == 0,
            UpdateStrategyType::HotPatchUpdate => false,
        };
        let above_partition = (old - (replicas - rollout.target)).max(0);
        let surge = if may_surge {
            above_partition.min(*max_surge)
        } else {
            0
        };
        let keep = Keep {
            total: replicas + surge,
            updated: rollout.target,
            old: replicas - rollout.target,
        };
        let waiting = |pod: &Pod| {
            if hooks.waits_to_go(pod) {
                Waiting::ToGo
            } else if pod.marked_deleting || hooks.has_run(HookPoint::PreDelete, pod) {
                Waiting::Marked
            } else {
                Waiting::No
            }
        };
        (order.victims(self.active, revision, waiting, keep), surge)
    }
}
