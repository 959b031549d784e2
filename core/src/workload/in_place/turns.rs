//! Which container's turn it is, if the containers of a pod get their new images one after the other.
//!
//! This is still a single update, with one hook, one grace period, and a gate that stays closed throughout. The first
//! patch contains everything except the images of later containers. Those are in the record, so that any operator can
//! continue.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::completion::{RunsNewImage, is_observed, runs_new_image};
use super::state::container_change;
use crate::api::ContainerOrder;
use crate::guard::Begun;
use crate::observed::{
    Container, ContainerChange, ContainerStatus, InPlaceRecord, Pod, PodRef, Turn,
};
use crate::workload::decision::Decision;
use crate::write::{ImageChange, InPlacePatch, Write};

/// The records of changed containers, by name.
pub(super) type Changes = BTreeMap<String, Box<ContainerChange>>;

/// The turns that one patch takes.
pub(super) struct Taken {
    /// The images that the patch sets.
    pub images: Vec<ImageChange>,
    /// The pod to change. Its resource version is set if an image may only be changed while an earlier container is
    /// ready.
    pub pod: PodRef,
    /// When a container that others wait for will be assumed to be updated, if that is only a matter of time.
    wake: Option<Timestamp>,
}

/// Sets the images of the containers whose turn it is: native sidecars come first, as when a kubelet starts a pod,
/// then the others in the order of the template. If a container is to get yet another image, no other container waits
/// for its current one.
pub(super) fn take_turns(
    pod: &Pod,
    record: Option<&InPlaceRecord>,
    changes: &mut Changes,
    order: ContainerOrder,
    now: Timestamp,
) -> Taken {
    let mut taken = Taken { images: Vec::new(), pod: PodRef::of(pod), wake: None };
    let in_order = order != ContainerOrder::DisOrdered;
    let mut containers: Vec<_> = pod.containers.iter().enumerate().collect();
    containers.sort_by_key(|(_, container)| (!container.init, container.index));
    let mut is_next_allowed = true;
    let mut follows_ready = false;
    for (index, container) in containers {
        let Some(change) = changes.get_mut(&container.name) else {
            continue;
        };
        match &change.turn {
            Turn::Passed => {}
            Turn::Next(image) if is_next_allowed => {
                taken.images.push(ImageChange {
                    init: container.init,
                    index: container.index,
                    name: container.name.clone(),
                    from: container.image.clone(),
                    to: image.clone(),
                });
                **change = ContainerChange {
                    from_named: change.from_named,
                    resources: change.resources.take(),
                    ..container_change(container)
                };
                is_next_allowed = !in_order;
                if follows_ready {
                    taken.pod = PodRef::unchanged(pod);
                }
            }
            Turn::Next(_) => {}
            Turn::Set => {
                let is_awaited = in_order && has_new_image(container, change);
                let Some(record) = record.filter(|_| is_awaited) else {
                    continue;
                };
                match passes(pod, record, index, change, order, now) {
                    RunsNewImage::Yes => {
                        change.turn = Turn::Passed;
                        follows_ready = order == ContainerOrder::OrderedReady;
                    }
                    RunsNewImage::No => is_next_allowed = false,
                    RunsNewImage::From(at) => {
                        is_next_allowed = false;
                        taken.wake = Some(at);
                    }
                }
            }
        }
    }
    taken
}

/// Whether the update that the record is about restarts a container: whether it gets, or has got, a new image.
pub(crate) fn is_restarted(container: &Container, change: &ContainerChange) -> bool {
    matches!(change.turn, Turn::Next(_)) || has_new_image(container, change)
}

/// Whether a container of the record got a new image, and not only new resources.
fn has_new_image(container: &Container, change: &ContainerChange) -> bool {
    change.from_unfinished || change.from_image != container.image
}

/// Whether the turn passes from a container to the next one.
fn passes(
    pod: &Pod,
    record: &InPlaceRecord,
    index: usize,
    change: &ContainerChange,
    order: ContainerOrder,
    now: Timestamp,
) -> RunsNewImage {
    let is_enough =
        |status: &&ContainerStatus| order != ContainerOrder::OrderedReady || status.ready;
    let status = pod.containers[index].status.as_ref().filter(is_enough);
    match status {
        Some(status) if is_observed(pod) => runs_new_image(pod, record, index, status, change, now),
        _ => RunsNewImage::No,
    }
}

/// The next action for the containers of a changed pod that wait for their turn; None if no container waits.
pub(crate) fn next_turn(begun: Begun, order: ContainerOrder, now: Timestamp) -> Option<Decision> {
    let (pod, record) = (begun.pod(), begun.record());
    let mut changes = record.containers.values();
    if !changes.any(|change| matches!(change.turn, Turn::Next(_))) {
        return None;
    }
    let mut containers = record.containers.clone();
    let taken = take_turns(pod, Some(record), &mut containers, order, now);
    if taken.images.is_empty() {
        return Some(taken.wake.map_or(Decision::Wait, Decision::Until));
    }
    let patch = InPlacePatch {
        pod: taken.pod,
        from_revision: pod.revision().to_string(),
        images: taken.images,
        labels: Vec::new(),
        annotated: pod.annotated,
        annotations: Vec::new(),
        tokens: Vec::new(),
        record: InPlaceRecord { patched_at: now, containers, ..record.clone() },
    };
    Some(Decision::Do(Write::continue_in_place(begun, patch)))
}
