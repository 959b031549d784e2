//! Hot patches: a new image without a restart, on kubelets that support it.
//!
//! Other kubelets restart the container, which ends a match. So no second pod of a revision is patched until
//! the first one reports the new image in the same container.

use jiff::{SignedDuration, Timestamp};

use crate::api::Reason;
use crate::plan::decision::{Blocked, Decision};
use crate::plan::in_place::same_image;
use crate::plan::observed::{Container, ContainerChange, Pod, RevisionName};

/// Whether hot patches to a revision work, as far as its pods show.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// Unknown, because no pod is patched.
    None,
    /// Unknown, because the first pod is patched in this plan.
    Begun,
    /// Unknown: this pod is the first, and does not report the new image yet.
    Awaited(&'a Pod),
    /// The new image runs in the same container.
    Works,
    /// A container of this pod was restarted.
    Restarted(&'a Pod),
}

/// Whether this pod's status has yet to show its hot patch.
pub fn is_in_progress(pod: &Pod) -> bool {
    changes(pod).any(|(container, _)| !shows_image(container)) || has_outdated_status(pod)
}

/// Whether hot patches to this revision work, as far as these pods show.
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

/// How long a hot patch may take, including the pull of its image, before a condition reports that it is overdue.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// What to do about the first hot patch, for which all others wait. A condition reports it once it is overdue.
pub fn await_first(pod: &Pod, now: Timestamp) -> Decision {
    let Some(patched_at) = pod.record.as_ref().map(|record| record.patched_at) else {
        return Decision::Wait;
    };
    let due = patched_at.checked_add(OVERDUE_AFTER).unwrap_or(patched_at);
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

fn has_outdated_status(pod: &Pod) -> bool {
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
