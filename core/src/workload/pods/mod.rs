//! Which pods belong to the workload.

pub(super) mod availability;
pub(super) mod creation;
pub(super) mod index;

use crate::observed::Pod;
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::Write;

/// The pods of a workload.
pub(super) struct OwnPods<'a> {
    /// Pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// Adopts orphans that it selects, and releases pods that it no longer selects.
    pub writes: Vec<Write>,
}

/// Finds the pods that the workload controls, and adopts or releases others. An orphan that has ended is adopted only
/// if its name contains an ordinal, because then it must be replaced.
pub(super) fn own_pods<'a>(workload: &Workload, world: &'a World) -> OwnPods<'a> {
    let (mut pods, mut writes) = (Vec::new(), Vec::new());
    for pod in world.pods.iter().map(AsRef::as_ref) {
        let is_member = workload.is_member(pod);
        match &pod.controller {
            Some(uid) if *uid == workload.uid && is_member => pods.push(pod),
            Some(uid) if *uid == workload.uid && !pod.terminating => {
                writes.push(Write::release_pod(pod));
            }
            None if is_member && !pod.terminating && should_adopt(workload, pod) => {
                writes.push(Write::adopt_pod(pod));
            }
            _ => {}
        }
    }
    OwnPods { pods, writes }
}

/// Whether to adopt an orphan. If it has ended, it matters only if its name contains an ordinal, because it occupies
/// that ordinal.
fn should_adopt(workload: &Workload, orphan: &Pod) -> bool {
    !orphan.ended() || workload.identity.is_some()
}

/// The pods that have not ended and are not Terminating.
pub(super) fn active<'a>(own: &[&'a Pod]) -> Vec<&'a Pod> {
    let is_active = |pod: &&&Pod| !pod.terminating && !pod.ended();
    own.iter().filter(is_active).copied().collect()
}
