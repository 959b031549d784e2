//! What a Lease says, and for how long it has said so: the rules, without a client.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

/// A record unchanged for this long has expired.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);

/// What a candidate may do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// It is ours: renew it.
    Renew,
    /// It has no holder, or has expired: take it.
    Take,
    /// Another candidate holds it.
    Wait,
}

/// A lease as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Record {
    lease: Lease,
    /// Since when it has said the same, on our own clock.
    since: Instant,
}

impl Record {
    /// The lease as it is seen now, after `before` (if it was seen before).
    pub(super) fn seen(lease: Lease, before: Option<&Record>) -> Self {
        let same = before.filter(|it| it.lease.spec == lease.spec);
        let since = same.map_or_else(Instant::now, |it| it.since);
        Self { lease, since }
    }

    /// The lease is not there any more. What it said still holds: its holder may not know yet.
    pub(super) fn is_gone(&mut self) {
        self.lease.metadata = ObjectMeta::default();
    }

    /// The resourceVersion; None when it is not there any more.
    pub(super) fn version(&self) -> Option<&str> {
        self.lease.metadata.resource_version.as_deref()
    }

    /// When it expires, unless it changes.
    pub(super) fn expiry(&self) -> Instant {
        self.since + LEASE_DURATION
    }

    /// What the candidate of this identity may do.
    pub(super) fn action(&self, identity: &str) -> LeaseAction {
        let spec = self.lease.spec.as_ref();
        match spec.and_then(|spec| spec.holder_identity.as_deref()) {
            Some(holder) if holder == identity => LeaseAction::Renew,
            None | Some("") => LeaseAction::Take,
            Some(_) if Instant::now() >= self.expiry() => LeaseAction::Take,
            Some(_) => LeaseAction::Wait,
        }
    }

    /// The same, renewed.
    pub(super) fn renewed(&self) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        lease
    }

    /// The same, given back: the next leader need not wait.
    pub(super) fn given_back(&self) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        lease
    }
}

/// The lease as this identity takes it over.
pub(super) fn taken(before: Option<&Record>, identity: &str) -> Lease {
    let before = before.map(|it| it.lease.clone()).unwrap_or_default();
    let spec = before.spec.unwrap_or_default();
    let now = Some(MicroTime(Timestamp::now()));
    Lease {
        metadata: before.metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            acquire_time: now.clone(),
            renew_time: now,
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            lease_transitions: Some(spec.lease_transitions.map_or(0, |count| count + 1)),
            ..spec
        }),
    }
}
