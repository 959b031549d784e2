//! What blocks a workload.

use crate::api::Reason;
use crate::observed::RevisionName;

/// Why updates or scaling cannot proceed; becomes condition FailedUpdate or FailedScale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
}

impl Blocked {
    /// Pods of a deleted revision cannot be recreated, and a build that the rollout has not proven yet must not
    /// replace them.
    pub fn by_deleted_revision(revision: RevisionName) -> Self {
        Self {
            reason: Reason::RevisionNotFound,
            message: format!(
                "ControllerRevision {revision} was deleted, so no pod can be created from it; apply its \
                 template again, or let the rollout reach every pod"
            ),
        }
    }
}

/// What can be blocked; condition FailedScale, FailedUpdate or FailedUpkeep reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// The number of pods.
    Scale,
    /// The revision of pods.
    Update,
    /// Neither: marks, clean-up, and the like.
    Upkeep,
}

/// What blocks a workload; becomes conditions.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    /// Scaling.
    pub scale: Option<Blocked>,
    /// Updating.
    pub update: Option<Blocked>,
    /// Writes on which neither depends. The workload may reach its spec without them.
    pub upkeep: Option<Blocked>,
}

impl Obstacles {
    /// Whether nothing keeps the workload from reaching its spec.
    pub(crate) fn is_none(&self) -> bool {
        self.scale.is_none() && self.update.is_none()
    }

    /// For each concern, the obstacle of `self`, or else that of `others`.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            scale: self.scale.or(others.scale),
            update: self.update.or(others.update),
            upkeep: self.upkeep.or(others.upkeep),
        }
    }
}
