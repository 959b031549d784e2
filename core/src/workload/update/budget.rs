//! Invariant 2: healthy pods are touched only while enough others stay available. A pod holds its slot from the
//! moment its hook starts, so if hooks never finish, the update stops after maxUnavailable pods.
//!
//! A pod that has been ready for less than minReadySeconds may have players. It counts as unavailable, so it needs no
//! additional slot. But it is not touched while more than maxUnavailable pods are unavailable.

use crate::observed::Pod;
use crate::workload::pods::availability::{available_at, is_available};
use crate::workload::update::Scene;

/// Number of available pods beyond those that must stay available; negative if there are too few.
pub(crate) struct Budget(i64);

impl Budget {
    /// The budget of a plan.
    pub(crate) fn of(scene: &Scene) -> Self {
        let Scene { workload, world, sizes, .. } = scene;
        let available =
            sizes.kept.iter().filter(|pod| is_available(pod, workload, world.now)).count() as i64;
        Self(available - (workload.replicas - workload.max_unavailable))
    }

    /// A budget without slots, however many pods are available.
    pub(crate) fn spent() -> Self {
        Self(-1)
    }

    /// Takes a slot for a pod; false if there is none. A pod that is not ready needs no slot.
    pub(crate) fn take(&mut self, scene: &Scene, pod: &Pod) -> bool {
        match available_at(pod, scene.workload) {
            None => true,
            Some(at) if at > scene.world.now => self.0 >= 0,
            Some(_) if self.0 > 0 => {
                self.0 -= 1;
                debug_assert!(self.0 >= 0, "invariant 2");
                true
            }
            Some(_) => false,
        }
    }
}
