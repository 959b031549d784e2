//! Which pods are updated to the update revision now.

pub(super) mod acceptance;
pub(super) mod budget;
mod change;
pub(super) mod follow;
pub(super) mod held;
pub(super) mod method;
pub(super) mod new_pods;
mod quota;
mod scene;
mod sidecars;

pub(super) use scene::Scene;
pub use sidecars::why_sidecars_are_held;

use std::borrow::Cow;
use std::collections::HashSet;

use crate::observed::time::earlier;
use crate::observed::{MoveRequest, Pod, PodUid};
use crate::workload::decision::{Decided, Decision};
use crate::workload::hooks::{Asked, Hooks, Intent, Needs, Target};
use crate::workload::in_place;
use crate::workload::in_place::hot_patch::Proof;
use crate::workload::in_place::{InPlaceChange, Patching};
use crate::workload::pods::availability::is_available;
use crate::workload::pods::index;
use crate::workload::protection::is_request_outdated;
use crate::workload::spec::UpdateType;
use crate::workload::update::acceptance::Acceptance;
use crate::workload::update::budget::Budget;
use crate::workload::update::change::{Goal, change_in_place};
use crate::workload::update::method::{Method, Methods};
use crate::workload::update::sidecars::{Due, update_sidecars};
use crate::write::{DeletionReason, Write};

/// Which of the requested replacements are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// Those whose hook has not refused the deletion, or is due to run again.
    Open,
    /// Those whose hook has refused the deletion. They leave their slots to updates.
    Refused,
}

/// Carries out requested replacements within the budget: deletes each pod, so that a new pod of the same revision takes
/// its place. No pod is deleted while its replacement could not be created.
pub(super) fn replace_requested<'a>(
    scene: &Scene<'a>,
    requests: Requested,
    budget: &mut Budget,
    hooks: &Hooks<'a>,
) -> Asked<'a, Vec<Write>> {
    if index::why_invalid(scene.workload).is_some() {
        return Vec::new().into();
    }
    let mut needs = Needs::default();
    let kept = scene.sizes.kept.iter().copied();
    // While a pod waits for room on a node, no more pods are moved because their node is going to be removed.
    let lacks_room = scene.own.iter().any(|pod| pod.node.is_none() && !pod.terminating);
    let (workload, world) = (scene.workload, scene.world);
    let is_requested = |pod: &&Pod| {
        let is_withdrawn =
            is_request_outdated(workload, world, pod) && !workload.is_in_pods_to_delete(pod);
        workload.replacement_requested(pod) && !is_withdrawn
    };
    let has_refused = requests == Requested::Refused;
    // Pods on a lost node are deleted anyway.
    let mut requested: Vec<&Pod> = kept
        .filter(|pod| {
            let is_chosen = is_requested(pod) && hooks.has_refused_removal(pod) == has_refused;
            is_chosen && !hooks.is_on_lost_node(pod)
        })
        .collect();
    // A pod whose hook is running keeps its slot. Those whose hook refused first are the next to run it again.
    requested.sort_by_cached_key(|pod| (hooks.refused_at(pod), !hooks.has_removal_run(pod)));
    let may_leave = |pod: &Pod| !(lacks_room && pod.move_requested == Some(MoveRequest::NodeGoing));
    let deletions = requested.into_iter().filter_map(|pod| {
        let intent = Intent {
            possible: may_leave(pod) && budget.take(scene, pod),
            ..Intent::removal(scene.world.now)
        };
        let permit = hooks.may_touch(pod, &intent).into_decision(&mut needs)?;
        Some(Write::delete_pod(permit, DeletionReason::Replace))
    });
    let deletions = deletions.collect();
    Asked::new(deletions, needs)
}

/// The decisions about pods to update.
#[derive(Default)]
pub(super) struct Updates<'a> {
    /// What was decided.
    pub decided: Decided,
    /// Pods whose in-place update starts or continues; their gates are not opened.
    pub changing: HashSet<PodUid<'a>>,
    /// Pods to update to the update revision now, whether or not that is possible.
    chosen: HashSet<PodUid<'a>>,
}

/// Updates pods to the update revision, and sidecars to the newest revisions of their sets.
pub(super) fn update_pods<'a>(
    scene: &Scene<'a>,
    budget: &mut Budget,
    hooks: &Hooks<'a>,
) -> Asked<'a, Updates<'a>> {
    let mut needs = Needs::default();
    let due = Due::of(scene);
    let mut proof = Proof::of(scene.own, scene.revisions.update.name());
    let updates = update_to_revision(scene, &due, budget, &mut proof, hooks);
    let mut updates = updates.into_decision(&mut needs);
    if scene.workload.update == UpdateType::HotPatchUpdate {
        // Pods that ran the revision before, without a patch, show that the patches went back to it.
        let update = scene.revisions.update.name();
        let ran_before = |pod: &&Pod| {
            pod.revision() == update && pod.record.as_ref().is_none_or(|record| !record.hot)
        };
        let is_revert = update == scene.sizes.stable && scene.own.iter().any(ran_before);
        updates.decided.merge(proof.report(scene.world.now, is_revert));
    }
    needs.add(update_sidecars(scene, &due, budget, &mut updates, hooks));
    let refused = scene.own.iter().filter_map(|pod| scene.world.refused_change(pod));
    let again_at = refused.map(|it| it.again_at).min();
    updates.decided.wake = earlier(updates.decided.wake, again_at);
    Asked::new(updates, needs)
}

/// Updates pods to the update revision and, in the same patch, those of their sidecars that are due.
fn update_to_revision<'a>(
    scene: &Scene<'a>,
    due: &Due<'a>,
    budget: &mut Budget,
    proof: &mut Proof<'a>,
    hooks: &Hooks<'a>,
) -> Asked<'a, Updates<'a>> {
    let Scene { workload, sizes, to_update, .. } = scene;
    let mut updates = Updates::default();
    // With OnDelete, a pod is updated when a user deletes it. For a pause, see invariant 5.
    let waits_for_user = workload.update == UpdateType::OnDelete || sizes.rollout.paused;
    if waits_for_user || to_update.count <= 0 {
        return updates.into();
    }
    let methods = Methods::new(scene);
    updates.decided.blocked = methods.refusal();
    let is_possible = |pod: &'a Pod| match methods.of(pod) {
        Method::Refused(_) => false,
        Method::Recreate => !to_update.not_recreated.contains(&pod.uid()),
        Method::InPlace(_) | Method::HotPatch(_) => true,
    };
    let is_candidate = |pod: &&'a Pod| !workload.replacement_requested(pod) && is_possible(pod);
    let mut candidates: Vec<&Pod> = to_update.old.iter().copied().filter(is_candidate).collect();
    let mut updater =
        Updater { scene, methods: &methods, accepted: false, trials: None, sidecars: due };
    candidates.sort_by_cached_key(|pod| updater.rank(pod, hooks));
    candidates.truncate(usize::try_from(to_update.count).unwrap_or(0));
    // Pods on a lost node are deleted anyway.
    candidates.retain(|pod| !hooks.is_on_lost_node(pod));
    if candidates.is_empty() {
        return updates.into();
    }
    match scene.acceptance() {
        Acceptance::Accepted => updater.accepted = true,
        Acceptance::OnTrial { has_room } => {
            updater.accepted = true;
            updater.trials = Some(usize::from(!has_room));
        }
        Acceptance::Unknown => {}
        Acceptance::Refused { why, .. } => {
            updates.decided.blocked = Some(why.clone());
            return updates.into();
        }
    }
    let mut needs = Needs::default();
    let mut room = to_update.in_place;
    for pod in candidates {
        updates.chosen.insert(pod.uid());
        let decision = match methods.of(pod) {
            Method::InPlace(change) if room > 0 => {
                let goal = updater.goal(pod, change);
                let possible = updater.may_start(pod, budget);
                let decision = change_in_place(scene, pod, &goal, possible, hooks);
                let decision = decision.into_decision(&mut needs);
                if decision.changes() {
                    updates.changing.insert(pod.uid());
                }
                decision
            }
            Method::HotPatch(change) if room > 0 => updater.hot_patch(pod, change, budget, proof),
            _ => updater.recreate(pod, budget, hooks).into_decision(&mut needs),
        };
        updates.decided.add(decision);
        room -= 1;
    }
    Asked::new(updates, needs)
}

/// Decides about one pod.
struct Updater<'s, 'a> {
    scene: &'s Scene<'a>,
    methods: &'s Methods<'a>,
    /// Whether the API server accepts pods of the update revision.
    accepted: bool,
    /// How many pods may be given up for a pod of the update revision; None if it is not on trial.
    trials: Option<usize>,
    /// Changes to sidecars that are due as well, and are made in the same patch.
    sidecars: &'s Due<'a>,
}

/// The rank of a pod: lower ranks are updated first. Fields are compared from top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// A pod whose change was refused a moment ago leaves its slot to the others.
    refused: bool,
    /// Pods at neither revision, which an earlier rollout left, come first, so that the stable ones stay.
    stable: bool,
    idle: bool,
    available: bool,
    hook: HookProgress,
}

/// The progress of the hook of a pod's update.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum HookProgress {
    Passed,
    Running,
    None,
}

impl<'a> Updater<'_, 'a> {
    /// A pod's rank. Pods of the same rank stay in the order of `to_update.old`. A pod whose sidecars alone are
    /// about to be updated is not preferred, because its hook would have to run again, for both updates.
    fn rank(&self, pod: &'a Pod, hooks: &Hooks) -> Rank {
        let Scene { workload, world, .. } = self.scene;
        let goal = match self.methods.of(pod) {
            Method::InPlace(change) => Some(self.goal(pod, change)),
            _ => None,
        };
        let intent = match &goal {
            Some(goal) => goal.intent(pod, world.now, hooks),
            None => self.recreation(pod, hooks),
        };
        let is_for_sidecars = hooks.has_run_for_sidecars(intent.point, pod);
        Rank {
            refused: world.refused_change(pod).is_some(),
            stable: pod.revision() == self.scene.sizes.stable,
            idle: !in_place::is_in_progress(pod) || is_for_sidecars,
            available: is_available(pod, workload, world.now) || is_for_sidecars,
            hook: if hooks.has_passed(pod, &intent) {
                HookProgress::Passed
            } else if hooks.has_run(intent.point, pod) && !is_for_sidecars {
                HookProgress::Running
            } else {
                HookProgress::None
            },
        }
    }

    /// What the update of a pod changes in place: what changed in the template, and the pod's sidecars that are due.
    fn goal<'c>(&self, pod: &'a Pod, change: &'c InPlaceChange) -> Goal<'c>
    where
        'a: 'c,
    {
        Goal::new(
            self.scene.revisions.update.name(),
            Cow::Borrowed(change),
            self.sidecars.of_pod(pod),
        )
    }

    fn recreation(&self, pod: &Pod, hooks: &Hooks) -> Intent<'a> {
        Intent {
            point: hooks.point_of_recreation(pod),
            target: Target::Revision(self.scene.revisions.update.name()),
            modified: &[],
            changes: None,
            possible: true,
            rehearsal: None,
            deletes: true,
            at: self.scene.world.now,
        }
    }

    /// Whether an update may start once its hook allows it. Takes a slot for it.
    fn may_start(&self, pod: &Pod, budget: &mut Budget) -> bool {
        budget.take(self.scene, pod) && self.accepted
    }

    fn recreate(
        &mut self,
        pod: &'a Pod,
        budget: &mut Budget,
        hooks: &Hooks<'a>,
    ) -> Asked<'a, Decision> {
        if let Some(blocked) = index::why_invalid(self.scene.workload) {
            return Decision::Blocked(blocked).into();
        }
        let possible = self.trials != Some(0) && self.may_start(pod, budget);
        if possible {
            self.trials = self.trials.map(|trials| trials - 1);
        }
        let intent = Intent { possible, ..self.recreation(pod, hooks) };
        hooks.may_touch(pod, &intent).map(|permit| match permit {
            Some(permit) => Decision::Do(Write::delete_pod(permit, DeletionReason::Update)),
            None => Decision::Wait,
        })
    }

    /// Hot-patches a pod, if it is the first one on its node or hot patches have worked there.
    fn hot_patch(
        &self,
        pod: &'a Pod,
        change: &InPlaceChange,
        budget: &mut Budget,
        proof: &mut Proof<'a>,
    ) -> Decision {
        let Scene { revisions, world, .. } = self.scene;
        let may_start = self.may_start(pod, budget);
        if let Some(refusal) = proof.refusal(pod, world.now) {
            return refusal;
        }
        if !may_start {
            return Decision::Wait;
        }
        proof.begin(pod);
        let update = revisions.update.name();
        let patch = in_place::patch_of(pod, update, change, world.now, Patching::Hot);
        Decision::Do(Write::hot_patch(patch))
    }
}
