//! Whose turn it is, where the containers of a pod get their new images one after the other.
//!
//! It is one update all the same: one hook, one grace period, and a gate that stays closed throughout.
//! The first patch carries everything but the images of later containers. These stand in the record,
//! so that any operator can go on.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::completion::{RunsNewImage, is_observed, runs_new_image};
use super::state::container_change;
use crate::api::ContainerOrder;
use crate::plan::decision::{Action, Decision, ImageChange, InPlacePatch, PodRef};
use crate::plan::observed::{
    Container, ContainerChange, ContainerStatus, InPlaceRecord, Pod, Turn,
};

/// The containers that a change is about, by name.
pub type Changes = BTreeMap<String, Box<ContainerChange>>;

/// The turns that a patch takes.
pub struct Taken {
    /// The images that it sets.
    pub images: Vec<ImageChange>,
    /// The pod that takes them: unchanged, where one of them follows a container that must still be ready.
    pub pod: PodRef,
    /// When a container that the others wait for is taken for updated, if that is a question of time.
    wake: Option<Timestamp>,
}

/// Gives containers their images as their turn comes: native sidecars first, as kubelets start them, then
/// the others as the template lists them. One whose image changes again is not waited for.
pub fn take_turns(
    pod: &Pod,
    record: Option<&InPlaceRecord>,
    changes: &mut Changes,
    order: ContainerOrder,
    now: Timestamp,
) -> Taken {
    let mut taken = Taken {
        images: Vec::new(),
        pod: PodRef::of(pod),
        wake: None,
    };
    let in_order = order != ContainerOrder::DisOrdered;
    let mut containers: Vec<_> = pod.containers.iter().enumerate().collect();
    containers.sort_by_key(|(_, container)| (!container.init, container.index));
    let mut is_free = true;
    let mut follows_ready = false;
    for (index, container) in containers {
        let Some(change) = changes.get_mut(&container.name) else {
            continue;
        };
        match &change.turn {
            Turn::Passed => {}
            Turn::Next(image) if is_free => {
                taken.images.push(ImageChange {
                    init: container.init,
                    index: container.index,
                    name: container.name.clone(),
                    from: container.image.clone(),
                    to: image.clone(),
                });
                **change = ContainerChange {
                    resources: change.resources.take(),
                    ..container_change(container)
                };
                is_free = !in_order;
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
                    RunsNewImage::No => is_free = false,
                    RunsNewImage::From(at) => {
                        is_free = false;
                        taken.wake = Some(at);
                    }
                }
            }
        }
    }
    taken
}

/// Whether a container of the record got another image, and not only other resources.
fn has_new_image(container: &Container, change: &ContainerChange) -> bool {
    change.from_unfinished || change.from_image != container.image
}

/// Whether a container is so far that the turn passes to the next one.
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

/// What is to be done about containers of a changed pod that wait for their turn; None when none does.
pub fn next_turn(
    pod: &Pod,
    record: &InPlaceRecord,
    order: ContainerOrder,
    now: Timestamp,
) -> Option<Decision> {
    let mut waiting = record.containers.values();
    if !waiting.any(|change| matches!(change.turn, Turn::Next(_))) {
        return None;
    }
    let mut containers = record.containers.clone();
    let taken = take_turns(pod, Some(record), &mut containers, order, now);
    if taken.images.is_empty() {
        return Some(taken.wake.map_or(Decision::Wait, Decision::Until));
    }
    Some(Decision::Do(Action::PatchInPlace(InPlacePatch {
        pod: taken.pod,
        from_revision: pod.revision().to_string(),
        images: taken.images,
        labels: Vec::new(),
        annotated: pod.annotated,
        annotations: Vec::new(),
        record: InPlaceRecord {
            patched_at: now,
            containers,
            ..record.clone()
        },
    })))
}
