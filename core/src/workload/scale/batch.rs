//! Creates the first pods of a workload in batches: at most one batch of pods may be unavailable at a time, so a build
//! that does not start costs only one batch.
//!
//! Scale-outs, replacements and updates are not limited by batches. The initial creation begins with the plan that
//! finds neither pods nor a status, and continues until all pods are available at the same time. The status records
//! that the initial creation is in progress, and is written before the first pod is created. So the pods of a workload
//! that was created by another operator, or that has lost its pods, are not created in batches.

use std::collections::HashSet;

use crate::api::Reason;
use crate::observed::{Pod, PodUid};
use crate::workload::decision::Blocked;
use crate::workload::pods::availability::is_available;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// The batch that is being created.
pub(crate) struct Batch<'a> {
    /// Whether the initial creation is in progress.
    pub in_progress: bool,
    /// The size of a batch; None if it is not limited.
    size: Option<i64>,
    /// The number of pods that have been created but are not available. Pods that are being deleted, or are to be
    /// deleted, do not count.
    unavailable: i64,
    /// The oldest of the unavailable pods.
    oldest: Option<&'a Pod>,
}

impl<'a> Batch<'a> {
    /// The current batch, computed from the workload's pods and those of them that are to be deleted.
    pub(crate) fn of(
        workload: &Workload,
        world: &World,
        own: &[&'a Pod],
        victims: &HashSet<PodUid>,
    ) -> Self {
        let in_progress = workload.progress.creating_in_batches || begins(workload, world);
        let is_unavailable = |pod: &&&Pod| {
            let stays = !pod.terminating && !victims.contains(&pod.uid());
            stays && !is_available(pod, workload, world.now)
        };
        let unavailable = own.iter().filter(is_unavailable);
        Self {
            in_progress,
            size: workload.create_batch.filter(|_| in_progress),
            unavailable: unavailable.clone().count() as i64,
            oldest: unavailable.min_by_key(|pod| (pod.created, pod.name.as_str())).copied(),
        }
    }

    /// How many of `wanted` pods may be created now.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let Some(size) = self.size else {
            return wanted;
        };
        let room = usize::try_from(size - self.unavailable).unwrap_or(0);
        room.min(wanted)
    }

    /// What the creation of further pods waits for.
    pub(crate) fn waits_for(&self) -> Option<Blocked> {
        let (size, unavailable) = (self.size?, self.unavailable);
        let awaited = match (self.oldest, unavailable) {
            (None, _) => String::new(),
            (Some(pod), 1) => format!(", and {} is not available yet", pod.name),
            (Some(oldest), _) => format!(
                ", and {unavailable} of them are not available yet, the oldest of which is {}",
                oldest.name
            ),
        };
        Some(Blocked {
            reason: Reason::CreatingInBatches,
            message: format!(
                "the first pods are created {size} at a time (scaleStrategy.createBatch){awaited}"
            ),
        })
    }
}

/// Whether the initial creation of pods in batches begins: the workload has neither pods nor a status.
fn begins(workload: &Workload, world: &World) -> bool {
    let has_no_status = workload.progress.update_revision.is_empty();
    workload.create_batch.is_some() && has_no_status && world.pods.is_empty()
}
