//! The progress of a pod's in-place update, and the patch that makes the change.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::turns::{Changes, take_turns};
use super::{InPlaceChange, MarkChange, same_image};
use crate::api::{ContainerOrder, names};
use crate::guard::{InPlaceState, in_place_state};
use crate::observed::{
    Container, ContainerChange, ContainerStatus, Gate, InPlaceRecord, Pod, PodRef, RevisionName,
    Turn, mark_key,
};
use crate::sidecar_set::Changing;
use crate::write::InPlacePatch;

/// Whether a pod is being updated in place: from when its gate is closed until it is open again.
pub(crate) fn is_in_progress(pod: &Pod) -> bool {
    in_place_state(pod) != InPlaceState::Idle
}

/// Whether a pod was changed, and its update is not yet complete.
pub(crate) fn is_patched(pod: &Pod) -> bool {
    matches!(in_place_state(pod), InPlaceState::Patched(_))
}

/// The progress of a pod's in-place update, as far as a SidecarSet is concerned.
pub fn changing(pod: &Pod, set: &str) -> Changing {
    match in_place_state(pod) {
        InPlaceState::Idle => Changing::No,
        InPlaceState::Closed(_) => Changing::Begins,
        InPlaceState::Patched(begun) if begun.record().sidecars.contains_key(set) => {
            Changing::Sidecars
        }
        InPlaceState::Patched(_) => Changing::Others,
    }
}

/// How containers get a new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patching {
    /// They are restarted, in this order.
    InPlace(ContainerOrder),
    /// They get it while they keep running.
    Hot,
}

/// Keeps an annotation that the template no longer sets but guarded pods need, with the value that the guard needs.
fn keep_for_guard((key, value): &mut (String, Option<String>)) {
    let mut guard_annotations = names::AUTOSCALER_ANNOTATIONS.into_iter();
    if let (None, Some((_, kept))) = (&value, guard_annotations.find(|(name, _)| name == key)) {
        *value = Some(kept.to_owned());
    }
}

/// The patch that updates a pod to a revision, except for the images of containers whose turn comes later.
pub(crate) fn patch_of(
    pod: &Pod,
    revision: RevisionName,
    change: &InPlaceChange,
    now: Timestamp,
    patching: Patching,
) -> InPlacePatch {
    let (hot, order) = match patching {
        Patching::InPlace(order) => (false, order),
        Patching::Hot => (true, ContainerOrder::DisOrdered),
    };
    // A change that supersedes another one waits for the containers of both.
    let superseded = match in_place_state(pod) {
        InPlaceState::Patched(begun) if !hot => Some(begun.record()),
        _ => None,
    };
    let mut containers = superseded.map_or_else(Changes::new, |record| record.containers.clone());
    for (name, image) in &change.images {
        let Some(container) = pod.containers.iter().find(|it| it.name == *name) else {
            continue;
        };
        let previous = containers.remove(name).map(|it| *it);
        let change = changed_to(container, image, previous);
        containers.insert(name.clone(), Box::new(change));
    }
    for (name, resources) in &change.resources {
        let Some(container) = pod.containers.iter().find(|it| it.name == *name) else {
            continue;
        };
        let entry = containers.entry(name.clone()).or_insert_with(|| Box::new(resized(container)));
        entry.resources = Some(resources.into());
    }
    let mut taken = take_turns(pod, superseded, &mut containers, order, now);
    if hot {
        expect_restarts_of_running_only(pod, &mut containers, &mut taken.pod);
    }
    let mut labels = change.labels.clone();
    labels.push((names::REVISION_LABEL.to_owned(), Some(revision.to_string())));
    let mut annotations = change.annotations.clone();
    if pod.guarded_by().is_some() {
        annotations.iter_mut().for_each(keep_for_guard);
    }
    if !hot {
        if pod.hot_patched {
            annotations.push((names::HOT_PATCH_ANNOTATION.to_owned(), None));
        }
        if pod.postponed.is_some() {
            annotations.push((names::BCS_IN_PLACE_GRACE.to_owned(), None));
        }
        if pod.marked_deleting {
            annotations.push((names::DELETING_ANNOTATION.to_owned(), None));
        }
        if pod.waiting_since.is_some() {
            annotations.push((names::WAITING_SINCE_ANNOTATION.to_owned(), None));
        }
    }
    for MarkChange { set, mark, revision } in &change.marks {
        annotations.push((mark_key(set), Some(mark.updated_to(revision).text())));
    }
    let from = superseded.map_or_else(|| pod.revision().to_string(), |it| it.from.clone());
    let gate_closed_at = match pod.gate {
        Gate::Closed(since) if !hot => Some(since),
        _ => None,
    };
    let mut sidecars = superseded.map_or_else(BTreeMap::new, |record| record.sidecars.clone());
    let changed = change.marks.iter();
    sidecars.extend(changed.map(|it| (it.set.clone(), it.revision.clone())));
    let tokens = change.marks.iter();
    let tokens = tokens.map(|it| (mark_key(&it.set), it.mark.as_read()));
    InPlacePatch {
        pod: taken.pod,
        from_revision: pod.revision().to_string(),
        images: taken.images,
        labels,
        annotated: pod.annotated,
        annotations,
        tokens: tokens.collect(),
        record: InPlaceRecord {
            revision: revision.to_string(),
            from,
            gate_closed_at,
            patched_at: now,
            hot,
            done: false,
            containers,
            sidecars,
        },
    }
}

/// A hot patch of a container that does not run restarts nothing, and what starts later proves nothing. The container
/// may have started since it was observed, so the patch then requires that the pod has not changed.
fn expect_restarts_of_running_only(pod: &Pod, changes: &mut Changes, target: &mut PodRef) {
    let runs = |status: &ContainerStatus| status.running;
    let idle = pod.containers.iter();
    let idle = idle.filter(|it| !it.status.as_ref().is_some_and(runs));
    for container in idle {
        if let Some(change) = changes.get_mut(&container.name) {
            change.from_container_id.clear();
            *target = PodRef::unchanged(pod);
        }
    }
}

/// The record for a container whose image differs between the two revisions. `previous` is the record of a change that
/// this one supersedes.
fn changed_to(
    container: &Container,
    image: &str,
    previous: Option<ContainerChange>,
) -> ContainerChange {
    let has_image = container.image == image;
    let status = container.status.as_ref();
    // While an earlier change is in progress, the status may name the desired image only because that change has not
    // taken effect yet.
    let from_named = previous.is_none() && status.is_some_and(|status| same_image(image, status));
    let previous = previous.unwrap_or_default();
    if has_image && matches!(previous.turn, Turn::Next(_)) {
        // The container's turn had not come yet, and now it keeps its current image. The previous record still shows
        // whether it runs that image.
        return ContainerChange { turn: Turn::Set, ..previous };
    }
    ContainerChange {
        from_named: from_named && !has_image,
        resources: previous.resources,
        turn: match has_image {
            true => Turn::Set,
            false => Turn::Next(image.to_owned()),
        },
        ..container_change(container)
    }
}

/// The record for a container that keeps its image and gets new resources.
fn resized(container: &Container) -> ContainerChange {
    ContainerChange { from_unfinished: false, ..container_change(container) }
}

/// The record for a container whose image changes now.
pub(super) fn container_change(container: &Container) -> ContainerChange {
    let status = container.status.as_ref();
    ContainerChange {
        from_image: container.image.clone(),
        from_container_id: status.map(|it| it.container_id.clone()).unwrap_or_default(),
        from_restart_count: status.map_or(0, |it| it.restart_count),
        from_unfinished: !status.is_some_and(|it| it.ready && same_image(&container.image, it)),
        from_named: false,
        resources: None,
        turn: Turn::Set,
    }
}
