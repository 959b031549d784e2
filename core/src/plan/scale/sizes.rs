//! How many pods there are to be, of which revision, and which are too many.

use std::collections::{BTreeMap, HashSet};

use crate::plan::decision::Draft;
use crate::plan::in_place::{is_at, is_in_progress};
use crate::plan::observed::{Pod, PodUid, RevisionName};
use crate::plan::pods::availability::is_available;
use crate::plan::revision::Revisions;
use crate::plan::rollout;
use crate::plan::rollout::{Advance, Counts, Rollout};
use crate::plan::workload::{UpdateType, Workload};
use crate::plan::world::World;

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
    /// Those of them that count for canary steps, unless they are too many.
    pub counted: &'a [&'a Pod],
}

/// Surge and victims when the rollout is that far.
pub struct Choice<'a> {
    /// Pods by which replicas may be exceeded.
    pub surge: i64,
    /// Pods that are too many.
    pub victims: HashSet<PodUid<'a>>,
}

/// How many pods there are to be.
pub struct Sizes<'a> {
    /// How far the rollout may go.
    pub rollout: Rollout,
    /// The stable revision.
    pub stable: RevisionName<'a>,
    /// Pods by which replicas may be exceeded.
    pub surge: i64,
    /// Pods that are too many.
    pub victims: HashSet<PodUid<'a>>,
    /// Pods that neither ended nor are Terminating.
    pub active: &'a [&'a Pod],
    /// Those of them that are no victims.
    pub kept: Vec<&'a Pod>,
}

impl Sizes<'_> {
    /// Whether pods of this one's revision are still made.
    pub fn makes(&self, pod: &Pod) -> bool {
        let update = self.rollout.progress.update();
        [update, self.stable].contains(&pod.revision())
    }
}

impl<'a> Sizing<'a> {
    /// How many pods there are to be, and what is to be done for the rollout. None: the steps start over, and
    /// HookRuns of an earlier round have to be deleted first.
    ///
    /// Steps count pods that are not victims, and the victims depend on the step. So a first round finds the
    /// victims, and a second one the step.
    pub fn settle(&self, choose: impl Fn(&Rollout) -> Choice<'a>) -> (Option<Sizes<'a>>, Draft) {
        let (first, _) = self.advance(&HashSet::new());
        let victims = first.rollout.map(|rollout| choose(&rollout).victims);
        let (Advance { rollout, draft }, stable) = self.advance(&victims.unwrap_or_default());
        let sizes = rollout.map(|rollout| self.sizes(rollout, stable, choose));
        (sizes, draft)
    }

    fn sizes(
        &self,
        rollout: Rollout,
        stable: RevisionName<'a>,
        choose: impl Fn(&Rollout) -> Choice<'a>,
    ) -> Sizes<'a> {
        let Choice { surge, victims } = choose(&rollout);
        let kept = self
            .active
            .iter()
            .copied()
            .filter(|pod| !victims.contains(&pod.uid()))
            .collect();
        let Workload {
            replicas,
            max_surge,
            ..
        } = self.workload;
        debug_assert!((0..=*replicas).contains(&rollout.target), "{rollout:?}");
        debug_assert!((0..=*max_surge).contains(&surge), "surge {surge}");
        Sizes {
            rollout,
            stable,
            surge,
            victims,
            active: self.active,
            kept,
        }
    }

    /// Pods by which replicas may be exceeded while so many are still to be brought to the update
    /// revision.
    pub fn surge(&self, to_move: i64) -> i64 {
        let Workload {
            max_surge,
            max_unavailable,
            update,
            ..
        } = self.workload;
        let may_surge = match update {
            UpdateType::RollingUpdate => true,
            UpdateType::InplaceUpdate => *max_unavailable == 0,
            UpdateType::HotPatchUpdate | UpdateType::OnDelete => false,
        };
        if may_surge {
            to_move.clamp(0, *max_surge)
        } else {
            0
        }
    }

    fn advance(&self, victims: &HashSet<PodUid>) -> (Advance, RevisionName<'a>) {
        let update = self.revisions.update.name();
        let kept = || {
            self.counted
                .iter()
                .filter(|pod| !victims.contains(&pod.uid()))
        };
        let updated = || kept().filter(|pod| is_at(pod, update));
        let counts = Counts {
            updated: updated().count() as i64,
            updated_available: updated()
                .filter(|pod| is_available(pod, self.workload, self.world.now))
                .count() as i64,
            any_changing_in_place: kept().any(|pod| is_in_progress(pod)),
        };
        let stable = self.stable(counts, kept().count() as i64);
        (
            rollout::advance(self.workload, self.world, stable, update, counts),
            stable,
        )
    }

    /// The stable revision. It moves to the update revision when the steps are over and every pod is
    /// available there; a workload without any pod proves nothing. One whose ControllerRevision is
    /// gone stays what it is while a pod is left that the rollout is to spare.
    fn stable(&self, counts: Counts, kept: i64) -> RevisionName<'a> {
        let update = self.revisions.update.name();
        let progress = &self.workload.progress;
        let Some(stable) = progress.stable() else {
            return self.stable_of_pods().unwrap_or(update);
        };
        let is_old = |pod: &&Pod| !is_at(pod, update);
        let is_lost = self.revisions.get(stable).is_none() && !self.active.iter().any(is_old);
        let same_rollout =
            progress.update() == update && progress.step_hash == self.workload.step_hash();
        let steps_over = progress.is_past(self.workload.steps.len());
        let all = kept == self.workload.replicas && counts.updated_available == kept && kept > 0;
        match is_lost || (same_rollout && steps_over && all) {
            true => update,
            false => stable,
        }
    }

    /// The stable revision of a workload that shows none although it has pods, orphans that are being
    /// adopted among them: its status was lost in the middle of a rollout (restored from a backup,
    /// deleted with `--cascade=orphan`). It is the one that most of the old pods are at.
    fn stable_of_pods(&self) -> Option<RevisionName<'a>> {
        let is_active = |pod: &&Pod| !pod.terminating && !pod.ended();
        let pods = self.world.pods.iter().map(AsRef::as_ref);
        let pods = pods.filter(|pod| is_active(pod) && self.workload.is_member(pod));
        let update = self.revisions.update.name();
        let is_old = |revision: &RevisionName| {
            *revision != update && self.revisions.get(*revision).is_some()
        };
        let mut pods_at = BTreeMap::new();
        for revision in pods.map(Pod::revision).filter(is_old) {
            *pods_at.entry(revision).or_insert(0) += 1;
        }
        let commonest = pods_at.into_iter().max_by_key(|(_, pods)| *pods);
        commonest.map(|(revision, _)| revision)
    }
}
