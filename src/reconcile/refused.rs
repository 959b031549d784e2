//! When an object is reconciled again after a failed request.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::queue::Requeue;
use crate::runtime::request::Refusal;

/// How long to wait before a refused write is repeated.
const REFUSED_INTERVAL: Duration = Duration::from_secs(300);

/// When the object is reconciled again after a failed write. If the write was rejected, it can
/// succeed only once the object or the cluster has changed, so it is not repeated soon.
pub(super) fn requeue_after(refusal: &Refusal) -> Requeue {
    match refusal {
        Refusal::Conflict(_) | Refusal::Late => Requeue::Conflict,
        Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. } => Requeue::Retry(*after),
        Refusal::NotFound(_)
        | Refusal::AlreadyExists(_)
        | Refusal::Rejected(_)
        | Refusal::NamespaceTerminating(_) => {
            Requeue::Settled(Some(Instant::now() + REFUSED_INTERVAL))
        }
    }
}
