//! How many pods there should be, at which revision, and which ones are surplus.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;

use crate::observed::{Pod, PodUid, RevisionName};
use crate::workload::decision::Draft;
use crate::workload::in_place::{is_at, is_in_progress};
use crate::workload::pods::availability::{is_available, proven_at};
use crate::workload::revision::Revisions;
use crate::workload::rollout;
use crate::workload::rollout::Rollout;
use crate::workload::rollout::{Advance, Counts};
use crate::workload::spec::UpdateType;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// Computes how many pods there should be, at which revision, and which ones are surplus.
pub(crate) struct Sizing<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was observed.
    pub world: &'a World,
    /// The workload's revisions.
    pub revisions: &'a Revisions<'a>,
    /// The workload's pods that are neither ended nor Terminating.
    pub active: &'a [&'a Pod],
    /// Those of the active pods that count for canary steps, unless they are victims.
    pub counted: &'a [&'a Pod],
}

/// Surge and victims for one state of the rollout.
pub(crate) struct Choice<'a> {
    /// The number of pods by which replicas may be exceeded.
    pub surge: i64,
    /// The part of the surge that replaces pods whose replacement was requested. It does not depend on the rollout.
    pub replacement_surge: i64,
    /// Surplus pods, which are to be deleted.
    pub victims: HashSet<PodUid<'a>>,
}

/// How many pods there should be, and which ones they are.
pub(crate) struct Sizes<'a> {
    /// How far the rollout may go.
    pub rollout: Rollout,
    /// The stable revision; the update revision if none has worked yet.
    pub stable: RevisionName<'a>,
    /// When the pods at the update revision will have run for long enough for it to become stable; None if they have.
    pub proven_at: Option<Timestamp>,
    /// The number of pods by which replicas may be exceeded.
    pub surge: i64,
    /// The part of the surge that replaces pods whose replacement was requested. It does not depend on the rollout.
    pub replacement_surge: i64,
    /// Surplus pods, which are to be deleted.
    pub victims: HashSet<PodUid<'a>>,
    /// Pods that are neither ended nor Terminating.
    pub active: &'a [&'a Pod],
    /// Those of the active pods that are not victims.
    pub kept: Vec<&'a Pod>,
}

impl Sizes<'_> {
    /// Whether new pods may be created at the revision of this pod.
    pub(crate) fn may_create_at_revision_of(&self, pod: &Pod) -> bool {
        let update = self.rollout.progress.update();
        [update, self.stable].contains(&pod.revision())
    }
}

impl<'a> Sizing<'a> {
    /// The sizes, and what the rollout decides. There are no sizes if the steps start over and HookRuns of an earlier
    /// rollout have to be deleted first.
    ///
    /// Steps count pods that are not victims, and the victims depend on the step. So a first pass finds the victims,
    /// and a second pass finds the step.
    pub(crate) fn settle(
        &self,
        choose: impl Fn(&Rollout) -> Choice<'a>,
    ) -> (Option<Sizes<'a>>, Draft) {
        let (first, _) = self.advance(&HashSet::new());
        let victims = first.rollout.map(|rollout| choose(&rollout).victims);
        let (Advance { rollout, draft }, stable) = self.advance(&victims.unwrap_or_default());
        let stable = stable.unwrap_or_else(|| self.revisions.update.name());
        let sizes = rollout.map(|rollout| self.sizes(rollout, stable, choose));
        (sizes, draft)
    }

    fn sizes(
        &self,
        rollout: Rollout,
        stable: RevisionName<'a>,
        choose: impl Fn(&Rollout) -> Choice<'a>,
    ) -> Sizes<'a> {
        let Choice { surge, replacement_surge, victims } = choose(&rollout);
        let kept =
            self.active.iter().copied().filter(|pod| !victims.contains(&pod.uid())).collect();
        let Workload { replicas, max_surge, .. } = self.workload;
        debug_assert!((0..=*replicas).contains(&rollout.target), "{rollout:?}");
        debug_assert!((0..=*max_surge).contains(&surge), "surge {surge}");
        debug_assert!((0..=surge).contains(&replacement_surge), "surge {surge}");
        let proven_at = match stable == self.revisions.update.name() {
            true => None,
            false => self.proven_at(&victims),
        };
        Sizes {
            rollout,
            stable,
            proven_at,
            surge,
            replacement_surge,
            victims,
            active: self.active,
            kept,
        }
    }

    /// The number of pods by which replicas may be exceeded while `to_replace` pods are still to be replaced.
    pub(crate) fn surge(&self, to_replace: i64) -> i64 {
        let Workload { max_surge, max_unavailable, update, .. } = self.workload;
        if *update == UpdateType::InplaceUpdate && *max_unavailable > 0 {
            return 0;
        }
        to_replace.clamp(0, *max_surge)
    }

    fn advance(&self, victims: &HashSet<PodUid>) -> (Advance, Option<RevisionName<'a>>) {
        let update = self.revisions.update.name();
        let kept = || self.counted.iter().filter(|pod| !victims.contains(&pod.uid()));
        let updated = || kept().filter(|pod| is_at(pod, update));
        // Pods whose replacement was requested have replacements of their own.
        let is_old = |pod: &&&Pod| !is_at(pod, update) && !self.workload.replacement_requested(pod);
        let counts = Counts {
            updated: updated().count() as i64,
            updated_available: updated()
                .filter(|pod| is_available(pod, self.workload, self.world.now))
                .count() as i64,
            any_changing_in_place: updated().any(|pod| is_in_progress(pod)),
            old: kept().filter(is_old).count() as i64,
        };
        let is_proven = || self.proven_at(victims).is_none();
        let stable = self.stable(counts, kept().count() as i64, is_proven);
        (rollout::advance(self.workload, self.world, stable, update, counts), stable)
    }

    /// When the pods at the update revision will have run for long enough; None if they have.
    fn proven_at(&self, victims: &HashSet<PodUid>) -> Option<Timestamp> {
        let update = self.revisions.update.name();
        let kept = self.counted.iter().filter(|pod| !victims.contains(&pod.uid()));
        let updated = kept.filter(|pod| is_at(pod, update));
        updated.filter_map(|pod| proven_at(pod, self.world.now)).max()
    }

    /// The stable revision. The update revision becomes stable when the steps are completed and all pods are at this
    /// revision, available, and have run for a moment; a workload without pods proves nothing. A stable revision whose
    /// ControllerRevision was deleted remains the stable one as long as there are old pods, which the rollout may have to
    /// keep.
    ///
    /// None if no revision has worked yet: until a pod of the first one has been available, there is nothing to keep,
    /// and steps and partition would only hold up the template that fixes it. If the next template is applied before that,
    /// the first one may still come up.
    fn stable(
        &self,
        counts: Counts,
        kept: i64,
        is_proven: impl Fn() -> bool,
    ) -> Option<RevisionName<'a>> {
        let update = self.revisions.update.name();
        let progress = &self.workload.progress;
        let Some(stable) = progress.stable() else {
            let is_lost = progress.update_revision.is_empty();
            let of_pods = is_lost.then(|| self.stable_of_pods(|_| true)).flatten();
            let works = counts.updated_available > 0;
            let available = |pod: &Pod| is_available(pod, self.workload, self.world.now);
            return of_pods
                .or_else(|| works.then_some(update))
                .or_else(|| self.stable_of_pods(available));
        };
        let is_old = |pod: &&Pod| !is_at(pod, update);
        let is_lost = self.revisions.get(stable).is_none() && !self.active.iter().any(is_old);
        let same_rollout =
            progress.update() == update && progress.step_hash == self.workload.step_hash();
        let steps_completed = progress.is_past(self.workload.steps.len());
        let all_available =
            kept == self.workload.replicas && counts.updated_available == kept && kept > 0;
        Some(match is_lost || (same_rollout && steps_completed && all_available && is_proven()) {
            true => update,
            false => stable,
        })
    }

    /// The stable revision of a workload that has pods (or orphans that it will adopt) but whose status shows no stable
    /// revision. Such a status was lost in the middle of a rollout, because the workload was restored from a backup or
    /// deleted with `--cascade=orphan`. The stable revision is the one that most old pods have; `counts` says
    /// which of them are considered.
    fn stable_of_pods(&self, counts: impl Fn(&Pod) -> bool) -> Option<RevisionName<'a>> {
        let is_active = |pod: &&Pod| !pod.terminating && !pod.ended() && counts(pod);
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
        let most_common = pods_at.into_iter().max_by_key(|(_, pods)| *pods);
        most_common.map(|(revision, _)| revision)
    }
}
