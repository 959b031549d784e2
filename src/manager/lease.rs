//! Who leads: the rules of client-go's leader election, on a Lease.
//!
//! A holder that stops renewing is only taken to be gone when its record has not changed for a
//! whole lease duration on our own monotonic clock: nobody's wall clock is believed. Every write
//! carries the resourceVersion it was decided on, so that two who try at once cannot both win. The
//! leader may write until a while before others may take over: see [`Gate`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::gate::Gate;
use crate::apply::FIELD_MANAGER;

/// Name of the lease.
const NAME: &str = "gamekeeper";
/// A record unchanged for this long belongs to nobody.
const LEASE: Duration = Duration::from_secs(15);
/// After its last renewal the leader may write for this long.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between attempts.
const RETRY: Duration = Duration::from_secs(2);

/// Takes part in the election.
pub struct Elector {
    leases: Api<Lease>,
    identity: String,
    gate: Arc<Gate>,
    /// The lease as it was last seen, and since when it has not changed.
    seen: Option<(Lease, Instant)>,
}

/// What to do about a lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is ours: renew it.
    Renew,
    /// It is nobody's: take it.
    Take,
    /// It is somebody else's.
    Wait,
}

impl Elector {
    /// A candidate. The client must not be behind the gate.
    pub fn new(client: Client, namespace: &str, identity: String, gate: Arc<Gate>) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            identity,
            gate,
            seen: None,
        }
    }

    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        info!(identity = self.identity, "waiting for the lease");
        loop {
            match self.attempt().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => warn!(%error, "the lease cannot be looked at"),
            }
            sleep(RETRY).await;
        }
        info!("leading");
    }

    /// Keeps leading; returns when the lease is lost.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(RETRY).await;
            let asked = Instant::now();
            match self.attempt().await {
                Ok(true) => renewed = asked,
                Ok(false) => debug!("the lease is not renewed yet"),
                Err(error) => warn!(%error, "the lease is not renewed yet"),
            }
            if renewed.elapsed() > RENEW_DEADLINE {
                break;
            }
        }
        self.gate.close();
        warn!("the lease is lost");
    }

    /// Gives the lease back, so that the next leader need not wait.
    pub async fn release(&mut self) {
        self.gate.close();
        let Some((mut lease, _)) = self.seen.take() else {
            return;
        };
        if self.step(&lease, Instant::now()) != Step::Renew {
            return;
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        match self.write(lease).await {
            Ok(_) => info!("the lease is given back"),
            Err(error) => warn!(%error, "the lease is not given back; it runs out"),
        }
    }

    /// One attempt to take or renew it; tells whether it is ours.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let asked = Instant::now();
        let attempt = timeout(RENEW_DEADLINE / 2, self.try_once());
        let held = attempt
            .await
            .unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())));
        // After an error the next attempt reads the lease anew.
        if held.is_err()
            && let Some((lease, _)) = &mut self.seen
        {
            lease.metadata.resource_version = None;
        }
        if matches!(held, Ok(true)) {
            self.gate.open_until(asked + RENEW_DEADLINE);
        }
        held
    }

    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let fresh = |(lease, _): &&(Lease, Instant)| lease.metadata.resource_version.is_some();
        if let Some((lease, since)) = self.seen.as_ref().filter(fresh)
            && self.step(lease, *since) == Step::Renew
        {
            let lease = self.renewed(lease.clone());
            return self.put(lease).await;
        }
        let Some(lease) = self.leases.get_opt(NAME).await? else {
            let lease = self.taken(Lease::default());
            return self.put(lease).await;
        };
        let since = self.since(&lease);
        let step = self.step(&lease, since);
        debug!(?step, "looked at the lease");
        let wanted = match step {
            Step::Renew => Some(self.renewed(lease.clone())),
            Step::Take => Some(self.taken(lease.clone())),
            Step::Wait => None,
        };
        self.seen = Some((lease, since));
        match wanted {
            Some(lease) => self.put(lease).await,
            None => Ok(false),
        }
    }

    /// Since when the record is what it is.
    fn since(&self, lease: &Lease) -> Instant {
        match &self.seen {
            Some((seen, since)) if seen.spec == lease.spec => *since,
            _ => Instant::now(),
        }
    }

    fn step(&self, lease: &Lease, since: Instant) -> Step {
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        match holder {
            Some(holder) if holder == self.identity => Step::Renew,
            None | Some("") => Step::Take,
            Some(_) if since.elapsed() > LEASE => Step::Take,
            Some(_) => Step::Wait,
        }
    }

    fn renewed(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
        lease
    }

    fn taken(&self, mut lease: Lease) -> Lease {
        let before = lease.spec.unwrap_or_default();
        let now = Some(MicroTime(Timestamp::now()));
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            acquire_time: now.clone(),
            renew_time: now,
            lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
            lease_transitions: Some(before.lease_transitions.map_or(0, |count| count + 1)),
            ..before
        });
        lease.metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            ..lease.metadata
        };
        lease
    }

    /// Writes the lease; tells whether it is ours now.
    async fn put(&mut self, lease: Lease) -> Result<bool, kube::Error> {
        match self.write(lease).await {
            Ok(lease) => {
                self.seen = Some((lease, Instant::now()));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                debug!("somebody else wrote the lease");
                // The next attempt reads it anew.
                if let Some((seen, _)) = &mut self.seen {
                    seen.metadata.resource_version = None;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn write(&self, lease: Lease) -> Result<Lease, kube::Error> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match lease.metadata.resource_version {
            Some(_) => self.leases.replace(NAME, &params, &lease).await,
            None => self.leases.create(&params, &lease).await,
        }
    }
}

#[cfg(test)]
mod tests;
