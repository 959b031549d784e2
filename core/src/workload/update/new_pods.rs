//! Which revision a new pod is created at: one rule for both kinds of workload.

use crate::workload::decision::{Blocked, Obstacles};
use crate::workload::scale::slots::Place;
use crate::workload::update::Scene;
use crate::workload::update::acceptance::Acceptance;
use crate::workload::world::Revision;
use crate::write::NewPod;

/// The pods to create, and what prevents more.
pub(crate) struct Created {
    /// The pods.
    pub pods: Vec<NewPod>,
    /// What prevents more.
    pub obstacles: Obstacles,
    /// What the remaining pods wait for, if no user action is needed.
    pub waits_for: Option<Blocked>,
}

/// Decides the revision of each new pod.
pub(crate) struct NewPods<'s, 'a> {
    scene: &'s Scene<'a>,
    /// What prevents pods from being created or updated.
    pub obstacles: Obstacles,
}

impl<'s, 'a> NewPods<'s, 'a> {
    /// Checks whether the change is refused because it cannot be made in place. If so, new pods are created at the
    /// stable revision.
    pub(crate) fn new(scene: &'s Scene<'a>) -> Self {
        let update = scene.refused_in_place().cloned();
        Self { scene, obstacles: Obstacles { update, ..Obstacles::default() } }
    }

    /// How many surge pods may be created. While the rollout cannot continue, only those that replace pods whose
    /// replacement was requested.
    pub(crate) fn surge(&self) -> i64 {
        let sizes = self.scene.sizes;
        match sizes.rollout.paused || self.obstacles.update.is_some() {
            true => sizes.replacement_surge,
            false => sizes.surge,
        }
    }

    /// The revision of a new pod in this role. It is the update revision if the rollout reaches the pod and the API
    /// server accepts pods of that revision, else the stable revision. None if the pod is not created now.
    pub(crate) fn revision_at(&mut self, place: Place) -> Option<&'a Revision> {
        let revision = self.choose(place)?;
        match self.scene.blocked_by_sidecars(revision) {
            Some(why) => {
                self.obstacles.scale = Some(why);
                None
            }
            None => Some(revision),
        }
    }

    fn choose(&mut self, place: Place) -> Option<&'a Revision> {
        let update = self.scene.revisions.update;
        if self.scene.sizes.stable == update.name() {
            return Some(update);
        }
        if place != Place::Kept && self.obstacles.update.is_none() {
            match self.scene.acceptance() {
                Acceptance::Accepted => return Some(update),
                // A quota counts pods until they are gone.
                Acceptance::OnTrial { has_room: true } => {
                    let is_leaving = self.scene.own.iter().any(|pod| pod.terminating);
                    return (!is_leaving).then_some(update);
                }
                // A pod is given up first: see `Updater::recreate`.
                Acceptance::OnTrial { has_room: false } => {}
                Acceptance::Unknown => return None,
                Acceptance::Refused { why, .. } => self.obstacles.update = Some(why.clone()),
            }
        }
        match place {
            Place::Surge => None,
            Place::Kept | Place::Reached => self.stable_revision(),
        }
    }

    fn stable_revision(&mut self) -> Option<&'a Revision> {
        let stable = self.scene.sizes.stable;
        let revision = self.scene.revisions.get(stable);
        if revision.is_none() {
            self.obstacles.scale = Some(Blocked::by_deleted_revision(stable));
        }
        revision
    }
}
