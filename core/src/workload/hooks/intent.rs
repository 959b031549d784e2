//! What a rule intends to do with a pod: the action that a hook must allow.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::observed::{RevisionName, SIDECARS};
use crate::workload::decision::Concern;
use crate::write::{Attempt, Rehearsal};

/// What an action on a pod leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The pod is deleted for good, or replaced with one of the same revision.
    Removal,
    /// The pod is updated to this revision.
    Revision(RevisionName<'a>),
    /// The pod is updated to a revision, or stays at it, and its sidecars are updated. Contains the names of the
    /// pod's revision and of the SidecarSets' revisions.
    WithSidecars(&'a str),
}

impl<'a> Target<'a> {
    /// The value of the annotation on a HookRun.
    pub(crate) fn annotation(self) -> &'a str {
        match self {
            Self::Removal => "",
            Self::Revision(name) => name.as_str(),
            Self::WithSidecars(names) => names,
        }
    }

    /// Whether the target in an annotation updates only the sidecars of a pod at this revision.
    pub(super) fn is_for_sidecars(annotation: &str, revision: RevisionName) -> bool {
        let rest = annotation.strip_prefix(revision.as_str());
        rest.is_some_and(|rest| rest.starts_with(SIDECARS))
    }

    /// What a refusal of the pod's deletion blocks.
    pub(super) fn attempt(self) -> Attempt {
        match self {
            Self::Removal => Attempt::RemovePod,
            Self::Revision(_) | Self::WithSidecars(_) => Attempt::RecreatePod,
        }
    }

    /// What is blocked when the hook cannot be created.
    pub(super) fn concern(self) -> Concern {
        match self {
            Self::Removal => Concern::Scale,
            Self::Revision(_) | Self::WithSidecars(_) => Concern::Update,
        }
    }
}

/// A target that outlives the rule that named it.
pub(super) enum OwnedTarget {
    Removal,
    Revision(String),
    WithSidecars(String),
}

impl OwnedTarget {
    pub(super) fn target(&self) -> Target<'_> {
        match self {
            Self::Removal => Target::Removal,
            Self::Revision(name) => Target::Revision(RevisionName::of(name)),
            Self::WithSidecars(names) => Target::WithSidecars(names),
        }
    }
}

impl From<Target<'_>> for OwnedTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Removal => Self::Removal,
            Target::Revision(name) => Self::Revision(name.to_string()),
            Target::WithSidecars(names) => Self::WithSidecars(names.to_owned()),
        }
    }
}

/// An action on a pod, as far as its hook is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent<'a> {
    /// The hook point that guards the action.
    pub point: HookPoint,
    /// What the action leads to.
    pub target: Target<'a>,
    /// Containers whose image changes.
    pub modified: &'a [String],
    /// Containers that the action changes in place, as in the annotation on a HookRun; None for any other action. A
    /// success counts only for these containers, and never for a deletion.
    pub changes: Option<&'a str>,
    /// Whether the action is possible now, apart from its hook. Only then is a hook started.
    pub possible: bool,
    /// The dry runs of an update in place that must succeed before its hook is started. Those of a deletion follow from
    /// `deletes`.
    pub rehearsal: Option<&'a Rehearsal>,
    /// Whether the pod is deleted. Only then does the deadline of a guarded pod apply.
    pub deletes: bool,
    /// The time at which a success must be valid: now, or when the gate was closed.
    pub at: Timestamp,
}

impl Intent<'static> {
    /// The intent to delete a pod for good, or to replace it with one of the same revision.
    pub(crate) fn removal(now: Timestamp) -> Self {
        Self {
            point: HookPoint::PreDelete,
            target: Target::Removal,
            modified: &[],
            changes: None,
            possible: true,
            rehearsal: None,
            deletes: true,
            at: now,
        }
    }
}
