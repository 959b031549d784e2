//! Compares the cache with the newest resourceVersion of the API server.
//!
//! A new leader compares every kind once, and lists a kind again if its watch does not reach the newest version soon. A
//! reconcile compares a kind after a write that got no response. Responses are missing mostly when the API server is
//! overloaded, so one request serves all reconciles that wait, and a list is the last resort: it would slow down the
//! requests of all clients, while a longer wait costs the reconciles of one workload a few seconds.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::Cache;
use crate::runtime::objects::Kind;
use gamekeeper_core::causes::with_causes;

/// How long a new leader waits for an event or bookmark before a kind is listed again.
const BOOKMARK_WAIT: Duration = Duration::from_millis(200);
/// How long a bookmark that was asked for may take before the kind is listed again.
const MAX_BOOKMARK_WAIT: Duration = Duration::from_secs(5);
/// How long a reconcile waits for an event or bookmark before a kind is listed again. The watch of an overloaded API
/// server may lag by seconds for a while.
const MAX_LAG: Duration = Duration::from_secs(5);
/// How old a kind's last list must be before a reconcile lists the kind again. A quiet kind gets a bookmark with the
/// newest version every minute, so a shorter interval would rarely be faster.
pub(super) const LIST_INTERVAL: Duration = Duration::from_secs(30);
/// The shortest time between two requests for the newest version of a kind.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// The API server's newest version of a kind, requested once for all callers that wait.
#[derive(Default)]
pub(super) struct Newest {
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    requested: Option<Instant>,
    /// The last version, and when it was requested.
    version: Option<(Instant, u64)>,
}

impl Newest {
    /// The version that the API server has at the time of the call, or a newer one.
    async fn get<E>(&self, request: impl Future<Output = Result<u64, E>>) -> Result<u64, E> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((requested, version)) = last.version
            && requested > called
        {
            return Ok(version);
        }
        if let Some(requested) = last.requested {
            sleep_until(requested + REQUEST_INTERVAL).await;
        }
        let requested = Instant::now();
        last.requested = Some(requested);
        let version = request.await?;
        last.version = Some((requested, version));
        Ok(version)
    }
}

impl Cache {
    /// Checks that this process may read the newest version of each kind. A watch does not prove that.
    pub(crate) async fn check_access(&self) -> Result<(), kube::Error> {
        let newest = self.watched().map(|(_, source)| source.newest());
        futures::future::try_join_all(newest).await.map(|_| ())
    }

    /// Waits until the cache is as new as the API server was at the time of the call.
    pub(crate) async fn catch_up_with_server(&self) -> Result<(), kube::Error> {
        let kinds = self.watched().map(async |(kind, source)| {
            let newest = source.newest().await?;
            self.reach_or_relist(kind, newest, BOOKMARK_WAIT, Duration::ZERO).await;
            Ok(())
        });
        futures::future::try_join_all(kinds).await.map(|_| ())
    }

    /// For one kind, waits until the cache is as new as the API server. Retries until the server responds.
    pub(super) async fn reach_newest(&self, kind: Kind) {
        let (Some(source), Some(newest)) = (self.sources.get(&kind), self.newest.get(&kind)) else {
            return;
        };
        loop {
            match newest.get(source.newest()).await {
                Ok(newest) => {
                    return self.reach_or_relist(kind, newest, MAX_LAG, LIST_INTERVAL).await;
                }
                Err(error) => {
                    warn!(?kind, error = %with_causes(&error), "cannot compare the cache with the API server");
                }
            }
        }
    }

    /// Waits until the cache shows each SidecarSet as it is at the time of the call, or newer. Costs one request, or
    /// none if the cache shows no set.
    pub(crate) async fn see_current_sets(&self) -> Result<(), kube::Error> {
        let source = self.sources.get(&Kind::SidecarSet);
        let Some(source) = source.filter(|_| !self.sidecars.is_empty()) else {
            return Ok(());
        };
        let newest = source.newest_object().await?;
        self.reach_or_relist(Kind::SidecarSet, newest, MAX_LAG, LIST_INTERVAL).await;
        Ok(())
    }

    /// Waits for an event or bookmark of this version. If none has arrived after `lag`, asks for a bookmark if the kind has many
    /// objects, and otherwise lists the kind again. Two lists are at least `interval` apart.
    async fn reach_or_relist(&self, kind: Kind, version: u64, lag: Duration, interval: Duration) {
        if timeout(lag, self.reach(kind, version)).await.is_ok()
            || self.reach_by_bookmark(kind, version, MAX_BOOKMARK_WAIT).await
        {
            return;
        }
        tokio::select! {
            () = self.reach(kind, version) => {}
            () = self.relist(kind, interval) => {}
        }
    }
}

#[cfg(test)]
mod tests;
