//! Updates of sidecars in pods of other controllers. The SidecarSets make these updates themselves, without a hook or a
//! gate. They are recorded like updates of a workload's pods, and the same rule decides when they are complete.

use jiff::Timestamp;

use super::completion::{Completion, completion, is_observed};
use super::{InPlaceChange, MarkChange, Patching, patch_of};
use crate::api::ContainerOrder;
use crate::observed::{Gate, InPlaceRecord, Pod};
use crate::sidecar_set::{Changing, Sidecars};

/// The progress of the last update of a pod's sidecars, as far as a SidecarSet is concerned, and when to check again
/// even if the pod does not change until then.
pub fn progress_in_other_pod(
    pod: &Pod,
    set: &str,
    now: Timestamp,
) -> (Changing, Option<Timestamp>) {
    match incomplete(pod, now) {
        Some((record, wake)) if record.sidecars.contains_key(set) => (Changing::Sidecars, wake),
        Some((_, wake)) => (Changing::Others, wake),
        None if is_observed(pod) => (Changing::No, None),
        None => (Changing::Others, None),
    }
}

/// The record for updating a pod to a set's newest revision. It includes the containers of an earlier update that is
/// not complete. Other containers that keep their image are not restarted, and not recorded.
pub fn record_of_other_pod(pod: &Pod, set: &Sidecars, now: Timestamp) -> InPlaceRecord {
    let incomplete = incomplete(pod, now).map(|(record, _)| record);
    let is_recorded = |name: &str| incomplete.is_some_and(|it| it.containers.contains_key(name));
    let changed = set.images().filter(|wanted| {
        let mut containers = pod.containers.iter();
        let container = containers.find(|it| it.name == wanted.container);
        container.is_some_and(|it| it.image != wanted.image || is_recorded(&it.name))
    });
    let change = InPlaceChange {
        images: changed.map(|it| (it.container.to_owned(), it.image.to_owned())).collect(),
        marks: vec![MarkChange {
            set: set.name.clone(),
            mark: pod.sidecars.get(&set.name).cloned().unwrap_or_default(),
            revision: set.revision.clone(),
        }],
        ..InPlaceChange::default()
    };
    let ungated = Pod {
        gate: Gate::None,
        record: pod.record.clone().filter(|_| incomplete.is_some()),
        ..pod.clone()
    };
    let patching = Patching::InPlace(ContainerOrder::DisOrdered);
    patch_of(&ungated, pod.revision(), &change, now, patching).record
}

/// Whether a pod has all those containers of a set whose images can be changed in a running pod. If one is missing, the
/// pod's mark proves nothing.
pub fn has_sidecars(pod: &Pod, set: &Sidecars) -> bool {
    let mut wanted = set.images();
    wanted.all(|it| pod.containers.iter().any(|container| container.name == it.container))
}

/// The last update of a pod, if it is not complete, and when to check again.
fn incomplete(pod: &Pod, now: Timestamp) -> Option<(&InPlaceRecord, Option<Timestamp>)> {
    let record = pod.record.as_deref().filter(|it| !it.done)?;
    match completion(pod, record, now) {
        Completion::Done => None,
        Completion::Pending(wake) => Some((record, wake)),
        Completion::Stuck(_) => Some((record, None)),
    }
}
