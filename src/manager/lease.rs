//! Leader election on a Lease, by the rules of client-go.
//!
//! A holder that stops renewing is only taken to be gone when its record has not changed for a
//! whole lease duration on our own monotonic clock: no wall clock is trusted. Every write
//! carries the resourceVersion it was decided on, so that two candidates that try at once cannot both win. The
//! leader may write until a while before others may take over: see [`Fence`].
//!
//! A candidate watches the lease, so that it knows at once when it is given back, and to the moment
//! when it is over. A process that has lost the lease ends: others may have led meanwhile, and what
//! this process knows and intends is from before.

mod record;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use self::record::{LeaseAction, Record, taken};
use super::fence::Fence;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::causes::with_causes;

/// After its last renewal the leader may write for this long.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between attempts.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// A candidate's pause is longer by up to so many times itself, so that candidates that failed at once do
/// not go on trying at once.
const JITTER: f64 = 1.2;

/// Takes part in the election.
pub(super) struct Elector {
    leases: Api<Lease>,
    /// Name of the lease.
    name: String,
    identity: String,
    fence: Arc<Fence>,
    /// The lease as it was last seen.
    seen: Option<Record>,
    /// Whether it may have changed without our knowing: a write was not answered, or refused.
    unsure: bool,
    /// When the last renewal that succeeded was begun.
    renewed: Instant,
}

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To lead from now on.
    Take,
    /// To go on leading.
    Keep,
}

impl Elector {
    /// A candidate for the lease of this name. The client must not be behind the fence.
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: String,
        identity: String,
        fence: Arc<Fence>,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name,
            identity,
            fence,
            seen: None,
            unsure: true,
            renewed: Instant::now(),
        }
    }

    pub(super) async fn acquire(&mut self) {
        info!(identity = self.identity, "waiting for the lease");
        loop {
            match self.attempt(Goal::Take).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if is_conflict(&error) => {
                    debug!("another replica acquired the lease first")
                }
                Err(error) => warn!(error = %with_causes(&error), "cannot read the lease"),
            }
            self.wait_for_next_attempt().await;
        }
        info!("leading");
    }

    /// Keeps leading; returns when the lease is lost.
    pub(super) async fn hold(&mut self) {
        while let Ok(true) = timeout_at(self.renewed + RENEW_DEADLINE, self.keep()).await {}
        self.fence.close();
        warn!("lost the lease");
    }

    /// Renews it once, however many attempts that takes; false when it is not ours any more.
    async fn keep(&mut self) -> bool {
        loop {
            sleep(RETRY_PERIOD).await;
            // A process that was stopped for long must not go on, even if no other leads now.
            if self.renewed.elapsed() >= RENEW_DEADLINE {
                return false;
            }
            match self.attempt(Goal::Keep).await {
                Ok(held) => return held,
                Err(error) => warn!(error = %with_causes(&error), "cannot renew the lease yet"),
            }
        }
    }

    /// Gives the lease back, so that the next leader need not wait.
    pub(super) async fn release(&mut self) {
        self.fence.close();
        match timeout(RETRY_PERIOD, self.give_back()).await {
            Ok(Ok(true)) => info!("released the lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                warn!(error = %with_causes(&error), "cannot release the lease; it expires");
            }
            Err(_) => warn!("the lease was not released in time; it expires"),
        }
    }

    async fn give_back(&mut self) -> Result<bool, kube::Error> {
        loop {
            // A renewal that was broken off may have been written all the same.
            self.read().await?;
            let Some(record) = self.seen.as_ref().filter(|it| it.version().is_some()) else {
                return Ok(false);
            };
            if record.action(&self.identity) != LeaseAction::Renew {
                return Ok(false);
            }
            match self.write(record.given_back()).await {
                Err(error) if is_conflict(&error) => {}
                written => return written.map(|()| true),
            }
        }
    }

    /// One attempt to take or renew it; tells whether it is ours.
    async fn attempt(&mut self, goal: Goal) -> Result<bool, kube::Error> {
        let asked = Instant::now();
        let attempt = timeout(RENEW_DEADLINE / 2, self.try_once(goal)).await;
        let held = attempt.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))?;
        if held {
            self.renewed = asked;
            self.fence.open_until(asked + RENEW_DEADLINE);
        }
        Ok(held)
    }

    async fn try_once(&mut self, goal: Goal) -> Result<bool, kube::Error> {
        if self.unsure || self.action() != LeaseAction::Renew {
            self.read().await?;
        }
        let lease = match (self.action(), &self.seen, goal) {
            (LeaseAction::Renew, Some(record), _) => record.renewed(),
            (LeaseAction::Take, record, Goal::Take) => taken(record.as_ref(), &self.identity),
            _ => return Ok(false),
        };
        self.write(lease).await?;
        Ok(true)
    }

    fn action(&self) -> LeaseAction {
        let record = self.seen.as_ref();
        record.map_or(LeaseAction::Take, |record| record.action(&self.identity))
    }

    /// Reads the lease, not from a cache.
    async fn read(&mut self) -> Result<(), kube::Error> {
        self.unsure = true;
        match self.leases.get_opt(&self.name).await? {
            Some(lease) => self.see(lease),
            None => {
                if let Some(record) = &mut self.seen {
                    record.is_gone();
                }
            }
        }
        self.unsure = false;
        Ok(())
    }

    fn see(&mut self, lease: Lease) {
        self.seen = Some(Record::seen(lease, self.seen.as_ref()));
    }

    async fn write(&mut self, mut lease: Lease) -> Result<(), kube::Error> {
        lease.metadata.name = Some(self.name.clone());
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.unsure = true;
        let written = match lease.metadata.resource_version {
            Some(_) => self.leases.replace(&self.name, &params, &lease).await?,
            None => self.leases.create(&params, &lease).await?,
        };
        self.unsure = false;
        self.see(written);
        Ok(())
    }

    /// Waits until another attempt may succeed: the lease was given back or has expired. A candidate that
    /// has watched it for longer than a pause, until the server ended the watch, tries again at once.
    async fn wait_for_next_attempt(&mut self) {
        let pause = Instant::now() + RETRY_PERIOD.mul_f64(1.0 + JITTER * random_fraction());
        if self.action() == LeaseAction::Wait
            && let Err(error) = self.watch().await
        {
            debug!(%error, "polling the lease instead of watching it");
        }
        let next = match (self.action(), &self.seen) {
            (LeaseAction::Wait, Some(record)) => pause.min(record.expiry()),
            (LeaseAction::Take, Some(_)) if !self.unsure => return,
            _ => pause,
        };
        sleep_until(next).await;
    }

    /// Watches the lease while another candidate holds it.
    async fn watch(&mut self) -> Result<(), kube::Error> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let leases = self.leases.clone();
        let Some(record) = &self.seen else {
            return Ok(());
        };
        let version = record.version().unwrap_or_default().to_owned();
        let Ok(events) = timeout_at(record.expiry(), leases.watch(&params, &version)).await else {
            return Ok(());
        };
        let mut events = events?.boxed();
        while let (LeaseAction::Wait, Some(record)) = (self.action(), &self.seen) {
            match timeout_at(record.expiry(), events.next()).await {
                Ok(Some(event)) => match event? {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => self.see(lease),
                    _ => return Ok(()),
                },
                Ok(None) => return Ok(()),
                // It is over; the loop ends.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Any number from 0 to 1.
fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    random as f64 / u64::MAX as f64
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests;
