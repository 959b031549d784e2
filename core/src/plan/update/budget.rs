//! Invariant 2: how many healthy pods may be touched: only while enough others stay available. A pod holds its
//! slot from the moment its hook starts, so a hook that never answers stops after maxUnavailable pods.
//!
//! A pod that is ready, though not for minReadySeconds yet, may have players. It is one of those that
//! are unavailable, so it has a slot already when there are no more of them than maxUnavailable, and
//! is not touched when there are.

use crate::plan::observed::Pod;
use crate::plan::pods::availability::{available_at, is_available};
use crate::plan::update::Scene;

/// Available pods beyond those that must stay available; negative where there are too few.
pub struct Budget(i64);

impl Budget {
    /// The slots of a plan.
    pub fn of(scene: &Scene) -> Self {
        let Scene {
            workload,
            world,
            sizes,
            ..
        } = scene;
        let available = sizes
            .kept
            .iter()
            .filter(|pod| is_available(pod, workload, world.now))
            .count() as i64;
        Self(available - (workload.replicas - workload.max_unavailable))
    }

    /// No slot, whatever is available.
    pub fn spent() -> Self {
        Self(-1)
    }

    /// Takes a slot for a pod, if there is one; a pod that is not ready needs none.
    pub fn take(&mut self, scene: &Scene, pod: &Pod) -> bool {
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
