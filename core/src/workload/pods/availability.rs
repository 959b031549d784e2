//! Whether a pod is available.

use jiff::Timestamp;

use crate::observed::{Gate, Pod};
use crate::workload::in_place::{hot_patch, is_in_progress};
use crate::workload::spec::Workload;

/// Whether a pod is available: it has been ready for minReadySeconds, and it is not being changed.
pub fn is_available(pod: &Pod, workload: &Workload, now: Timestamp) -> bool {
    available_at(pod, workload).is_some_and(|at| at <= now)
}

/// When a pod becomes available if it stays ready; None if it is not ready or a change is in progress.
/// Without minReadySeconds, a ready pod is available whatever the operator's clock says: the kubelet dates the pod's
/// readiness by its own clock, which may be ahead.
pub fn available_at(pod: &Pod, workload: &Workload) -> Option<Timestamp> {
    if pod.terminating
        || is_in_progress(pod)
        || hot_patch::is_in_progress(pod)
        || pod.gate == Gate::Unset
    {
        return None;
    }
    let since = pod.ready_since?;
    match workload.min_ready.is_zero() {
        true => Some(Timestamp::MIN),
        false => since.checked_add(workload.min_ready).ok(),
    }
}
