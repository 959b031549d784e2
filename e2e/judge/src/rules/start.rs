//! A write with which the operator starts to delete or change a pod.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::guard::is_on_lost_node;
use crate::names;
use crate::object::{
    annotation, containers, controller, gate_is_closed, has_gate, is_terminating, point, revision,
    template_metadata, uid,
};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, Workload, World};

/// The start of a deletion or change of a pod.
pub(crate) struct Start<'a> {
    /// What is done.
    pub(crate) act: Act,
    /// The pod before the write.
    pub(crate) pod: &'a Pod,
    /// Uid of its workload.
    pub(crate) owner: &'a str,
    /// The versions of the workload on which the write may be based.
    pub(crate) versions: &'a [Version],
}

/// What is done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is deleted.
    Delete,
    /// Its readiness gate is closed, which starts an in-place update.
    CloseGate,
    /// Images, resources, or labels and annotations of the template are changed.
    Change,
    /// Images are changed without a restart.
    HotPatch,
}

impl Display for Act {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Act::Delete => "deletion",
            Act::CloseGate => "closing of the readiness gate",
            Act::Change => "change",
            Act::HotPatch => "hot patch",
        })
    }
}

/// The purpose of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// There are more pods than replicas.
    ScaleIn,
    /// The pod is named in podsToDelete, is to be moved, or is on a lost node.
    Replace,
    /// The pod is replaced by one of another revision.
    Update,
    /// The pod's workload is being deleted.
    Removal,
}

impl<'a> Start<'a> {
    /// Reads a write; None unless it starts to delete or change an active pod of a workload.
    pub(crate) fn of(world: &'a World, write: &Write) -> Option<Self> {
        Self::of_any(world, write).filter(|start| start.pod.is_active())
    }

    /// Like `of`, but includes pods that are Failed or Succeeded, because their containers may still run.
    pub(crate) fn of_any(world: &'a World, write: &Write) -> Option<Self> {
        if write.resource != Resource::Pod {
            return None;
        }
        let pod = world.pods.get(&write.name)?;
        let (owner, workload): (_, &Workload) = world.workload_of(&pod.object)?;
        if is_terminating(&pod.object) {
            return None;
        }
        let act = match &write.after {
            _ if write.verb == "delete" => Act::Delete,
            // A patch by a kubernetes metric of a hook, as its template specifies.
            Some(after) if write.is_by_hook() && containers(&pod.object) == containers(after) => {
                return None;
            }
            Some(after) => act(&pod.object, after)?,
            None => return None,
        };
        Some(Start { act, pod, owner, versions: workload.seen_at(write.received) })
    }

    /// Whether it is certain that no container of the pod runs: none runs in the stored version, and the write
    /// would fail on any other version.
    pub(crate) fn is_on_idle_pod(&self, write: &Write) -> bool {
        !self.pod.is_running() && write.has_version_precondition
    }

    /// Whether a write continues an ordered update with the next container of a pod that has no readiness gate and
    /// whose label already has the new revision. Such a pod may be ready in between. With the gate, an update lasts
    /// until the gate opens.
    pub(crate) fn continues(&self, write: &Write, version: &Version) -> bool {
        let new_revision = write.after.as_deref().map(revision);
        self.act == Act::Change
            && version.updates_in_order()
            && !has_gate(&self.pod.object)
            && new_revision == Some(self.pod.revision())
    }

    /// The purpose of a deletion, for this version.
    pub(crate) fn purpose(&self, world: &World, version: &Version) -> Purpose {
        if is_terminating(&version.object) {
            return Purpose::Removal;
        }
        let must_be_replaced = annotation(&self.pod.object, names::MOVE).is_some()
            || is_on_lost_node(&self.pod.object);
        if version.is_stateful_set() {
            return match version.is_regular(name(&self.pod.object)) {
                true if must_be_replaced => Purpose::Replace,
                true => Purpose::Update,
                false => Purpose::ScaleIn,
            };
        }
        let active: Vec<&Pod> = world.pods_of(self.owner).filter(|p| p.is_active()).collect();
        if count(&active) > version.replicas() + surge(&active, version) {
            Purpose::ScaleIn
        } else if must_be_replaced || version.is_in_pods_to_delete(name(&self.pod.object)) {
            Purpose::Replace
        } else {
            Purpose::Update
        }
    }
}

fn act(before: &Value, after: &Value) -> Option<Act> {
    let is_adopted = controller(before).is_none();
    let is_released = controller(after).is_none();
    if is_adopted || is_released || is_terminating(before) {
        return None;
    }
    if gate_is_closed(after) && !gate_is_closed(before) {
        return Some(Act::CloseGate);
    }
    let is_changed = containers(before) != containers(after)
        || template_metadata(before) != template_metadata(after);
    let is_hot = annotation(after, names::HOT_PATCH) == Some("true");
    let act = if is_hot { Act::HotPatch } else { Act::Change };
    is_changed.then_some(act)
}

/// How many surge pods an update may have: none while it is paused.
fn surge(active: &[&Pod], version: &Version) -> i64 {
    let is_in_place = version.strategy() == "InplaceUpdate" && version.max_unavailable() > 0;
    let has_no_surge = ["HotPatchUpdate", "OnDelete"].contains(&version.strategy());
    if !version.is_rolling() || version.is_paused() || is_in_place || has_no_surge {
        return 0;
    }
    let old = active.iter().filter(|pod| pod.revision() != version.update_revision());
    let kept = (version.replicas() - version.max_updated()).max(0);
    let excess = (old.count() as i64 - kept).max(0);
    version.max_surge().min(excess)
}

/// Whether a pod waits for its removal: for a scale-in, or because it is named in podsToDelete. A pod that is to be
/// moved is not a victim: it stays available until its hook allows its deletion. The exception, when there are too
/// many pods, is [`moved_victims`].
pub(crate) fn is_victim(world: &World, pod: &Pod) -> bool {
    !is_to_be_moved(pod) && waits_for_removal(world, pod)
}

fn is_to_be_moved(pod: &Pod) -> bool {
    annotation(&pod.object, names::MOVE).is_some()
}

fn waits_for_removal(world: &World, pod: &Pod) -> bool {
    world.runs.values().any(|run| {
        let object = &run.object;
        run.end.is_none()
            && point(object) == "PreDelete"
            && annotation(object, names::RUN_POD_UID) == Some(uid(&pod.object))
            && annotation(object, names::RUN_TARGET).unwrap_or_default().is_empty()
    })
}

/// How many of these available pods are to be moved but are also victims of a scale-in: if there are too many pods,
/// those that are to be moved are deleted first, beginning with unavailable ones.
pub(crate) fn moved_victims(
    world: &World,
    write: &Write,
    owner: &str,
    version: &Version,
    available: &[&Pod],
) -> i64 {
    let is_moved = |pod: &&Pod| is_to_be_moved(pod) && waits_for_removal(world, pod);
    let most = version.replicas() + version.max_surge();
    if version.is_stateful_set() {
        let is_surplus = |pod: &&&Pod| {
            let ordinal = version.ordinal(name(&pod.object));
            is_moved(pod) && !ordinal.is_some_and(|it| version.is_among(it, most))
        };
        return available.iter().filter(is_surplus).count() as i64;
    }
    let active: Vec<&Pod> = world.pods_of(owner).filter(|it| it.is_active()).collect();
    let chosen = active.iter().filter(|pod| is_victim(world, pod)).count() as i64;
    let moved = active.iter().copied().filter(is_moved);
    let is_unavailable = |pod: &&Pod| !pod.may_be_available(write.received, version.min_ready());
    let unavailable = moved.filter(is_unavailable).count() as i64;
    let surplus = count(&active) - most - chosen - unavailable;
    let moved = available.iter().copied().filter(is_moved).count() as i64;
    surplus.clamp(0, moved)
}

/// The number of pods.
pub(crate) fn count(pods: &[&Pod]) -> i64 {
    pods.len() as i64
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    crate::object::text(object, "/metadata/name")
}

/// The new revision of a pod, if a write changes it.
pub(crate) fn new_revision<'a>(before: Option<&Value>, after: &'a Value) -> Option<&'a str> {
    let new = revision(after);
    (before.map(revision) != Some(new) && !new.is_empty()).then_some(new)
}
