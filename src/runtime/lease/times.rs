//! The times of an election. All follow from the duration of the lease, in the proportions of client-go, so that no
//! combination lets two processes lead.

use std::time::Duration;

/// A shorter lease would be lost to any slow response of the API server.
pub(crate) const MIN_LEASE_DURATION: Duration = Duration::from_secs(5);
/// With a longer one, workloads would be unattended for too long after the leader's node has died.
pub(crate) const MAX_LEASE_DURATION: Duration = Duration::from_secs(60);

/// The times of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTimes(Duration);

impl LeaseTimes {
    pub(crate) fn of(duration: Duration) -> Self {
        Self(duration)
    }

    /// How long a lease is valid after its last renewal, as a field of a Lease.
    pub(super) fn seconds(self) -> Option<i32> {
        i32::try_from(self.0.as_secs()).ok()
    }

    /// How long the leader may write after a renewal.
    pub(super) fn renew_deadline(self) -> Duration {
        self.0 * 2 / 3
    }

    /// How long a write may be on its way after its process has stopped writing, before another one takes over.
    pub(super) fn grace(self) -> Duration {
        self.0 - self.renew_deadline()
    }

    /// The pause between attempts.
    pub(super) fn retry_period(self) -> Duration {
        self.0 * 2 / 15
    }

    /// When a lease of this duration expires for a candidate with these times. A holder may have been configured with a
    /// longer one, for instance during an upgrade.
    pub(super) fn expiry_of(self, seconds: Option<i32>) -> Duration {
        let seconds = seconds.and_then(|it| u64::try_from(it).ok());
        let of_holder = Duration::from_secs(seconds.unwrap_or(0)).min(MAX_LEASE_DURATION);
        self.0.max(of_holder)
    }
}
