//! Which revision a new pod is created at: one rule for both kinds of workload.

use crate::plan::decision::{Blocked, Draft, Obstacles};
use crate::plan::observed::RevisionName;
use crate::plan::update::Scene;
use crate::plan::update::acceptance::{Acceptance, acceptance};
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

/// Decides it, pod by pod.
pub struct NewPods<'s, 'a> {
    scene: &'s Scene<'a>,
    /// The stable revision.
    stable: RevisionName<'s>,
    /// What was found to be in the way.
    pub obstacles: Obstacles,
}

impl<'s, 'a> NewPods<'s, 'a> {
    /// Begins with a change that cannot be made in place: then new pods are made at the stable revision.
    pub fn new(scene: &'s Scene<'a>, stable: RevisionName<'s>) -> Self {
        let obstacles = Obstacles {
            update: refused_in_place(scene.workload, scene.revisions, stable),
            scale: None,
        };
        Self {
            scene,
            stable,
            obstacles,
        }
    }

    /// Whether pods of two revisions are wanted.
    pub fn is_rollout(&self) -> bool {
        self.stable != self.scene.revisions.update.name()
    }

    /// Of so many pods above replicas, those that may be created.
    pub fn surge(&self, wanted: i64) -> i64 {
        match self.scene.rollout.paused || self.obstacles.update.is_some() {
            true => 0,
            false => wanted,
        }
    }

    /// The revision of a pod at this place: the update revision where the rollout reaches, as soon as the
    /// API server accepts pods of it; else the stable one. None: it is not created now.
    pub fn made_at(&mut self, place: Place, draft: &mut Draft) -> Option<&'s Revision> {
        if !self.is_rollout() {
            return Some(self.scene.revisions.update);
        }
        if place == Place::Kept {
            return self.of_stable();
        }
        if self.obstacles.update.is_none() {
            match acceptance(self.scene, draft) {
                Acceptance::Accepted => return Some(self.scene.revisions.update),
                Acceptance::Asked => return None,
                Acceptance::Refused(why) => self.obstacles.update = Some(why),
            }
        }
        match place {
            Place::Surge => None,
            Place::Kept | Place::Reached => self.of_stable(),
        }
    }

    fn of_stable(&mut self) -> Option<&'s Revision> {
        let stable = self.scene.revisions.get(self.stable);
        if stable.is_none() {
            self.obstacles.scale = Some(Blocked::by_lost(self.stable));
        }
        stable
    }
}
