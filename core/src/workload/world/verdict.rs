//! Whether the API server accepts pods of a revision.

use jiff::{SignedDuration, Timestamp};

use crate::write::{Deletion, DeletionReason};

/// How long a quota may still count a pod that is gone.
const QUOTA_DELAY: SignedDuration = SignedDuration::from_secs(15);

/// Whether the API server accepts pods of a revision.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A pod of the revision was created, or a strict server-side dry run succeeded.
    Accepted,
    /// A dry run or a creation was refused.
    Refused {
        /// The API server's message.
        message: String,
        /// When it was refused. The dry run is repeated some time later.
        at: Timestamp,
        /// Whether a pod was given up for a pod of the revision.
        replacement: Replacement,
    },
}

/// Whether a pod was given up for a pod of a revision that a quota refuses as an additional one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// None was.
    #[default]
    Untried,
    /// One was. The quota may count it for some seconds after it is gone: since when creations have been refused.
    Awaited(Option<Timestamp>),
    /// One was, in vain.
    Failed,
}

impl Verdict {
    /// The verdict after a dry run was refused.
    pub fn dry_run_refused(before: Option<&Self>, message: String, at: Timestamp) -> Self {
        Self::Refused { message, at, replacement: Self::replacement(before) }
    }

    /// The verdict after the creation of a pod was refused.
    pub fn creation_refused(before: Option<&Self>, message: String, at: Timestamp) -> Self {
        let replacement = match Self::replacement(before) {
            Replacement::Awaited(None) => Replacement::Awaited(Some(at)),
            Replacement::Awaited(Some(since)) if at.duration_since(since).abs() > QUOTA_DELAY => {
                Replacement::Failed
            }
            other => other,
        };
        Self::Refused { message, at, replacement }
    }

    /// Records that a pod was deleted, which may make room for a pod of the revision.
    pub fn pod_deleted(&mut self, deletion: &Deletion) {
        if let Self::Refused { replacement: replacement @ Replacement::Untried, .. } = self
            && deletion.reason == DeletionReason::Update
        {
            *replacement = Replacement::Awaited(None);
        }
    }

    fn replacement(verdict: Option<&Self>) -> Replacement {
        match verdict {
            Some(Self::Refused { replacement, .. }) => *replacement,
            Some(Self::Accepted) | None => Replacement::Untried,
        }
    }
}
