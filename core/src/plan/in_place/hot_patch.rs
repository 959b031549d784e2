//! Hot patches: another image without a restart, for kubelets that can.
//!
//! A kubelet that cannot restarts the container, which ends a match. So until one pod of a revision
//! has shown the new image in the same container, no second one is patched.

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::plan::decision::{Blocked, Decision};
use crate::plan::in_place::same_image;
use crate::plan::observed::{Container, ContainerChange, Pod, RevisionName};

/// What the hot-patched pods of a revision have shown.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// Nothing, because none is patched.
    None,
    /// Nothing, because the first one is patched in this plan.
    Begun,
    /// Nothing yet: this pod is the first.
    Awaited(&'a Pod),
    /// The new image runs in the same container.
    Works,
    /// A container of this pod was restarted.
    Restarted(&'a Pod),
}

/// Whether a hot patch of this pod has not shown yet.
pub fn is_in_progress(pod: &Pod) -> bool {
    changes(pod).any(|(container, _)| !shows_image(container)) || is_behind(pod)
}

/// What the pods of a revision have shown.
pub fn proof<'a>(pods: &[&'a Pod], revision: RevisionName) -> Proof<'a> {
    let mut proof = Proof::None;
    let patched = |pod: &&Pod| {
        let record = pod.record.as_ref();
        record.is_some_and(|record| record.hot && record.revision == revision.as_str())
    };
    for pod in pods.iter().copied().filter(patched) {
        if changes(pod).any(|(container, change)| is_restarted(container, change)) {
            proof = Proof::Restarted(pod);
        } else if is_in_progress(pod) {
            if let Proof::None = proof {
                proof = Proof::Awaited(pod);
            }
        } else if changes(pod).next().is_some() {
            return Proof::Works;
        }
    }
    proof
}

/// How long a hot patch may take before users are told: an image has to be pulled.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The first hot patch, which all others wait for: when it has not shown for long, users are told.
pub fn overdue(pod: &Pod, now: Timestamp) -> Decision {
    let Some(patched_at) = pod.record.as_ref().map(|record| record.patched_at) else {
        return Decision::Wait;
    };
    let due = patched_at.checked_add(PATIENCE).unwrap_or(patched_at);
    if due > now {
        return Decision::Until(due);
    }
    Decision::Blocked(Blocked {
        reason: Reason::HotPatchNotShown,
        message: format!(
            "pod {} was hot-patched at {patched_at} and does not report the new image yet; no other pod is patched before \
             it does; check that its node can pull the image and that its kubelet supports hot patches",
            pod.name
        ),
    })
}

fn changes(pod: &Pod) -> impl Iterator<Item = (&Container, &ContainerChange)> {
    let record = pod
        .record
        .as_deref()
        .filter(|record| record.hot && record.revision == pod.revision().as_str());
    pod.containers.iter().filter_map(move |container| {
        let change = record?.containers.get(&container.name)?;
        Some((container, change.as_ref()))
    })
}

fn is_behind(pod: &Pod) -> bool {
    changes(pod).next().is_some()
        && pod.observed_generation != 0
        && pod.observed_generation != pod.generation
}

fn shows_image(container: &Container) -> bool {
    container
        .status
        .as_ref()
        .is_some_and(|status| same_image(&container.image, status))
}

fn is_restarted(container: &Container, change: &ContainerChange) -> bool {
    container.status.as_ref().is_some_and(|status| {
        status.restart_count > change.from_restart_count
            || (!change.from_container_id.is_empty()
                && !status.container_id.is_empty()
                && status.container_id != change.from_container_id)
    })
}
