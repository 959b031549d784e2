//! Leader election with a Lease, following client-go's rules.
//!
//! A lease expires when it has not changed for its whole duration on the candidate's own monotonic clock: no wall
//! clock is trusted. Every write carries the resourceVersion it is based on, so only one of two candidates can
//! win. The leader stops writing some time before others may take the lease: see [`Fence`].
//!
//! A candidate watches the lease, so that it knows immediately when the lease is released, and exactly when it
//! expires. A process whose [`Predecessor`] in the same container was killed acquires its lease sooner, because that process
//! is known to have ended. A process that has lost the lease exits: its caches and plans may be older than another leader's writes.

mod predecessor;
mod record;
mod times;

use std::future::pending;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

pub(crate) use self::predecessor::Predecessor;
use self::record::{LeaseAction, Record, acquired};
pub(crate) use self::times::{LeaseTimes, MAX_LEASE_DURATION, MIN_LEASE_DURATION};
use super::fence::Fence;
use crate::runtime::jitter::random_fraction;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::causes::with_causes;

/// A candidate's pause is extended by up to this multiple of itself, so that candidates do not retry at the same
/// time.
const JITTER: f64 = 1.2;

/// A candidate, or the leader.
pub(crate) struct Elector {
    leases: Api<Lease>,
    /// Name of the lease.
    name: String,
    identity: String,
    fence: Arc<Fence>,
    predecessor: Option<Predecessor>,
    /// The lease as last observed.
    observed: Option<Record>,
    /// Whether the lease may have changed since it was observed: a write failed, or got no response.
    is_stale: bool,
    /// When the last successful renewal was started.
    renewed: Instant,
    times: LeaseTimes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Acquire,
    Renew,
}

impl Elector {
    /// The client must not be behind the fence, which is closed until the lease is held.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: String,
        identity: String,
        fence: Arc<Fence>,
        times: LeaseTimes,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name,
            identity,
            fence,
            predecessor: None,
            observed: None,
            is_stale: true,
            renewed: Instant::now(),
            times,
        }
    }

    /// Does not wait for the lease of a process that has ended.
    pub(crate) fn with_predecessor(self, predecessor: Option<Predecessor>) -> Self {
        Self { predecessor, ..self }
    }

    /// Observes the lease without acquiring it. A process that does so while it fills its caches need not wait for the expiry
    /// of an abandoned lease afterwards.
    pub(crate) async fn observe_only(&mut self) {
        loop {
            match self.read().await {
                Ok(()) if self.action() != LeaseAction::Wait => pending().await,
                Ok(()) => {}
                Err(error) => debug!(error = %with_causes(&error), "cannot read the lease yet"),
            }
            self.wait_for_next_attempt().await;
        }
    }

    /// Acquires the lease, as soon as no other process holds it.
    pub(crate) async fn acquire(&mut self) {
        info!(identity = self.identity, "waiting for the lease");
        loop {
            match self.attempt(Goal::Acquire).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if is_conflict(&error) => {
                    debug!("another replica acquired the lease first")
                }
                Err(error) => warn!(error = %with_causes(&error), "cannot acquire the lease"),
            }
            self.wait_for_next_attempt().await;
        }
        info!("leading");
    }

    /// Renews the lease until it is lost.
    pub(crate) async fn hold(&mut self) {
        while let Ok(true) =
            timeout_at(self.renewed + self.times.renew_deadline(), self.renew()).await
        {}
        self.fence.close();
        warn!("lost the lease");
    }

    /// Renews the lease once, and retries after errors. Returns false if this process no longer holds it, or was frozen
    /// for too long.
    async fn renew(&mut self) -> bool {
        loop {
            sleep(self.times.retry_period()).await;
            // A process that was frozen for too long must not continue, even if no other process leads now.
            if self.renewed.elapsed() >= self.times.renew_deadline() {
                return false;
            }
            match self.attempt(Goal::Renew).await {
                Ok(held) => return held,
                Err(error) => warn!(error = %with_causes(&error), "cannot renew the lease yet"),
            }
        }
    }

    /// Releases the lease, so that the next leader need not wait for its expiry.
    pub(crate) async fn release(&mut self) {
        self.fence.close();
        match timeout(self.times.retry_period(), self.try_release()).await {
            Ok(Ok(true)) => info!("released the lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                warn!(error = %with_causes(&error), "cannot release the lease; it will expire");
            }
            Err(_) => warn!("the lease was not released in time; it will expire"),
        }
    }

    async fn try_release(&mut self) -> Result<bool, kube::Error> {
        loop {
            // An aborted renewal may have been written.
            self.read().await?;
            let Some(record) = self.observed.as_ref().filter(|it| it.version().is_some()) else {
                return Ok(false);
            };
            if record.action(&self.identity) != LeaseAction::Renew {
                return Ok(false);
            }
            match self.write(record.released()).await {
                Err(error) if is_conflict(&error) => {}
                written => return written.map(|()| true),
            }
        }
    }

    /// Tries once to acquire or renew the lease; returns whether this process holds it.
    async fn attempt(&mut self, goal: Goal) -> Result<bool, kube::Error> {
        let started = Instant::now();
        let attempt = timeout(self.times.renew_deadline() / 2, self.try_once(goal)).await;
        let held = attempt.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))?;
        if held {
            self.renewed = started;
            self.fence.open_until(started + self.times.renew_deadline());
        }
        Ok(held)
    }

    async fn try_once(&mut self, goal: Goal) -> Result<bool, kube::Error> {
        if self.is_stale || self.action() != LeaseAction::Renew {
            self.read().await?;
        }
        let lease = match (self.action(), &self.observed, goal) {
            (LeaseAction::Renew, Some(record), _) => record.renewed(self.times),
            (LeaseAction::Acquire, record, Goal::Acquire) => {
                acquired(record.as_ref(), &self.identity, self.times)
            }
            _ => return Ok(false),
        };
        self.write(lease).await?;
        Ok(true)
    }

    fn action(&self) -> LeaseAction {
        let record = self.observed.as_ref();
        record.map_or(LeaseAction::Acquire, |it| it.action(&self.identity))
    }

    /// Reads the lease from the API server.
    async fn read(&mut self) -> Result<(), kube::Error> {
        self.is_stale = true;
        match self.leases.get_opt(&self.name).await? {
            Some(lease) => self.observe(lease),
            None => {
                if let Some(record) = &mut self.observed {
                    record.mark_deleted();
                }
            }
        }
        self.is_stale = false;
        Ok(())
    }

    fn observe(&mut self, lease: Lease) {
        let mut record = Record::new(lease, self.observed.as_ref(), self.times);
        if let Some(predecessor) = &self.predecessor
            && record.holder() == Some(&predecessor.identity)
        {
            record.expires_by(predecessor.ended + self.times.grace());
        }
        self.observed = Some(record);
    }

    async fn write(&mut self, mut lease: Lease) -> Result<(), kube::Error> {
        lease.metadata.name = Some(self.name.clone());
        let params =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.is_stale = true;
        let written = match lease.metadata.resource_version {
            Some(_) => self.leases.replace(&self.name, &params, &lease).await?,
            None => self.leases.create(&params, &lease).await?,
        };
        self.is_stale = false;
        self.observe(written);
        Ok(())
    }

    /// Waits for the pause between attempts, or less if the lease is released or expires first. The time of a watch
    /// counts toward the pause.
    async fn wait_for_next_attempt(&mut self) {
        let pause_end =
            Instant::now() + self.times.retry_period().mul_f64(1.0 + JITTER * random_fraction());
        if self.action() == LeaseAction::Wait
            && let Err(error) = self.watch().await
        {
            debug!(%error, "polling the lease instead of watching it");
        }
        let next = match (self.action(), &self.observed) {
            (LeaseAction::Wait, Some(record)) => pause_end.min(record.expiry()),
            (LeaseAction::Acquire, Some(_)) if !self.is_stale => return,
            _ => pause_end,
        };
        sleep_until(next).await;
    }

    /// Watches the lease while another candidate holds it.
    async fn watch(&mut self) -> Result<(), kube::Error> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let leases = self.leases.clone();
        let Some(record) = &self.observed else {
            return Ok(());
        };
        let version = record.version().unwrap_or_default().to_owned();
        let Ok(events) = timeout_at(record.expiry(), leases.watch(&params, &version)).await else {
            return Ok(());
        };
        let mut events = events?.boxed();
        while let (LeaseAction::Wait, Some(record)) = (self.action(), &self.observed) {
            match timeout_at(record.expiry(), events.next()).await {
                Ok(Some(event)) => match event? {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => self.observe(lease),
                    _ => return Ok(()),
                },
                Ok(None) => return Ok(()),
                // The lease has expired, which ends the loop.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests;
