//! When an object is reconciled again after a failed request.

use std::time::Duration;

use tokio::time::Instant;

use super::queue::Requeue;
use crate::apply::Refusal;

/// The time before a write that the API server has refused is repeated.
const REFUSED_INTERVAL: Duration = Duration::from_secs(300);

/// After a failed write that only a change of the object or of the cluster can make succeed.
pub(super) fn requeue_after(refusal: &Refusal) -> Requeue {
    match refusal {
        Refusal::Conflict(_) => Requeue::Conflict,
        Refusal::Busy { .. } | Refusal::Unavailable { .. } => retry(refusal),
        Refusal::NotFound(_)
        | Refusal::AlreadyExists(_)
        | Refusal::Rejected(_)
        | Refusal::NamespaceTerminating(_) => {
            Requeue::Settled(Some(Instant::now() + REFUSED_INTERVAL))
        }
    }
}

/// After a failed write, but no later than is already known.
pub(super) fn no_later(known: Requeue, refusal: &Refusal) -> Requeue {
    match (known, requeue_after(refusal)) {
        (Requeue::Settled(Some(known)), Requeue::Settled(Some(after))) => {
            Requeue::Settled(Some(known.min(after)))
        }
        (Requeue::Settled(_), after) => after,
        (known, _) => known,
    }
}

/// After a failed request that is repeated whatever the reason.
pub(super) fn retry(refusal: &Refusal) -> Requeue {
    match refusal {
        Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. } => Requeue::Retry(*after),
        _ => Requeue::Retry(None),
    }
}
