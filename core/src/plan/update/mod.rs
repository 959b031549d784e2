//! Which pods are updated to the update revision now.

pub mod acceptance;
pub mod budget;
pub mod follow;
pub mod held;
pub mod method;
pub mod new_pods;
mod quota;
mod scene;
mod sidecars;

pub use scene::Scene;
pub use sidecars::update_sidecars;

use std::borrow::Cow;
use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::{ContainerOrder, Reason};
use crate::plan::decision::{Action, Blocked, Decided, Decision, DeletionReason, PodRef};
use crate::plan::hooks::guard::{ClosedGate, may_touch};
use crate::plan::hooks::{Hooks, Intent, MAX_CLOCK_SKEW, Target, guard};
use crate::plan::in_place;
use crate::plan::in_place::hot_patch::Proof;
use crate::plan::in_place::{Change, InPlaceState, Patching, hot_patch};
use crate::plan::observed::{
    Gate, InPlaceRecord, MoveRequest, Pod, PodPhase, PodUid, RevisionName,
};
use crate::plan::pods::availability::is_available;
use crate::plan::pods::index;
use crate::plan::update::acceptance::Acceptance;
use crate::plan::update::budget::Budget;
use crate::plan::update::method::{Method, Methods};
use crate::plan::update::sidecars::{Due, SidecarChange};
use crate::plan::workload::{UpdateType, Workload};

/// Whether nothing has run in a pod yet, so that it may be changed as if it had been created that way.
fn is_new(pod: &Pod) -> bool {
    pod.phase == PodPhase::Pending && !guard::may_have_players(pod)
}

/// Replaces the pods whose replacement was requested with new ones of the same revision, within the budget. No pod is deleted
/// while its replacement could not be created.
pub fn replace_requested<'a>(
    scene: &Scene<'a>,
    budget: &mut Budget,
    hooks: &mut Hooks<'a>,
) -> Vec<Action> {
    if index::invalid(scene.workload).is_some() {
        return Vec::new();
    }
    let kept = scene.sizes.kept.iter().copied();
    // No more pods leave a node while there is no room elsewhere for those that have.
    let is_full = scene
        .own
        .iter()
        .any(|pod| pod.node.is_none() && !pod.terminating);
    let mut replaced: Vec<&Pod> = kept
        .filter(|pod| scene.workload.is_to_replace(pod))
        .collect();
    // The hook of a guarded pod that refused is run again later. Until then the pod leaves its slot to others, so idle
    // pods go first.
    if scene.workload.guarded.is_some() {
        replaced.sort_by_cached_key(|pod| (hooks.refused_at(pod), !hooks.has_removal_run(pod)));
    }
    let may_leave = |pod: &Pod| !(is_full && pod.move_requested == Some(MoveRequest::NodeGoing));
    let deletions = replaced.into_iter().filter_map(|pod| {
        let intent = Intent {
            possible: may_leave(pod) && budget.take(scene, pod),
            ..guard::removal(scene.world.now)
        };
        let cleared = may_touch(pod, &intent, hooks)?;
        Some(cleared.delete(DeletionReason::Replace))
    });
    deletions.collect()
}

/// The decisions about pods to update.
#[derive(Default)]
pub struct Moved<'a> {
    /// What was decided.
    pub decided: Decided,
    /// Pods whose in-place update starts or continues, so that their gates are not opened.
    pub changing: HashSet<PodUid<'a>>,
    /// Pods to update to the update revision now, whether or not that is possible.
    chosen: HashSet<PodUid<'a>>,
}

/// Updates pods to the update revision.
pub fn move_pods<'a>(scene: &Scene<'a>, budget: &mut Budget, hooks: &mut Hooks<'a>) -> Moved<'a> {
    let Scene {
        workload,
        sizes,
        moves,
        revisions,
        ..
    } = scene;
    let mut moved = Moved::default();
    // With OnDelete, a pod is updated when a user has it deleted. For a pause, see invariant 5.
    let waits_for_user = workload.update == UpdateType::OnDelete || sizes.rollout.paused;
    if waits_for_user || moves.count <= 0 {
        return moved;
    }
    let methods = Methods::new(scene);
    moved.decided.blocked = methods.refusal();
    let is_movable = |pod: &&'a Pod| {
        !workload.is_to_replace(pod) && !matches!(methods.of(pod), Method::Refused(_))
    };
    let mut movable: Vec<&Pod> = moves.old.iter().copied().filter(is_movable).collect();
    let mut mover = Mover {
        scene,
        methods: &methods,
        accepted: false,
        sidecars: Due::of(scene),
    };
    movable.sort_by_cached_key(|pod| mover.rank(pod, hooks));
    movable.truncate(usize::try_from(moves.count).unwrap_or(0));
    if movable.is_empty() {
        return moved;
    }
    match scene.acceptance() {
        Acceptance::Accepted => mover.accepted = true,
        Acceptance::Unknown => {}
        Acceptance::Refused { why, .. } => {
            moved.decided.blocked = Some(why.clone());
            return moved;
        }
    }
    let mut proof = hot_patch::proof(&sizes.kept, revisions.update.name());
    let mut room = moves.in_place;
    for pod in movable {
        moved.chosen.insert(pod.uid());
        let decision = match methods.of(pod) {
            Method::InPlace(change) if room > 0 => {
                let goal = mover.goal(pod, change);
                let possible = mover.may_start(pod, budget);
                let decision = change_in_place(scene, pod, &goal, possible, hooks);
                if !matches!(decision, Decision::Wait) {
                    moved.changing.insert(pod.uid());
                }
                decision
            }
            Method::HotPatch(change) if room > 0 => {
                mover.hot_patch(pod, change, budget, &mut proof)
            }
            _ => mover.recreate(pod, budget, hooks),
        };
        moved.decided.add(decision);
        room -= 1;
    }
    moved
}

/// Decides about one pod.
struct Mover<'s, 'a> {
    scene: &'s Scene<'a>,
    methods: &'s Methods<'a>,
    /// Whether the API server accepts pods of the update revision.
    accepted: bool,
    /// Changes of sidecars that are due as well, and are made by the same patch.
    sidecars: Due<'a>,
}

/// The rank of a pod: lower ranks are updated first. Fields are compared from top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
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

impl<'a> Mover<'_, 'a> {
    /// A pod's rank. Pods of the same rank stay in the order of `kept`.
    fn rank(&self, pod: &'a Pod, hooks: &Hooks) -> Rank {
        let Scene {
            workload, world, ..
        } = self.scene;
        let goal = match self.methods.of(pod) {
            Method::InPlace(change) => Some(self.goal(pod, change)),
            _ => None,
        };
        let intent = match &goal {
            Some(goal) => goal.intent(pod, world.now, hooks),
            None => self.recreation(hooks),
        };
        Rank {
            idle: !in_place::is_in_progress(pod),
            available: is_available(pod, workload, world.now),
            hook: if hooks.has_passed(pod, &intent) {
                HookProgress::Passed
            } else if hooks.has_run(intent.point, pod) {
                HookProgress::Running
            } else {
                HookProgress::None
            },
        }
    }

    /// What the update of a pod changes in place: the template's change, and that of its sidecars.
    fn goal<'c>(&self, pod: &'a Pod, change: &'c Change) -> Goal<'c>
    where
        'a: 'c,
    {
        Goal::new(
            self.scene.revisions.update.name(),
            Cow::Borrowed(change),
            self.sidecars.of_pod(pod),
        )
    }

    fn recreation(&self, hooks: &Hooks) -> Intent<'a> {
        Intent {
            point: guard::point_of_recreation(hooks),
            target: Target::Revision(self.scene.revisions.update.name()),
            modified: &[],
            possible: true,
            deletes: true,
            at: self.scene.world.now,
        }
    }

    /// Whether an update may start once its hook allows it. Takes a slot for it.
    fn may_start(&self, pod: &Pod, budget: &mut Budget) -> bool {
        budget.take(self.scene, pod) && self.accepted
    }

    fn recreate(&self, pod: &'a Pod, budget: &mut Budget, hooks: &mut Hooks<'a>) -> Decision {
        if let Some(by) = index::invalid(self.scene.workload) {
            return Decision::Blocked(by);
        }
        let intent = Intent {
            possible: self.may_start(pod, budget),
            ..self.recreation(hooks)
        };
        match may_touch(pod, &intent, hooks) {
            Some(cleared) => Decision::Do(cleared.delete(DeletionReason::Update)),
            None => Decision::Wait,
        }
    }

    /// Hot-patches a pod. Only one pod is patched until it has shown that kubelets support hot patches.
    fn hot_patch(
        &self,
        pod: &'a Pod,
        change: &Change,
        budget: &mut Budget,
        proof: &mut Proof,
    ) -> Decision {
        let Scene {
            revisions, world, ..
        } = self.scene;
        let may_start = self.may_start(pod, budget);
        match *proof {
            Proof::Restarted(first) => Decision::Blocked(Blocked {
                reason: Reason::HotPatchNotSupported,
                message: format!(
                    "the hot patch restarted a container of pod {}, so its kubelet cannot hot-patch \
                     without a restart; revert the change, or use updateStrategy.type: InplaceUpdate",
                    first.name
                ),
            }),
            Proof::Awaited(first) => hot_patch::overdue(first, world.now),
            Proof::None | Proof::Works if may_start => {
                if let Proof::None = proof {
                    *proof = Proof::Begun;
                }
                let update = revisions.update.name();
                let patch = in_place::patch_of(pod, update, change, world.now, Patching::Hot);
                Decision::Do(Action::PatchInPlace(patch))
            }
            Proof::None | Proof::Works | Proof::Begun => Decision::Wait,
        }
    }
}

/// What an in-place update leads to.
struct Goal<'g> {
    /// The revision of the template.
    revision: RevisionName<'g>,
    change: Cow<'g, Change>,
    /// Containers whose image changes.
    modified: Vec<String>,
    /// The names of all revisions, if sidecars are updated.
    revisions: Option<String>,
}

impl<'g> Goal<'g> {
    /// A change of the template and of sidecars.
    fn new(
        revision: RevisionName<'g>,
        mut change: Cow<'g, Change>,
        sidecars: Option<&SidecarChange>,
    ) -> Self {
        if let Some(sidecars) = sidecars {
            sidecars.add_to(change.to_mut());
        }
        let images = change.images.iter();
        Self {
            revision,
            modified: images.map(|(name, _)| name.clone()).collect(),
            revisions: sidecars.and_then(|it| sidecars::names_of_all(revision, &it.revisions())),
            change,
        }
    }

    fn intent(&self, pod: &Pod, now: Timestamp, hooks: &Hooks) -> Intent<'_> {
        let at = match in_place::state(pod) {
            InPlaceState::Closed(since) => since,
            _ => now,
        };
        Intent {
            point: guard::point_of_change(hooks),
            target: sidecars::target(self.revision, self.revisions.as_deref()),
            modified: &self.modified,
            possible: true,
            deletes: false,
            at,
        }
    }

    /// Whether the permit of a change in progress is valid for this one: it replaces the target of a template's update,
    /// or it changes only containers that are being changed.
    fn is_covered_by(&self, record: &InPlaceRecord) -> bool {
        let is_of_template = record.sidecars.is_empty() && self.revisions.is_none();
        let resized = self.change.resources.iter().map(|(name, _)| name);
        let mut containers = self.modified.iter().chain(resized);
        is_of_template || containers.all(|name| record.containers.contains_key(name))
    }
}

/// Changes a pod in place: closes its gate once its hook allows the change, waits, and patches it.
fn change_in_place<'a>(
    scene: &Scene<'a>,
    pod: &'a Pod,
    goal: &Goal,
    possible: bool,
    hooks: &mut Hooks<'a>,
) -> Decision {
    let Scene {
        workload, world, ..
    } = scene;
    let state = in_place::state(pod);
    let is_begun = matches!(state, InPlaceState::Patched(_));
    // No container of a new pod runs yet that another could wait for, so all are changed at once.
    let order = match is_new(pod) && !is_begun {
        true => ContainerOrder::DisOrdered,
        false => workload.order,
    };
    let patching = Patching::InPlace(order);
    let patch = || in_place::patch_of(pod, goal.revision, &goal.change, world.now, patching);
    let intent = Intent {
        possible,
        ..goal.intent(pod, world.now, hooks)
    };
    match state {
        // Its permit is valid until the update is complete, so the newest target is set immediately.
        InPlaceState::Patched(record) if goal.is_covered_by(record) => match possible {
            true => Decision::Do(Action::PatchInPlace(patch())),
            false => Decision::Wait,
        },
        InPlaceState::Patched(_) => match may_touch(pod, &intent, hooks) {
            Some(cleared) => Decision::Do(cleared.change(patch())),
            None => Decision::Wait,
        },
        InPlaceState::Closed(since) => {
            let ahead = world.now.checked_add(MAX_CLOCK_SKEW);
            match (
                guard::closed_gate(pod, &intent, hooks),
                grace_ends(workload, since),
            ) {
                (ClosedGate::Opens, _) => Decision::Wait, // See `follow`.
                // Closed by an operator whose clock was ahead: the grace period would begin only at that time.
                _ if ahead.is_ok_and(|ahead| since > ahead) => Decision::Do(Action::CloseGate {
                    pod: PodRef::of(pod),
                    revision: goal.revision.to_string(),
                    then: None,
                }),
                (ClosedGate::Change(cleared), at) if at <= world.now => {
                    Decision::Do(cleared.change(patch()))
                }
                (_, at) => Decision::Until(at),
            }
        }
        InPlaceState::Idle => match (may_touch(pod, &intent, hooks), pod.gate) {
            // `follow` opens the gate first, so that a closed gate always means that an update is in progress.
            (None, _) | (_, Gate::Unset) => Decision::Wait,
            (Some(cleared), Gate::Open) if !is_new(pod) => {
                let then = workload.grace.is_zero().then(patch);
                Decision::Do(cleared.close_gate(goal.revision, then))
            }
            (Some(cleared), _) => Decision::Do(cleared.change(patch())),
        },
    }
}

/// When the grace period of a gate that was closed at `since` ends. The time in the gate's condition is rounded down to
/// whole seconds, so one second is added.
fn grace_ends(workload: &Workload, since: Timestamp) -> Timestamp {
    let grace = workload.grace;
    let rounding = SignedDuration::from_secs(i64::from(!grace.is_zero()));
    since.checked_add(grace + rounding).unwrap_or(since)
}
