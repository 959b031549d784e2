//! Whether a pod is available, and whether it shows that its build works.

use jiff::{SignedDuration, Timestamp};

use crate::observed::{Gate, Pod};
use crate::workload::in_place::{hot_patch, is_in_progress};
use crate::workload::spec::Workload;

/// How long the containers of a build must run before the build can become stable. Most bad builds end sooner.
const PROOF: SignedDuration = SignedDuration::from_secs(3);

/// When the containers of a pod have run for long enough to show that its build works; None if they have. A container
/// of which it is not known when it started has.
pub(crate) fn proven_at(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let statuses = pod.containers.iter().filter_map(|it| it.status.as_ref());
    // A node's clock may be ahead.
    let started = statuses.filter_map(|it| it.started_at).filter(|at| *at <= now).max()?;
    started.checked_add(PROOF).ok().filter(|at| *at > now)
}

/// Whether a pod is available: it has been ready for minReadySeconds, it is not being changed, and none of its
/// containers has ended soon after its start and has not run for long since then.
pub(crate) fn is_available(pod: &Pod, workload: &Workload, now: Timestamp) -> bool {
    available_at(pod, workload).is_some_and(|at| at <= now)
}

/// When a pod becomes available if it stays ready; None if it is not ready, a change is in progress, or a container does
/// not run.
/// Without minReadySeconds, a ready pod is available whatever the operator's clock says: the kubelet dates the pod's
/// readiness by its own clock, which may be ahead.
pub(crate) fn available_at(pod: &Pod, workload: &Workload) -> Option<Timestamp> {
    if pod.terminating
        || is_in_progress(pod)
        || hot_patch::is_in_progress(pod)
        || pod.gate == Gate::Unset
    {
        return None;
    }
    let since = pod.ready_since?;
    let crashing_until = pod.crashing_until().unwrap_or(Timestamp::MIN);
    if crashing_until == Timestamp::MAX {
        return None;
    }
    let ready_at = match workload.min_ready.is_zero() {
        true => Timestamp::MIN,
        false => since.checked_add(workload.min_ready).ok()?,
    };
    Some(ready_at.max(crashing_until))
}
