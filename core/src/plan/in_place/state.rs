//! How far a pod is in an in-place update, and the patch that makes the change.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Change, same_image};
use crate::api::names;
use crate::plan::decision::{ImageChange, InPlacePatch, PodRef};
use crate::plan::observed::{Container, ContainerChange, Gate, InPlaceRecord, Pod, RevisionName};

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InPlaceState<'a> {
    /// No update is in progress.
    Idle,
    /// The gate is closed since then, but nothing has been changed yet.
    Closed(Timestamp),
    /// The pod was changed; the record says how.
    Patched(&'a InPlaceRecord),
}

/// How far a pod is. A gate that is False belongs to an update, whatever closed it: the update is
/// followed to its end, or the gate is opened again.
pub fn state(pod: &Pod) -> InPlaceState<'_> {
    let record = pod.record.as_deref().filter(|record| !record.hot);
    match (pod.gate, record) {
        (Gate::Closed(since), Some(record)) if record.gate_closed_at == Some(since) => {
            InPlaceState::Patched(record)
        }
        (Gate::Closed(since), _) => InPlaceState::Closed(since),
        (Gate::None, Some(record)) if !record.done => InPlaceState::Patched(record),
        _ => InPlaceState::Idle,
    }
}

/// Whether a pod is being updated in place: from the gate closed until it is open again.
pub fn is_in_progress(pod: &Pod) -> bool {
    state(pod) != InPlaceState::Idle
}

/// What becomes of the containers whose image changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patching {
    /// They are restarted.
    InPlace,
    /// They take the image while they run.
    Hot,
}

/// The one patch that brings a pod to a revision.
pub fn patch_of(
    pod: &Pod,
    revision: RevisionName,
    change: &Change,
    now: Timestamp,
    patching: Patching,
) -> InPlacePatch {
    let hot = patching == Patching::Hot;
    // A change that overtakes another one waits for the containers of both.
    let mut containers = match state(pod) {
        InPlaceState::Patched(record) if !hot => record.containers.clone(),
        _ => BTreeMap::new(),
    };
    let mut images = Vec::new();
    for (name, to) in &change.images {
        let Some(container) = pod.containers.iter().find(|it| it.name == *name) else {
            continue;
        };
        containers.insert(name.clone(), Box::new(container_change(container)));
        if container.image != *to {
            images.push(ImageChange {
                init: container.init,
                index: container.index,
                name: name.clone(),
                from: container.image.clone(),
                to: to.clone(),
            });
        }
    }
    for (name, resources) in &change.resources {
        let Some(container) = pod.containers.iter().find(|it| it.name == *name) else {
            continue;
        };
        let resized_only = || {
            Box::new(ContainerChange {
                from_unfinished: false,
                ..container_change(container)
            })
        };
        let entry = containers.entry(name.clone()).or_insert_with(resized_only);
        entry.resources = Some(resources.clone());
    }
    let mut labels = change.labels.clone();
    labels.push((names::REVISION_LABEL.to_owned(), Some(revision.to_string())));
    let mut annotations = change.annotations.clone();
    if hot {
        annotations.push((
            names::HOT_PATCH_ANNOTATION.to_owned(),
            Some("true".to_owned()),
        ));
    } else {
        if pod.hot_patched {
            annotations.push((names::HOT_PATCH_ANNOTATION.to_owned(), None));
        }
        if pod.marked_deleting {
            annotations.push((names::DELETING_ANNOTATION.to_owned(), None));
        }
    }
    let gate_closed_at = match pod.gate {
        Gate::Closed(since) if !hot => Some(since),
        _ => None,
    };
    InPlacePatch {
        pod: PodRef::of(pod),
        from_revision: pod.revision().to_string(),
        images,
        labels,
        annotated: pod.annotated,
        annotations,
        record: InPlaceRecord {
            revision: revision.to_string(),
            gate_closed_at,
            patched_at: now,
            hot,
            done: false,
            containers,
        },
    }
}

fn container_change(container: &Container) -> ContainerChange {
    let status = container.status.as_ref();
    ContainerChange {
        from_image: container.image.clone(),
        from_container_id: status.map(|it| it.container_id.clone()).unwrap_or_default(),
        from_restart_count: status.map_or(0, |it| it.restart_count),
        from_unfinished: !status.is_some_and(|it| it.ready && same_image(&container.image, it)),
        resources: None,
    }
}
