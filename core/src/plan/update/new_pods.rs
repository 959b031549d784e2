//! Which revision a new pod is created at: one rule for both kinds of workload.

use crate::plan::decision::{Blocked, NewPod, Obstacles};
use crate::plan::update::Scene;
use crate::plan::update::acceptance::Acceptance;
use crate::plan::update::method::refused_in_place;
use crate::plan::world::Revision;

/// What a missing pod is to the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The partition keeps it at the stable revision.
    Kept,
    /// The rollout reaches it.
    Reached,
    /// It is one above replicas, for the rollout's sake alone.
    Surge,
}

/// What is created, and what is in the way of more.
pub struct Created {
    /// The pods.
    pub pods: Vec<NewPod>,
    /// What is in the way.
    pub obstacles: Obstacles,
    /// What the others wait for, where that ends by itself.
    pub waits_for: Option<Blocked>,
}

/// Decides it, pod by pod.
pub struct NewPods<'s, 'a> {
    scene: &'s Scene<'a>,
    /// What was found to be in the way.
    pub obstacles: Obstacles,
}

impl<'s, 'a> NewPods<'s, 'a> {
    /// Begins with a change that cannot be made in place: then new pods are created at the stable revision.
    pub fn new(scene: &'s Scene<'a>) -> Self {
        let obstacles = Obstacles {
            update: refused_in_place(scene),
            scale: None,
        };
        Self { scene, obstacles }
    }

    /// Of so many pods above replicas, those that may be created.
    pub fn surge(&self, wanted: i64) -> i64 {
        match self.scene.sizes.rollout.paused || self.obstacles.update.is_some() {
            true => 0,
            false => wanted,
        }
    }

    /// The revision of a pod at this place: the update revision where the rollout reaches, as soon as the
    /// API server accepts pods of it; else the stable one. None: it is not created now.
    pub fn revision_at(&mut self, place: Place) -> Option<&'a Revision> {
        let update = self.scene.revisions.update;
        if self.scene.sizes.stable == update.name() {
            return Some(update);
        }
        if place != Place::Kept && self.obstacles.update.is_none() {
            match self.scene.acceptance() {
                Acceptance::Accepted => return Some(update),
                Acceptance::Asked => return None,
                Acceptance::Refused { why, .. } => self.obstacles.update = Some(why.clone()),
            }
        }
        match place {
            Place::Surge => None,
            Place::Kept | Place::Reached => self.of_stable(),
        }
    }

    fn of_stable(&mut self) -> Option<&'a Revision> {
        let stable = self.scene.sizes.stable;
        let revision = self.scene.revisions.get(stable);
        if revision.is_none() {
            self.obstacles.scale = Some(Blocked::by_lost(stable));
        }
        revision
    }
}
