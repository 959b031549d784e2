//! The rules of leader election, without a client: the contents of a Lease, and how long it has been unchanged.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::times::LeaseTimes;

/// What a candidate may do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// The candidate holds it.
    Renew,
    /// It has no holder, or has expired.
    Acquire,
    /// Another candidate holds it.
    Wait,
}

/// A lease as last observed.
#[derive(Clone, Debug)]
pub(super) struct Record {
    lease: Lease,
    /// Since when it has been unchanged, on the candidate's own clock.
    since: Instant,
    /// When it expires, unless it changes.
    expiry: Instant,
}

impl Record {
    pub(super) fn new(lease: Lease, previous: Option<&Record>, times: LeaseTimes) -> Self {
        let same = previous.filter(|it| it.lease.spec == lease.spec);
        let since = same.map_or_else(Instant::now, |it| it.since);
        let spec = lease.spec.as_ref();
        let lasts = times.expiry_of(spec.and_then(|it| it.lease_duration_seconds));
        Self { lease, since, expiry: since + lasts }
    }

    /// Who holds it.
    pub(super) fn holder(&self) -> Option<&str> {
        self.lease.spec.as_ref()?.holder_identity.as_deref()
    }

    /// Makes it expire at this time, if that is earlier: its holder has ended.
    pub(super) fn expires_by(&mut self, time: Instant) {
        self.expiry = self.expiry.min(time);
    }

    /// Records that the lease was deleted. Its spec still counts, because the holder may not know of the deletion.
    pub(super) fn mark_deleted(&mut self) {
        self.lease.metadata = ObjectMeta::default();
    }

    /// The resourceVersion; None if the lease was deleted.
    pub(super) fn version(&self) -> Option<&str> {
        self.lease.metadata.resource_version.as_deref()
    }

    /// When it expires, unless it changes.
    pub(super) fn expiry(&self) -> Instant {
        self.expiry
    }

    pub(super) fn action(&self, identity: &str) -> LeaseAction {
        match self.holder() {
            Some(holder) if holder == identity => LeaseAction::Renew,
            None | Some("") => LeaseAction::Acquire,
            Some(_) if Instant::now() >= self.expiry() => LeaseAction::Acquire,
            Some(_) => LeaseAction::Wait,
        }
    }

    pub(super) fn renewed(&self, times: LeaseTimes) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        spec.lease_duration_seconds = times.seconds();
        lease
    }

    pub(super) fn released(&self) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        lease
    }
}

/// A new lease, or the previous one, held by this identity.
pub(super) fn acquired(previous: Option<&Record>, identity: &str, times: LeaseTimes) -> Lease {
    let previous = previous.map(|it| it.lease.clone()).unwrap_or_default();
    let spec = previous.spec.unwrap_or_default();
    let now = Some(MicroTime(Timestamp::now()));
    Lease {
        metadata: previous.metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            acquire_time: now.clone(),
            renew_time: now,
            lease_duration_seconds: times.seconds(),
            lease_transitions: Some(spec.lease_transitions.map_or(0, |count| count + 1)),
            ..spec
        }),
    }
}
