//! What a workload is held up by.

use crate::api::Reason;
use crate::plan::observed::RevisionName;

/// Why updates or scaling do not go on; becomes condition FailedUpdate or FailedScale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Why, in a word.
    pub reason: Reason,
    /// Sentence for people.
    pub message: String,
}

impl Blocked {
    /// Pods of a revision cannot be made again: a build that the rollout has not proven yet must
    /// not take their place.
    pub fn by_lost(revision: RevisionName) -> Self {
        Self {
            reason: Reason::RevisionNotFound,
            message: format!(
                "ControllerRevision {revision} was deleted, so no pod can be created from it; apply its \
                 template again, or let the rollout reach every pod"
            ),
        }
    }
}

/// What is held up: condition FailedScale or FailedUpdate shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// The number of pods.
    Scale,
    /// The revision of pods.
    Update,
}

/// Why things do not go on; becomes conditions.
#[derive(Debug, Default)]
pub struct Obstacles {
    /// Scaling.
    pub scale: Option<Blocked>,
    /// Updating.
    pub update: Option<Blocked>,
}

impl Obstacles {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.scale.is_none() && self.update.is_none()
    }

    /// These, and others where there are none.
    pub fn or(self, others: Self) -> Self {
        Self {
            scale: self.scale.or(others.scale),
            update: self.update.or(others.update),
        }
    }
}
