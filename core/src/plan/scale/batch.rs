//! The batches in which the first pods of a workload are created: no more than so many are created and not
//! yet available, so a build that does not come up costs one batch.
//!
//! Only its first pods: a scale-out, a replacement and an update are not held up. The first creation begins
//! with the plan that finds neither pods nor a status, and lasts until all pods were available at once. The
//! status says that it lasts, and is written before the first pod; so a workload that was taken over, or whose
//! pods were lost, has no batches.

use std::collections::HashSet;

use crate::api::Reason;
use crate::plan::decision::Blocked;
use crate::plan::observed::{Pod, PodUid};
use crate::plan::pods::availability::is_available;
use crate::plan::workload::Workload;
use crate::plan::world::World;

/// The batch that is being created.
pub struct Batch<'a> {
    /// Whether the first creation is not over.
    pub lasts: bool,
    /// Pods in a batch; None without a limit.
    size: Option<i64>,
    /// Pods that were created and are not available; one that is to be deleted is replaced by another.
    unavailable: i64,
    /// The oldest of them.
    oldest: Option<&'a Pod>,
}

impl<'a> Batch<'a> {
    /// The batch of these pods, of which some are to be deleted.
    pub fn of(
        workload: &Workload,
        world: &World,
        own: &[&'a Pod],
        victims: &HashSet<PodUid>,
    ) -> Self {
        let lasts = workload.progress.creating_in_batches || begins(workload, world);
        let is_unavailable = |pod: &&&Pod| {
            let stays = !pod.terminating && !victims.contains(&pod.uid());
            stays && !is_available(pod, workload, world.now)
        };
        let unavailable = own.iter().filter(is_unavailable);
        Self {
            lasts,
            size: workload.create_batch.filter(|_| lasts),
            unavailable: unavailable.clone().count() as i64,
            oldest: unavailable
                .min_by_key(|pod| (pod.created, pod.name.as_str()))
                .copied(),
        }
    }

    /// How many of so many pods may be created now.
    pub fn room(&self, wanted: usize) -> usize {
        let Some(size) = self.size else {
            return wanted;
        };
        let room = usize::try_from(size - self.unavailable).unwrap_or(0);
        room.min(wanted)
    }

    /// What pods wait for that are not created now.
    pub fn waits_for(&self) -> Option<Blocked> {
        let (size, unavailable) = (self.size?, self.unavailable);
        let message = match self.oldest {
            Some(pod) => format!(
                "the first pods are created {size} at a time (scaleStrategy.createBatch), and {unavailable} of them \
                 are not available yet, pod {} for the longest time",
                pod.name
            ),
            None => {
                format!("the first pods are created {size} at a time (scaleStrategy.createBatch)")
            }
        };
        Some(Blocked {
            reason: Reason::CreatingInBatches,
            message,
        })
    }
}

/// Whether this is the first sight of a workload whose pods are to be created in batches.
fn begins(workload: &Workload, world: &World) -> bool {
    let is_unknown = workload.progress.update_revision.is_empty();
    workload.create_batch.is_some() && is_unknown && world.pods.is_empty()
}
