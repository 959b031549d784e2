//! Invariant 13: updates of sidecars in place. A SidecarSet allots tokens to pods (see [`crate::plan::sidecars`]),
//! and the pods' workload acts on them: after the same hook, within the same budget and with the same gate as for its
//! own updates.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::change::{Goal, change_in_place};
use super::{Scene, Updates};
use crate::plan::decision::Decision;
use crate::plan::hooks::{Hooks, SIDECARS, Target};
use crate::plan::in_place::{Change, MarkChange, is_unfinished};
use crate::plan::observed::{Pod, PodUid, RevisionName, SidecarMark};
use crate::plan::sidecars::Sidecars;
use crate::plan::update::budget::Budget;
use crate::plan::workload::UpdateType;
use crate::plan::world::World;

/// Changes of the sidecars of a pod that its tokens allow.
#[derive(Debug, Default)]
pub(super) struct SidecarChange {
    /// Containers with a new image: (name, image).
    images: Vec<(String, String)>,
    marks: Vec<MarkChange>,
}

impl SidecarChange {
    /// Adds these changes to a change of the template.
    pub fn add_to(&self, change: &mut Change) {
        change.images.extend(self.images.iter().cloned());
        change.marks.extend(self.marks.iter().cloned());
    }

    /// The revisions to which the sets' containers are updated, by the name of the set.
    pub fn revisions(&self) -> BTreeMap<String, String> {
        let marks = self.marks.iter();
        marks
            .map(|it| (it.set.clone(), it.revision.clone()))
            .collect()
    }
}

/// The pods whose sidecars may be updated now.
pub(super) struct Due<'a>(HashMap<PodUid<'a>, SidecarChange>);

impl<'a> Due<'a> {
    /// Finds them. There are none with OnDelete, where a pod is updated when a user deletes it, or with hot patches,
    /// because the containers of a hot-patched pod must not be restarted.
    pub fn of(scene: &Scene<'a>) -> Self {
        let Scene {
            workload,
            world,
            sizes,
            ..
        } = scene;
        let restarts = matches!(
            workload.update,
            UpdateType::RollingUpdate | UpdateType::InplaceUpdate
        );
        if !restarts || sizes.rollout.paused || world.sidecars.is_empty() {
            return Self(HashMap::new());
        }
        let pods = sizes.kept.iter().filter(|pod| !pod.hot_patched);
        let due = pods.filter_map(|pod| Some((pod.uid(), change_of(pod, world)?)));
        Self(due.collect())
    }

    /// The change of a pod's sidecars.
    pub fn of_pod(&self, pod: &'a Pod) -> Option<&SidecarChange> {
        self.0.get(&pod.uid())
    }
}

/// The change of a pod's sidecars that its tokens allow; None if there is none.
fn change_of(pod: &Pod, world: &World) -> Option<SidecarChange> {
    let mut all = SidecarChange::default();
    for set in &world.sidecars {
        let mark = pod.sidecars.get(&set.name);
        let Some(mark) = mark.filter(|mark| allows(mark, set)) else {
            continue;
        };
        let images = changed_images(pod, set);
        if images.iter().any(|(_, native)| *native) && has_old_kubelet(pod, world) {
            continue;
        }
        all.images
            .extend(images.into_iter().map(|(image, _)| image));
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
    let has_token = mark.token.as_ref() == Some(&set.revision);
    has_token && mark.is_injected() && mark.shape == set.shape
}

/// The containers of a set whose image differs from the pod's: (name, image), and whether it is a native sidecar.
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

fn has_old_kubelet(pod: &Pod, world: &World) -> bool {
    let mut node = pod.node.iter();
    node.any(|node| world.old_kubelets.contains_key(node))
}

/// Updates the sidecars of pods that are not updated to the update revision now.
pub(super) fn update_sidecars<'a>(
    scene: &Scene<'a>,
    due: &Due<'a>,
    budget: &mut Budget,
    updates: &mut Updates<'a>,
    hooks: &mut Hooks<'a>,
) {
    for pod in scene.sizes.kept.iter().copied() {
        let is_excluded = updates.chosen.contains(&pod.uid())
            || scene.workload.is_to_replace(pod)
            || hooks.is_on_lost_node(pod)
            || is_unfinished(pod)
            || pod.revision().as_str().is_empty();
        let Some(change) = due.of_pod(pod).filter(|_| !is_excluded) else {
            continue;
        };
        let none = Cow::Owned(Change::default());
        let goal = Goal::new(pod.revision(), none, Some(change));
        let possible = budget.take(scene, pod);
        let decision = change_in_place(scene, pod, &goal, possible, hooks);
        if !matches!(decision, Decision::Wait) {
            updates.changing.insert(pod.uid());
        }
        updates.decided.add(decision);
    }
}

/// The names of the revisions that a pod has after an update, for the identity of its hook: that of the template, and
/// those of the sets that are updated. None if no set is updated.
pub(super) fn names_of_all(
    revision: RevisionName,
    sidecars: &BTreeMap<String, String>,
) -> Option<String> {
    let sets: String = sidecars
        .values()
        .map(|it| format!("{SIDECARS}{it}"))
        .collect();
    (!sets.is_empty()).then(|| format!("{revision}{sets}"))
}

/// What an update leads to, given [`names_of_all`].
pub(super) fn target<'t>(revision: RevisionName<'t>, all: Option<&'t str>) -> Target<'t> {
    all.map_or(Target::Revision(revision), Target::WithSidecars)
}
