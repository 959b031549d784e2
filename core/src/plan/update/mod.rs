//! Which pods are brought to the update revision now.

pub mod acceptance;
pub mod budget;
pub mod follow;
pub mod held;
pub mod method;
pub mod new_pods;
mod quota;
mod scene;

pub use scene::Scene;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::api::names::HookPoint;
use crate::plan::decision::{Action, Blocked, DeletionReason, Draft, PodRef};
use crate::plan::hooks::guard::{ClosedGate, may_touch};
use crate::plan::hooks::{CLOCKS_MAY_DIFFER_BY, Hooks, Intent, Target, guard};
use crate::plan::in_place;
use crate::plan::in_place::hot_patch::Proof;
use crate::plan::in_place::{Change, InPlaceState, Patching, hot_patch};
use crate::plan::observed::{Gate, Pod, PodPhase, RevisionName};
use crate::plan::pods::availability::is_available;
use crate::plan::update::acceptance::{Acceptance, acceptance};
use crate::plan::update::budget::Budget;
use crate::plan::update::method::{Method, method_from, not_in_place, on_old_kubelet};
use crate::plan::world::World;

/// Whether a pod has not begun to run: it may be changed as if it had been made so.
fn is_new(pod: &Pod) -> bool {
    pod.phase == PodPhase::Pending && !guard::may_have_players(pod)
}

/// The version of a pod's kubelet, where that ignores other images of native sidecars. A pod that was
/// changed already is followed to its end all the same.
fn old_kubelet_of<'a>(world: &'a World, pod: &Pod) -> Option<&'a str> {
    let version = world.old_kubelets.get(pod.node.as_ref()?)?;
    let is_patched = matches!(in_place::state(pod), InPlaceState::Patched(_));
    (!is_patched).then_some(version)
}

/// Replaces pods that podsToDelete names, by new ones of the same revision, within the budget.
pub fn replace_named<'a>(
    scene: &Scene<'a>,
    budget: &mut Budget,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) {
    for pod in scene.kept.iter().filter(|pod| scene.workload.is_named(pod)) {
        let intent = Intent {
            possible: budget.take(scene, pod),
            ..guard::removal(scene.world.now)
        };
        if let Some(cleared) = may_touch(pod, &intent, hooks, draft) {
            draft.push(cleared.delete(DeletionReason::Replace));
        }
    }
}

/// Moves pods to the update revision. Says why when it cannot.
pub fn move_pods<'a>(
    scene: &Scene<'a>,
    budget: &mut Budget,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) -> Option<Blocked> {
    let mover = Mover {
        scene,
        methods: BTreeMap::new(),
        on_old_kubelets: BTreeMap::new(),
        hot: OnceCell::new(),
    };
    mover.run(budget, hooks, draft)
}

struct Mover<'s, 'a> {
    scene: &'s Scene<'a>,
    /// By the revision that a pod is at.
    methods: BTreeMap<RevisionName<'a>, Method>,
    /// By revision and the kubelet's version, where that makes a difference.
    on_old_kubelets: BTreeMap<(RevisionName<'a>, &'a str), Method>,
    hot: OnceCell<HotPatches<'a>>,
}

/// Hot patches to the update revision that were made before this plan.
struct HotPatches<'a> {
    /// What they have shown.
    proof: Proof,
    /// A pod of which it has not shown yet.
    under_way: Option<&'a Pod>,
}

/// Place in the order of updates: lower goes first. Read from top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    idle: bool,
    available: bool,
    hook: Asked,
}

/// How far the hook of a pod's update is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Passed,
    Runs,
    No,
}

impl<'a> Mover<'_, 'a> {
    fn run(
        mut self,
        budget: &mut Budget,
        hooks: &mut Hooks<'a>,
        draft: &mut Draft,
    ) -> Option<Blocked> {
        let Scene {
            workload,
            rollout,
            revisions,
            moves,
            world,
            ..
        } = self.scene;
        // Invariant 5.
        if rollout.paused || moves.count <= 0 {
            return None;
        }
        for pod in &moves.old {
            let revision = pod.revision();
            let method = self.methods.entry(revision);
            let method = method.or_insert_with(|| method_from(workload, revisions, revision));
            let version = old_kubelet_of(world, pod);
            if let Some((version, other)) =
                version.and_then(|it| Some((it, on_old_kubelet(workload, method, it)?)))
            {
                self.on_old_kubelets.insert((revision, version), other);
            }
        }
        let all = self.methods.values().chain(self.on_old_kubelets.values());
        let blocked = all.into_iter().find_map(|method| match method {
            Method::Refused(error) => Some(not_in_place(error)),
            _ => None,
        });
        let is_movable = |pod: &&'a Pod| {
            !workload.is_named(pod) && !matches!(self.method(pod), Method::Refused(_))
        };
        let mut movable: Vec<&Pod> = moves.old.iter().copied().filter(is_movable).collect();
        movable.sort_by_cached_key(|pod| self.rank(pod, hooks));
        movable.truncate(usize::try_from(moves.count).unwrap_or(0));
        if movable.is_empty() {
            return blocked;
        }
        let accepted = match acceptance(self.scene, draft) {
            Acceptance::Accepted => true,
            Acceptance::Asked => false,
            Acceptance::Refused(blocked) => return Some(blocked),
        };
        let mut room = moves.in_place;
        let mut problem = None;
        for pod in movable {
            let slot = budget.take(self.scene, pod);
            let may_start = slot && accepted;
            problem = problem.or(match self.method(pod) {
                Method::InPlace(change) if room > 0 => {
                    self.change_in_place(pod, change, may_start, hooks, draft);
                    None
                }
                Method::HotPatch(change) if room > 0 => {
                    self.hot_patch(pod, change, may_start, draft)
                }
                _ => {
                    self.recreate(pod, may_start, hooks, draft);
                    None
                }
            });
            room -= 1;
        }
        blocked.or(problem)
    }

    fn method(&self, pod: &'a Pod) -> &Method {
        let revision = pod.revision();
        let other = old_kubelet_of(self.scene.world, pod);
        let other = other.and_then(|version| self.on_old_kubelets.get(&(revision, version)));
        other.unwrap_or_else(|| &self.methods[&revision])
    }

    /// Its place in the order of updates; those of one rank are in the order of `kept`.
    fn rank(&self, pod: &'a Pod, hooks: &Hooks) -> Rank {
        let Scene {
            workload, world, ..
        } = self.scene;
        let (point, _) = self.point_and_modified(pod, hooks);
        Rank {
            idle: !in_place::is_under_way(pod),
            available: is_available(pod, workload, world.now),
            hook: if hooks.has_passed(pod, &self.intent(pod, point, &[])) {
                Asked::Passed
            } else if hooks.has_run(point, pod) {
                Asked::Runs
            } else {
                Asked::No
            },
        }
    }

    fn point_and_modified(&self, pod: &'a Pod, hooks: &Hooks) -> (HookPoint, Vec<String>) {
        match self.method(pod) {
            Method::InPlace(change) => {
                let modified = change.images.iter().map(|(name, _)| name.clone()).collect();
                (guard::point_of_change(hooks), modified)
            }
            _ => (guard::point_of_recreation(hooks), Vec::new()),
        }
    }

    fn intent<'i>(&'i self, pod: &Pod, point: HookPoint, modified: &'i [String]) -> Intent<'i> {
        let at = match in_place::state(pod) {
            InPlaceState::Closed(since) => since,
            _ => self.scene.world.now,
        };
        Intent {
            point,
            target: Target::Revision(self.scene.revisions.update.name()),
            modified,
            possible: true,
            at,
        }
    }

    fn recreate(&self, pod: &'a Pod, may_start: bool, hooks: &mut Hooks<'a>, draft: &mut Draft) {
        let point = guard::point_of_recreation(hooks);
        let intent = Intent {
            possible: may_start,
            at: self.scene.world.now,
            ..self.intent(pod, point, &[])
        };
        if let Some(cleared) = may_touch(pod, &intent, hooks, draft) {
            draft.push(cleared.delete(DeletionReason::Update));
        }
    }

    fn change_in_place(
        &self,
        pod: &'a Pod,
        change: &Change,
        may_start: bool,
        hooks: &mut Hooks<'a>,
        draft: &mut Draft,
    ) {
        let update = self.scene.revisions.update.name();
        let patch = |now| in_place::patch_of(pod, update, change, now, Patching::InPlace);
        let now = self.scene.world.now;
        let (point, modified) = self.point_and_modified(pod, hooks);
        let intent = Intent {
            possible: may_start,
            ..self.intent(pod, point, &modified)
        };
        match in_place::state(pod) {
            // Its permit holds until it is done: the newest target at once.
            InPlaceState::Patched(_) if may_start => {
                draft.keep_closed(pod);
                draft.push(Action::PatchInPlace(patch(now)));
            }
            InPlaceState::Patched(_) => {}
            InPlaceState::Closed(since) => {
                let gate = guard::closed_gate(pod, &intent, hooks, draft);
                if matches!(gate, ClosedGate::Opens) {
                    return; // See `follow`.
                }
                draft.keep_closed(pod);
                let ahead = now.checked_add(CLOCKS_MAY_DIFFER_BY).unwrap_or(now);
                match (gate, self.grace_ends(since)) {
                    // A clock that was ahead closed it: its grace period would last until then.
                    _ if since > ahead => draft.push(Action::CloseGate {
                        pod: PodRef::of(pod),
                        revision: update.to_string(),
                        then: None,
                    }),
                    (ClosedGate::Change(cleared), at) if at <= now => {
                        draft.push(cleared.change(patch(now)));
                    }
                    (_, at) => draft.wake_at(at),
                }
            }
            InPlaceState::Idle => {
                let Some(cleared) = may_touch(pod, &intent, hooks, draft) else {
                    return;
                };
                match pod.gate {
                    // `follow` opens it first: a gate that is closed then says that an update is in progress.
                    Gate::Unset => {}
                    Gate::Open if !is_new(pod) => {
                        let at_once = self.scene.workload.grace.is_zero();
                        draft.push(cleared.close_gate(update, at_once.then(|| patch(now))));
                    }
                    _ => draft.push(cleared.change(patch(now))),
                }
            }
        }
    }

    /// When the grace period of a gate that closed then is over. The time in the gate's condition
    /// has whole seconds, rounded down, so one is added.
    fn grace_ends(&self, since: Timestamp) -> Timestamp {
        let grace = self.scene.workload.grace;
        let rounding = SignedDuration::from_secs(i64::from(!grace.is_zero()));
        since.checked_add(grace + rounding).unwrap_or(since)
    }

    /// Patches a pod hot, one at first, until that one has shown that the kubelet can.
    fn hot_patch(
        &self,
        pod: &'a Pod,
        change: &Change,
        may_start: bool,
        draft: &mut Draft,
    ) -> Option<Blocked> {
        let Scene {
            kept,
            revisions,
            world,
            ..
        } = self.scene;
        let update = revisions.update.name();
        let hot = self.hot.get_or_init(|| HotPatches {
            proof: hot_patch::proof(kept.iter().copied(), update),
            under_way: kept
                .iter()
                .find(|pod| pod.revision() == update && hot_patch::is_under_way(pod))
                .copied(),
        });
        match &hot.proof {
            Proof::Restarted(name) => {
                return Some(Blocked {
                    reason: Reason::HotPatchNotSupported,
                    message: format!(
                        "the hot patch restarted a container of pod {name}, so its kubelet cannot hot-patch \
                         without a restart; revert the change, or use updateStrategy.type: InplaceUpdate"
                    ),
                });
            }
            Proof::None if let Some(first) = hot.under_way => {
                return hot_patch::overdue(first, world.now, draft);
            }
            Proof::None if draft.patches_pods() => {}
            _ if may_start => {
                let patch = in_place::patch_of(pod, update, change, world.now, Patching::Hot);
                draft.push(Action::PatchInPlace(patch));
            }
            _ => {}
        }
        None
    }
}
