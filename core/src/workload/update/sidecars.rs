//! Invariant 13: in-place updates of sidecars. A SidecarSet allots tokens to pods (see [`crate::sidecar_set`]),
//! and the pods' workload acts on them: after the same hook, within the same budget and with the same gate as for its
//! own updates.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use kube::ResourceExt;

use super::change::{Goal, change_in_place};
use super::{Scene, Updates};
use crate::api::GameWorkload;
use crate::observed::{OldKubelet, Pod, PodUid, RevisionName, SidecarMark};
use crate::sidecar_set::{Held, HeldBy, Sidecars};
use crate::workload::hooks::{Hooks, Needs, Target};
use crate::workload::in_place::{InPlaceChange, MarkChange, is_unfinished};
use crate::workload::spec::Progress;
use crate::workload::update::budget::Budget;
use crate::workload::world::World;

/// Why a workload holds back updates of its sidecars, according to its spec and status; None if it does not.
pub fn why_sidecars_are_held<K: GameWorkload>(workload: &K) -> Option<Held> {
    let steps = workload.canary().map_or(0, |canary| canary.steps.len());
    let status = workload.status();
    let progress = status.map(|status| Progress::of(status.as_ref()));
    let has_steps_left = !progress.unwrap_or_default().is_past(steps);
    let by = HeldBy::of(workload.update_type(), workload.is_paused(), has_steps_left)?;
    let (namespace, name) = (workload.namespace().unwrap_or_default(), workload.name_any());
    let workload = format!("{} {namespace}/{name}", K::KIND.as_str());
    Some(Held { workload, by })
}

/// Changes to a pod's sidecars that its tokens allow.
#[derive(Debug, Default)]
pub(super) struct SidecarChange {
    /// Containers with a new image: (name, image).
    images: Vec<(String, String)>,
    marks: Vec<MarkChange>,
}

impl SidecarChange {
    /// Adds these changes to `change`, which holds the changes of the template.
    pub(super) fn add_to(&self, change: &mut InPlaceChange) {
        change.images.extend(self.images.iter().cloned());
        change.marks.extend(self.marks.iter().cloned());
    }

    /// The revisions to which the sets' containers are updated, by the name of the set.
    pub(super) fn revisions(&self) -> BTreeMap<String, String> {
        let marks = self.marks.iter();
        marks.map(|it| (it.set.clone(), it.revision.clone())).collect()
    }
}

/// The pods whose sidecars may be updated now.
pub(super) struct Due<'a>(HashMap<PodUid<'a>, SidecarChange>);

impl<'a> Due<'a> {
    /// Finds these pods. Pods that the workload holds back are left out: they get no new tokens, but may have received
    /// one earlier.
    pub(super) fn of(scene: &Scene<'a>) -> Self {
        let Scene { workload, world, sizes, .. } = scene;
        if world.sidecars.is_empty() {
            return Self(HashMap::new());
        }
        let rollout = &sizes.rollout;
        let has_steps_left = !rollout.progress.is_past(workload.steps.len());
        let held = HeldBy::of(workload.update, rollout.paused, has_steps_left);
        let is_held = |pod: &Pod| held.is_some_and(|by| by.holds(pod.is_ready()));
        let pods = sizes.kept.iter();
        let pods = pods.filter(|pod| !pod.hot_patched && !is_held(pod));
        let due = pods.filter_map(|pod| Some((pod.uid(), change_of(pod, world)?)));
        Self(due.collect())
    }

    /// The change to a pod's sidecars.
    pub(super) fn of_pod(&self, pod: &'a Pod) -> Option<&SidecarChange> {
        self.0.get(&pod.uid())
    }
}

/// The change to a pod's sidecars that its tokens allow; None if there is none. The token of a set that no longer
/// selects the pod allows nothing.
fn change_of(pod: &Pod, world: &World) -> Option<SidecarChange> {
    let mut all = SidecarChange::default();
    for set in &world.sidecars {
        let mark = pod.sidecars.get(&set.name);
        let mark = mark.filter(|_| set.reach.selects(&pod.labels));
        let Some(mark) = mark.filter(|mark| allows(mark, set)) else {
            continue;
        };
        let images = changed_images(pod, set);
        if images.iter().any(|(_, native)| *native) && !restarts_sidecars(pod, world) {
            continue;
        }
        all.images.extend(images.into_iter().map(|(image, _)| image));
        all.marks.push(MarkChange {
            set: set.name.clone(),
            mark: mark.clone(),
            revision: set.revision.clone(),
        });
    }
    (!all.marks.is_empty()).then_some(all)
}

/// Whether a mark has a token for the newest revision of its set, and a running pod can be changed to that revision.
fn allows(mark: &SidecarMark, set: &Sidecars) -> bool {
    mark.allows(&set.revision) && mark.is_injected() && mark.shape == set.shape
}

/// The containers of a set whose image differs from the one in the pod: (name, new image), and whether the container
/// is a native sidecar.
fn changed_images(pod: &Pod, set: &Sidecars) -> Vec<((String, String), bool)> {
    let changed = set.images().filter(|wanted| {
        let mut containers = pod.containers.iter();
        let found = containers.find(|it| it.name == wanted.container);
        found.is_some_and(|it| it.image != wanted.image)
    });
    let changed = changed.map(|it| {
        let image = (it.container.to_owned(), it.image.to_owned());
        (image, it.native)
    });
    changed.collect()
}

/// Whether a pod's kubelet restarts a native sidecar whose image changes.
fn restarts_sidecars(pod: &Pod, world: &World) -> bool {
    let kubelet = pod.node.as_ref().and_then(|it| world.old_kubelets.get(it));
    kubelet.is_none_or(OldKubelet::restarts_sidecars)
}

/// Updates the sidecars of the pods that this plan does not update to the update revision.
pub(super) fn update_sidecars<'a>(
    scene: &Scene<'a>,
    due: &Due<'a>,
    budget: &mut Budget,
    updates: &mut Updates<'a>,
    hooks: &Hooks<'a>,
) -> Needs<'a> {
    let mut needs = Needs::default();
    for pod in scene.sizes.kept.iter().copied() {
        let is_excluded = updates.chosen.contains(&pod.uid())
            || scene.workload.replacement_requested(pod)
            || hooks.is_on_lost_node(pod)
            || is_unfinished(pod)
            || pod.revision().as_str().is_empty();
        let Some(change) = due.of_pod(pod).filter(|_| !is_excluded) else {
            continue;
        };
        let no_change = Cow::Owned(InPlaceChange::default());
        let goal = Goal::new(pod.revision(), no_change, Some(change));
        let possible = budget.take(scene, pod);
        let decision = change_in_place(scene, pod, &goal, possible, hooks);
        let decision = decision.into_decision(&mut needs);
        if decision.changes() {
            updates.changing.insert(pod.uid());
        }
        updates.decided.add(decision);
    }
    needs
}

/// The target of an update. `all` are the names of its revisions, joined, if it updates sidecars.
pub(super) fn target<'t>(revision: RevisionName<'t>, all: Option<&'t str>) -> Target<'t> {
    all.map_or(Target::Revision(revision), Target::WithSidecars)
}
