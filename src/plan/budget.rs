//! How many healthy pods may be touched: only while enough others stay available. A pod holds its
//! slot from the moment its hook starts, so a hook that never answers stops after maxUnavailable pods.

use super::Pod;
use super::pods::is_available;
use super::update::Scene;

/// Slots left for healthy pods.
pub struct Budget(i64);

impl Budget {
    /// Available pods beyond those that must stay available.
    pub fn of(scene: &Scene) -> Self {
        let Scene {
            workload,
            world,
            kept,
            ..
        } = scene;
        let available = kept
            .iter()
            .filter(|pod| is_available(pod, workload, world.now))
            .count() as i64;
        Self(available - (workload.replicas - workload.max_unavailable))
    }

    /// None, whatever is available.
    pub fn spent() -> Self {
        Self(0)
    }

    /// Takes a slot for a pod, if there is one; a pod that is not available needs none.
    pub fn take(&mut self, scene: &Scene, pod: &Pod) -> bool {
        if !is_available(pod, scene.workload, scene.world.now) {
            return true;
        }
        self.0 -= 1;
        self.0 >= 0
    }
}
